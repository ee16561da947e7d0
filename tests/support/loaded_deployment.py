"""A deployment under load, and the comparison of the result with the responses."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from datastore.change_streams.dead_letters import every_letter
from datastore.database import Database
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from pipelines.matches.providers.playback import Timeline
from tests.support.cricket_process import recording
from tests.support.deployment import MATCH, Deployment
from tests.support.earthquake_samples import quake, store
from tests.support.feed_workload import FeedWorkload, compare_with_feed_model, pipeline_settled
from tests.support.followers import Viewer
from tests.support.load_facts import stored_facts
from tests.support.load_operations import QUAKES, READS, WRITES, read_team, read_teams
from tests.support.match_takeover import events_of_a_whole_run
from tests.support.mixed_load import MixedLoad
from tests.support.remote import Passing, Remote
from tests.support.resuming_clients import ResumingClient, SocketClient
from tests.support.served import NOON
from tests.support.upload_load import UploadLoad

LEASE_SECONDS = 1.0
# Claims of interrupted mutations last a minute; by faster clocks they last less.
CLOCK_TIMES = 20.0
SEED = 8
USERS = 16
PATIENCE_SECONDS = 10.0
SETTLING_SECONDS = 90.0
# The feed has its own workload.
FEED_WRITES = ("create_post", "like", "comment", "follow")
FEED_READS = ("read_post", "read_comments")
FOLLOWED = "version isSnapshot changed events { eventId } liveScore { status innings { runs wickets overs } }"
UPDATES = f'subscription {{ matchUpdates(matchId: "{MATCH}") {{ {FOLLOWED} }} }}'


@dataclass(frozen=True)
class LoadSize:
    """The size of the load; `feed` states whether actors of the mixed load use the feed, too.

    With `persistent` every client repeats its writes until the response is final (`MixedLoad`).
    """

    actors: int = 8
    viewers: int = 3
    feed: bool = False
    uploaders: int = 0
    seed: int = SEED
    persistent: bool = False
    transports: tuple[type[ResumingClient], ...] = (SocketClient,)


STANDARD = LoadSize()


class LoadedDeployment:
    """A deployment with its load: writers and readers of all systems, and subscribers of a match."""

    def __init__(self, deployment: Deployment, served: Remote, http: aiohttp.ClientSession, size: LoadSize) -> None:
        self.deployment = deployment
        self.served = served
        self.workload = FeedWorkload(served, Passing(deployment.clock), users=USERS, seed=size.seed)
        self.load = MixedLoad(
            served,
            actors=size.actors,
            seed=size.seed,
            writes=[write for write in WRITES if size.feed or write.__name__ not in FEED_WRITES],
            # Each gateway caches teams for a moment, so that reads of them may be stale.
            reads=[
                read
                for read in READS
                if read not in (read_team, read_teams) and (size.feed or read.__name__ not in FEED_READS)
            ],
            persistent=size.persistent,
        )
        self.uploads = UploadLoad(served, http, deployment.urls, uploaders=size.uploaders, seed=size.seed)
        transports = itertools.islice(itertools.cycle(size.transports), size.viewers)
        self.viewers = [
            Viewer(transport(http, UPDATES, {}), deployment.urls, number) for number, transport in enumerate(transports)
        ]
        self.expected: set[str] = set()

    async def prepare(self, database: Database) -> None:
        """Write the items that the load needs, past the gateways."""
        self.served.database = database
        served, now = self.served, self.served.clock()
        self.expected = await events_of_a_whole_run(served, MATCH)
        await ActiveMatches(served.store(), now).deactivate("whole")
        matches = self.load.fixtures(now + timedelta(days=1))
        await Fixtures(served.store(), now).sync([*matches, recording(MATCH).match])
        ages = [timedelta(minutes=number + 1) + (NOON - now) for number in range(QUAKES)]
        await store(served, *[quake(f"us{number}", age) for number, age in enumerate(ages)])
        await self.uploads.prepare()

    async def enter(self) -> None:
        await self.workload.enter()
        await self.load.enter()
        for viewer in self.viewers:
            await viewer.begin()
        await self.deployment.begin_match(self._match_is_polled)

    async def _match_is_polled(self) -> bool:
        return await ActiveMatches(self.served.store(), datetime.now(UTC)).latest(MATCH) is not None

    async def work_until(self, over: asyncio.Event) -> int:
        """Execute operations until `over` is set. Return their number."""
        async with asyncio.TaskGroup() as tasks:
            for load in (self.workload, self.load, self.uploads):
                tasks.create_task(load.work_until(over))
        return self.workload.done.total() + self.load.done

    async def check(self, database: Database) -> None:
        """Check that the stored items agree with the responses, that counters are exact, and that each viewer received
        all events.
        """
        async with asyncio.timeout(SETTLING_SECONDS):
            await asyncio.gather(*[viewer.has_seen_all() for viewer in self.viewers])
        await pipeline_settled(database.client, self.served.store, database.prefix, SETTLING_SECONDS)
        await compare_with_feed_model(self.workload)
        await self.check_facts(database)
        await self.uploads.check(database, self.deployment.objects, SETTLING_SECONDS)
        await self.check_letters()
        for viewer in self.viewers:
            assert set(viewer.events) == self.expected
            viewer.check()
        await self.check_score()

    async def check_letters(self) -> None:
        """Check that the feed's pipeline has handled every change."""
        now = datetime.now(UTC)
        letters = [letter async for letter in every_letter(self.served.store, CONSUMER_TABLE, FEED.name, now)]
        assert letters == [], letters

    async def check_score(self) -> None:
        """Check that each viewer has the final score."""
        final = await ActiveMatches(self.served.store(), self.served.clock()).latest(MATCH)
        assert final is not None
        for viewer in self.viewers:
            assert [(one["runs"], one["wickets"]) for one in viewer.score] == [
                (score.runs, score.wickets) for score in final.live.innings
            ]

    async def check_facts(self, database: Database) -> None:
        """Check that every acknowledged write is stored, and nothing else, and that all responses were right."""
        assert self.load.report.undeclared == [], self.load.report.undeclared
        assert self.load.report.wrong == [], self.load.report.wrong
        stored = await stored_facts(database)
        for kind in {fact[0] for fact in self.load.truth.may_be}:
            wrong = self.load.truth.wrong(kind, stored)
            assert wrong == [], wrong


@asynccontextmanager
async def deployed(
    folder: Path, seconds: float, size: LoadSize = STANDARD, **options: Any
) -> AsyncIterator[tuple[LoadedDeployment, Database]]:
    """Run a deployment with a match of this length, with all processes at work."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        speed = Timeline(recording(MATCH)).moments[-1] / seconds
        options = {"lease_seconds": LEASE_SECONDS, "clock_times": CLOCK_TIMES} | options
        deployment = Deployment(folder, http, match_speed=speed, **options)
        world = LoadedDeployment(
            deployment, Remote(http, deployment.urls, deployment.clock, PATIENCE_SECONDS), http, size
        )
        async with deployment.running(world.prepare) as database:
            try:
                await world.enter()
                yield world, database
            finally:
                for viewer in world.viewers:
                    viewer.leave()
