"""What is subscribed to: a match while it is played, and earthquakes as they are stored. Written past the gateway."""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from benchmarks.data import NOON, open_store
from benchmarks.invented_matches import invented
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
from pipelines.matches.live.diff import MatchWatch
from pipelines.matches.providers.playback import Playback

BEGINS_AFTER = 60  # states: in the first innings, with all that a client shows
SCORE = "version changed liveScore { status innings { runs wickets overs } }"
ALL = """matchId version changed isSnapshot serverTime
  liveScore {
    status phase note
    innings { number teamId runs wickets overs }
    batting { name runs balls fours sixes onStrike }
    bowling { name overs runs wickets }
    partnership { runs balls }
    target { runs }
    recentBalls { label runs }
  }
  events { eventId kind text score }"""
PLACE = "eventId magnitude place latitude longitude"

Says = Callable[[Hashable], None]
Publish = Callable[[Says], Awaitable[None]]
Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Topic:
    """`number` is the field that tells events from each other.

    `publisher` makes ready what there has to be in tables that are empty, and returns what writes the next event, and
    says its number just before.
    """

    name: str
    table: Table
    number: str
    requests: Sequence[Request]
    publisher: Callable[[Client], Awaitable[Publish]]


def match_updates(selection: str = SCORE, documents: int = 1) -> Topic:
    """Viewers of one match. With several documents, each has a name of its own for one field."""
    queries = [selection if documents == 1 else f"{selection} alias{one}: version" for one in range(documents)]
    document = "subscription ($matchId: ID!) { matchUpdates(matchId: $matchId) { %s } }"
    requests = [{"query": document % one, "variables": {"matchId": "match-000"}} for one in queries]
    return Topic("matchUpdates", ACTIVE_MATCHES, "version", requests, _match)


def earthquakes(variables: int = 0) -> Topic:
    """All that are stored. With variables, each has another least magnitude, below all that come."""
    if not variables:
        requests: list[Request] = [{"query": f"subscription {{ earthquakeDetected {{ {PLACE} }} }}"}]
    else:
        query = f"subscription ($least: Float) {{ earthquakeDetected(minMagnitude: $least) {{ {PLACE} }} }}"
        requests = [{"query": query, "variables": {"least": one / variables}} for one in range(variables)]
    return Topic("earthquakeDetected", EARTHQUAKES, "eventId", requests, _earthquakes)


async def _match(client: Client) -> Publish:
    """A version for each ball of an invented match."""
    match = invented(0).match
    await Fixtures(open_store(client), NOON).sync([match])
    active = await ActiveMatches(open_store(client), NOON).register(match, instance_id="measured")
    versions = _versions(active)

    async def publish(says: Says) -> None:
        version = next(versions)
        says(version.version)
        if not await ActiveMatches(open_store(client), NOON).commit(version):
            raise RuntimeError("Somebody else has written the match.")

    return publish


def _versions(active: ActiveMatch) -> Iterator[ActiveMatch]:
    """The states that ticks would write."""
    playback = Playback(invented(0))
    watch = MatchWatch(active.match_id, playback.at(BEGINS_AFTER))
    active = replace(active, previous_ball_id=playback.at(BEGINS_AFTER).balls[-1].ball_id)
    for state in range(BEGINS_AFTER + 1, playback.timeline.last):
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
    number = 0

    async def publish(says: Says) -> None:
        nonlocal number
        number += 1
        event = Earthquake(
            event_id=f"live-{number:05}",
            occurred_at_ms=epoch_ms(NOON + timedelta(milliseconds=number)),
            magnitude=2.5 + number % 40 / 10,
            place=f"{number % 200} km NW of Ridgecrest, California",
            latitude=35 + number % 1000 / 1000,
            longitude=-117.5,
            depth_km=8.25,
            source="usgs",
            ingested_at_ms=epoch_ms(NOON),
        )
        says(event.event_id)
        await Earthquakes(open_store(client), NOON).insert(event)

    return publish
