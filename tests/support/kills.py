"""A deployment under load whose processes are killed, and the comparison of the result with the responses."""

import asyncio
import os
import random
from collections import Counter
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
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.identity import Role
from pipelines.matches.providers.playback import Timeline
from tests.support.cricket_process import recording
from tests.support.deployment import MATCH, Deployment
from tests.support.earthquake_samples import quake, store
from tests.support.feed_workload import FeedWorkload, compare_with_feed_model, pipeline_settled
from tests.support.load_facts import stored_facts
from tests.support.load_operations import QUAKES, READS, WRITES, read_team, read_teams
from tests.support.match_takeover import events_of_a_whole_run
from tests.support.mixed_load import MixedLoad
from tests.support.photo_items import photo, photo_user, put_library_items
from tests.support.remote import PASSING, Passing, Remote
from tests.support.resuming_clients import CutOff, Said, SocketClient
from tests.support.served import NOON
from tests.support.upload_load import UploadLoad

KILLS = int(os.environ.get("KILLS", "2"))
LEASE_SECONDS = float(os.environ.get("KILLS_LEASE", "1.0"))
# Claims of interrupted mutations last a minute; by faster clocks they last less.
CLOCK_TIMES = float(os.environ.get("KILLS_CLOCK", "20"))
SEED = int(os.environ.get("KILLS_SEED", "8"))
USERS = 16
PATIENCE_SECONDS = 10.0
# The pause between batches of operations: at full length the feed's pipeline, which is killed too, has to keep up.
REST_SECONDS = float(os.environ.get("KILLS_REST", "0"))
SETTLING_SECONDS = 60 + KILLS * 6
# The feed has its own workload.
FEED_WRITES = ("create_post", "like", "comment", "follow")
FEED_READS = ("read_post", "read_comments")
SYNC = "mutation ($teams: [TeamInput!]!) { syncTeams(input: $teams) { teamId } }"
FOLLOWED = "version isSnapshot changed events { eventId } liveScore { status innings { runs wickets overs } }"
UPDATES = f'subscription {{ matchUpdates(matchId: "{MATCH}") {{ {FOLLOWED} }} }}'


@dataclass(frozen=True)
class LoadSize:
    """The size of the load; `feed` tells whether actors of the mixed load use the feed, too."""

    actors: int = 8
    viewers: int = 3
    feed: bool = False
    uploaders: int = 0


STANDARD = LoadSize()


class LoadedDeployment:
    """A deployment with its load: writers and readers of all systems, and subscribers of a match."""

    def __init__(self, deployment: Deployment, served: Remote, http: aiohttp.ClientSession, size: LoadSize) -> None:
        self.deployment = deployment
        self.served = served
        self.workload = FeedWorkload(served, Passing(deployment.clock), users=USERS, seed=SEED)
        self.load = MixedLoad(
            served,
            actors=size.actors,
            seed=SEED,
            writes=[write for write in WRITES if size.feed or write.__name__ not in FEED_WRITES],
            # Each gateway caches teams for a moment, so that reads of them may be stale.
            reads=[
                read
                for read in READS
                if read not in (read_team, read_teams) and (size.feed or read.__name__ not in FEED_READS)
            ],
        )
        self.uploads = UploadLoad(served, http, deployment.urls, uploaders=size.uploaders, seed=SEED)
        self.viewers = [Viewer(http, deployment.urls, number) for number in range(size.viewers)]
        self.expected: set[str] = set()

    async def prepare(self, database: Database) -> None:
        """Write the items that the load needs, past the gateways."""
        self.served.database = database
        served, now = self.served, self.served.clock()
        self.expected = await events_of_a_whole_run(served, MATCH)
        await ActiveMatches(served.store(), now).deactivate("whole")
        matches = [Match("m1", "L", "IPL", home_team_id="10", away_team_id="20", start_time=now + timedelta(days=1))]
        await Fixtures(served.store(), now).sync([*matches, recording(MATCH).match])
        ages = [timedelta(minutes=number + 1) + (NOON - now) for number in range(QUAKES)]
        await store(served, *[quake(f"us{number}", age) for number, age in enumerate(ages)])
        for actor in self.load.actors:
            await put_library_items(served, photo_user(actor.email), photo(actor.photo, actor.email))
        await self.uploads.prepare()

    async def enter(self) -> None:
        await self.workload.enter()
        for actor in self.load.actors:
            answer = await self.served.ask('mutation { createUser(input: {name: "x"}) { userId } }', user=actor.name)
            assert answer.errors is None
            team = {"teamId": f"t-{actor.name}", "name": "First", "code": "T"}
            answer = await self.served.ask(SYNC, {"teams": [team]}, user="job", role=Role.SYSTEM)
            assert answer.errors is None
            self.load.truth.acknowledged(("team", f"t-{actor.name}"), "First")
        for viewer in self.viewers:
            await viewer.begin()
        await self.deployment.begin_match(self._match_is_polled)

    async def _match_is_polled(self) -> bool:
        return await ActiveMatches(self.served.store(), datetime.now(UTC)).latest(MATCH) is not None

    async def work_until(self, over: asyncio.Event) -> int:
        """Execute operations until `over` is set. Return their number."""
        uploading, done = asyncio.create_task(self.uploads.work_until(over)), 0
        while not over.is_set():
            await asyncio.gather(self.workload.run(64), self.load.run(64))
            done += 128
            await asyncio.sleep(REST_SECONDS)
        await uploading
        return done

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
        assert [
            letter async for letter in every_letter(self.served.store, CONSUMER_TABLE, FEED.name, datetime.now(UTC))
        ] == []
        final = await ActiveMatches(self.served.store(), self.served.clock()).latest(MATCH)
        assert final is not None
        for viewer in self.viewers:
            assert set(viewer.events) == self.expected
            viewer.check()
            assert [(one["runs"], one["wickets"]) for one in viewer.score] == [
                (score.runs, score.wickets) for score in final.live.innings
            ]

    async def check_facts(self, database: Database) -> None:
        """Check that every acknowledged write is stored, and nothing else, and that all responses were right."""
        assert self.load.report.undeclared == []
        assert self.load.report.wrong == []
        stored = await stored_facts(database)
        for kind in {fact[0] for fact in self.load.truth.may_be}:
            assert self.load.truth.wrong(kind, stored) == []


class Viewer:
    """Follows the match over one connection after another, through any gateway, until its result."""

    def __init__(self, http: aiohttp.ClientSession, urls: list[str], number: int) -> None:
        self._client = SocketClient(http, UPDATES, {})
        self._urls = urls
        self._rng = random.Random(number)
        self._began = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self.versions: list[int] = []
        self.events: list[str] = []
        self.score: list[Any] = []
        self.connections = 0
        self.resyncs = 0
        # Codes of errors, and the close codes with which the server ended connections.
        self.received: Counter[str | int] = Counter()
        self.is_over = False

    async def begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())
        await self._began.wait()

    async def has_seen_all(self) -> None:
        assert self._watching is not None
        await self._watching

    def leave(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def check(self) -> None:
        """Check that each version and each event came once, in order, without errors besides temporary ones."""
        assert self.received.keys() <= PASSING, self.received
        assert self.resyncs == 0
        assert self.versions == [*range(self.versions[0], self.versions[0] + len(self.versions))]
        assert len(self.events) == len(set(self.events))

    async def _watch(self) -> None:
        while not self.is_over:
            try:
                await self._follow(self._rng.choice(self._urls))
            except CutOff as cut:
                if cut.code is not None:
                    self.received[cut.code] += 1
            except (aiohttp.ClientConnectionError, TimeoutError, OSError):
                pass  # The connection is lost: the next one resumes.
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))

    async def _follow(self, url: str) -> None:
        self.connections += 1
        async with self._client.connected(url) as events:
            async for payload in events:
                self._hear(payload)
                if self.is_over:
                    return

    def _hear(self, payload: Said) -> None:
        """Handle an event, the first payload, or a message that ends the subscription."""
        errors = payload["payload"] if payload.get("type") == "error" else payload.get("errors", ())
        self.received.update(error["extensions"]["code"] for error in errors)
        if payload.get("data") is not None:
            self._take(payload)
            self._began.set()
        elif not errors and "begun" not in payload:
            self.received[payload["type"]] += 1

    def _take(self, payload: Said) -> None:
        update = payload["data"]["matchUpdates"]
        self.resyncs += "resync" in payload["extensions"]
        self.versions.append(update["version"])
        self.events += [event["eventId"] for event in update["events"]]
        self.score = update["liveScore"]["innings"]
        # Do not wait for the part RESULT: a poll with many events writes several versions, each with the new state.
        self.is_over = any(":result:" in event["eventId"] for event in update["events"])


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
