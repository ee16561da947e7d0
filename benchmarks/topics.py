"""Topics of subscriptions: a match in play, and new earthquakes. Events are written to the tables directly."""

import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from benchmarks.data import NOON, open_store
from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from datastore.model.access_patterns import Table
from datastore.model.timestamps import epoch_ms
from pipelines.demo.match import demo_match
from pipelines.matches.live.diff import MatchWatch
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.recordings import Recording

FIRST_STATE = 60  # states: in the first innings, when all fields have values
SCORE = "version changed liveScore { status innings { runs wickets overs } }"
ALL = """matchId version changed isSnapshot sentAt
  liveScore {
    status phase note
    innings { number teamId runs wickets overs }
    batting { name runs balls fours sixes isOnStrike }
    bowling { name overs runs wickets }
    partnership { runs balls }
    target { runs }
    recentBalls { label runs }
  }
  events { eventId kind text score }"""
PLACE = "eventId magnitude place latitude longitude"

Announce = Callable[[Hashable], None]
Publish = Callable[[Announce], Awaitable[None]]
Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that can be subscribed to, and its publisher."""

    name: str
    table: Table
    #: The field that identifies an event.
    event_field: str
    requests: Sequence[Request]
    #: Fills the empty tables. Returns a function that announces the id of the next event, and then writes the event.
    publisher: Callable[[Client], Awaitable[Publish]]


def match_updates(selection: str = SCORE, documents: int = 1) -> Topic:
    """Return the topic of one match. Several `documents` differ in the alias of one field."""
    queries = [selection if documents == 1 else f"{selection} alias{index}: version" for index in range(documents)]
    document = "subscription ($matchId: ID!) { matchUpdates(matchId: $matchId) { %s } }"
    requests = [{"query": document % fields, "variables": {"matchId": "match-000"}} for fields in queries]
    return Topic("matchUpdates", ACTIVE_MATCHES, "version", requests, _match)


def earthquakes(variables: int = 0) -> Topic:
    """Return the topic of all new earthquakes. Several `variables` differ in the least magnitude, below all events."""
    if not variables:
        requests: list[Request] = [{"query": f"subscription {{ earthquakeDetected {{ {PLACE} }} }}"}]
    else:
        query = f"subscription ($least: Float) {{ earthquakeDetected(minMagnitude: $least) {{ {PLACE} }} }}"
        requests = [{"query": query, "variables": {"least": index / variables}} for index in range(variables)]
    return Topic("earthquakeDetected", EARTHQUAKES, "eventId", requests, _earthquakes)


def _recording() -> Recording:
    """Return an invented match, equal in every run."""
    return read(demo_match(random.Random(0), 0, datetime(2026, 6, 25, tzinfo=UTC).date()), match_id="match-000")


async def _match(client: Client) -> Publish:
    """Write an invented match. The returned function writes a version for each ball."""
    match = _recording().match
    await Fixtures(open_store(client), NOON).sync([match])
    active = await ActiveMatches(open_store(client), NOON).register(match, instance_id="measured")
    versions = _versions(active)

    async def publish(announce: Announce) -> None:
        version = next(versions)
        announce(version.version)
        if not await ActiveMatches(open_store(client), NOON).commit(version):
            raise RuntimeError("Another process wrote the match.")

    return publish


def _versions(active: ActiveMatch) -> Iterator[ActiveMatch]:
    """Yield the states that ticks would write."""
    playback = Playback(_recording())
    watch = MatchWatch(active.match_id, playback.at(FIRST_STATE))
    active = replace(active, previous_ball_id=playback.at(FIRST_STATE).balls[-1].ball_id)
    for state in range(FIRST_STATE + 1, playback.timeline.last):
        found = watch.compare(active, playback.at(state))
        version = active.version + 1
        active = replace(
            active,
            live=found.live,
            version=version,
            previous_ball_id=found.last_ball_id,
            announced=found.announced,
            events=found.events,
            changed=found.parts,
        )
        yield active


async def _earthquakes(client: Client) -> Publish:
    published = 0

    async def publish(announce: Announce) -> None:
        nonlocal published
        published += 1
        event = Earthquake(
            event_id=f"live-{published:05}",
            occurred_at_ms=epoch_ms(NOON + timedelta(milliseconds=published)),
            magnitude=2.5 + published % 40 / 10,
            place=f"{published % 200} km NW of Ridgecrest, California",
            latitude=35 + published % 1000 / 1000,
            longitude=-117.5,
            depth_km=8.25,
            source="usgs",
            ingested_at_ms=epoch_ms(NOON),
        )
        announce(event.event_id)
        await Earthquakes(open_store(client), NOON).insert(event)

    return publish
