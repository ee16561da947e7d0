"""Steps and data of the tests of match updates."""

import asyncio
from typing import Any

from msgspec.structs import replace

from datastore.change_streams.shards.stream_reader import Change
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.cricket import CricketEvent
from datastore.matches.live_state import ActiveMatch, active_match_item
from pipelines.matches.live.poller import Tick
from tests.support.active_matches import matches, state
from tests.support.fixture_steps import one, put, system
from tests.support.served import NOON, Listener, Served

FIELDS = """
  matchId leagueCode version isSnapshot conflated changed events { eventId kind text score ball { label } }
  liveScore {
    version status phase innings { number runs wickets overs } batting { name runs balls onStrike }
    bowling { name overs runs wickets } partnership { runs balls } target { runs } result { text } note
    recentBalls { ballId runs }
  }
"""
UPDATES = f'subscription {{ matchUpdates(matchId: "m1") {{ {FIELDS} }} }}'


async def follow(served: Served, query: str = UPDATES) -> Listener:
    """A subscriber that is attached before this returns: its snapshot is taken, or on its way."""
    return await served.listen(query)


async def play_out(instance: Any, *ids: str) -> None:
    """Tick matches side by side until each is over."""

    async def ticks(match_id: str) -> None:
        while not instance.poller._provider.is_over(match_id):
            assert await instance.poller.tick(match_id) in (Tick.CHANGED, Tick.UNCHANGED)

    await asyncio.gather(*[ticks(match_id) for match_id in ids])


async def advance(served: Served, match_id: str = "m1", *events: CricketEvent, by: int = 1) -> ActiveMatch:
    """Write the next version as a poller would, or one that is further on, as nobody should."""
    before = await state(served, match_id)
    runs = before.version + by
    note = f"version {runs}"
    after = replace(before, version=before.version + by, live=replace(before.live, note=note), events=events)
    if by == 1:
        assert await matches(served).commit(after)
    else:
        await served.store().write_all(ACTIVE_MATCHES, puts=[active_match_item(after)])
    return after


async def begun(served: Served, *ids: str, **facts: Any) -> None:
    """Matches that are on the list at version 1, and polled by nobody."""
    for match_id in ids:
        await put(served, one(match_id, **{"version": 1, **facts}))
        await system(served, f'mutation {{ registerActiveMatch(id: "{match_id}") {{ fence }} }}')


async def nobody_follows(served: Served) -> None:
    assert served.gateway.services is not None
    async with asyncio.timeout(50):
        while served.gateway.services.changes.followers(ACTIVE_MATCHES):  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.01)


def publish(served: Served, active: ActiveMatch) -> None:
    """Hand a change to the subscribers that the table's stream does not have."""
    assert served.gateway.services is not None
    table, item = ACTIVE_MATCHES.name, active_match_item(active)
    change = Change(table, "MODIFY", {"matchId": active.match_id}, {"version": 0}, item, "0", NOON, False)
    served.gateway.services.changes._tables[table].log.deliver("no shard", change)
