"""Subscribers of matches, and writes of match states."""

import asyncio
from typing import Any

from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.cricket_events import CricketEvent
from datastore.matches.live_state import ActiveMatch
from pipelines.matches.live.poller import TickOutcome
from tests.support.active_matches import active_match_state, matches
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.served import NOON, Listener, Served

FIELDS = """
  matchId leagueCode version isSnapshot conflatedCount changed events { eventId kind text score ball { label } }
  liveScore {
    version status phase innings { number runs wickets overs } batting { name runs balls isOnStrike }
    bowling { name overs runs wickets } partnership { runs balls } target { runs } result { text } note
    recentBalls { ballId runs }
  }
"""
UPDATES = f'subscription {{ matchUpdates(matchId: "m1") {{ {FIELDS} }} }}'


async def follow_updates(served: Served, query: str = UPDATES) -> Listener:
    """Return an attached subscriber: its snapshot is read or being read."""
    return await served.listen(query)


async def play_out(instance: Any, *ids: str) -> None:
    """Tick matches concurrently until each is over."""

    async def ticks(match_id: str) -> None:
        while not instance.poller._provider.is_over(match_id):
            assert await instance.poller.tick(match_id) in (TickOutcome.CHANGED, TickOutcome.UNCHANGED)

    await asyncio.gather(*[ticks(match_id) for match_id in ids])


async def advance(served: Served, match_id: str = "m1", *events: CricketEvent, by: int = 1) -> ActiveMatch:
    """Write the next version as a poller does, or with `by` a later one, as no poller does."""
    before = await active_match_state(served, match_id)
    runs = before.version + by
    note = f"version {runs}"
    after = replace(before, version=before.version + by, live=replace(before.live, note=note), events=events)
    if by == 1:
        assert await matches(served).commit(after)
    else:
        await served.store().write_all(ACTIVE_MATCHES, puts=[after.item()])
    return after


async def register_at_version_1(served: Served, *ids: str, **facts: Any) -> None:
    """Register matches at version 1 that no instance polls."""
    for match_id in ids:
        await put_fixtures(served, planned_match(match_id, **{"version": 1, **facts}))
        await ask_system(served, f'mutation {{ registerActiveMatch(id: "{match_id}") {{ fence }} }}')


async def nobody_follows(served: Served) -> None:
    assert served.gateway.services is not None
    async with asyncio.timeout(50):
        while served.gateway.services.changes.followers(ACTIVE_MATCHES):  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


def publish(served: Served, active: ActiveMatch) -> None:
    """Pass a change to the subscribers that is not in the table's stream."""
    assert served.gateway.services is not None
    table, item = ACTIVE_MATCHES.name, active.item()
    change = Change(table, "MODIFY", {"matchId": active.match_id}, {"version": 0}, item, "0", NOON, False)
    served.gateway.services.changes._tables[table].log.deliver("no shard", change)
