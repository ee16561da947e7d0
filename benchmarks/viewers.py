"""Viewers of one match: subscribers of `matchUpdates`, while the match is played on the tables."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from benchmarks.data import NOON, open_store
from benchmarks.invented_matches import invented
from benchmarks.subscriptions import Feed
from datastore.client import Client
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from pipelines.matches.changes import MatchWatch
from pipelines.matches.playback import Playback

UPDATES_PER_SECOND = 1
BEGINS_AFTER = 90  # states: in the first innings, with all that a client shows
SCORE = 'matchUpdates(matchId: "match-000") { version changed liveScore { status innings { runs wickets overs } } }'
ALL = """matchUpdates(matchId: "match-000") {
  matchId version changed isSnapshot serverTime
  liveScore {
    status phase note
    innings { number teamId runs wickets overs }
    batting { name runs balls fours sixes onStrike }
    bowling { name overs runs wickets }
    partnership { runs balls }
    target { runs }
    recentBalls { label runs }
  }
  events { eventId kind text score }
}"""
SELECTIONS = {"the score": SCORE, "score, players, last 30 balls, events": ALL}


async def match_updates(client: Client, selection: str) -> Feed:
    """A version for each ball of an invented match. The tables are empty."""
    match = invented(0).match
    await Fixtures(open_store(client), NOON).sync([match])
    active = await ActiveMatches(open_store(client), NOON).register(match, instance_id="measured")
    versions = _versions(active)

    async def publish(_: int, says: Callable[[Hashable], None]) -> None:
        version = next(versions)
        says(version.version)
        if not await ActiveMatches(open_store(client), NOON).commit(version):
            raise RuntimeError("Somebody else has written the match.")

    query = f"subscription {{ {selection} }}"
    return Feed(query, ACTIVE_MATCHES, UPDATES_PER_SECOND, publish, _version, snapshot=True)


def _version(data: Mapping[str, Any]) -> Hashable:
    version: int = data["matchUpdates"]["version"]
    return version


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
