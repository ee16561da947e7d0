"""Refresh of the leaderboard snapshots whose counts have changed.

A snapshot is written with optimistic locking, and counts are read after the snapshot. A snapshot therefore never has
older counts than its predecessor. It is written even if nothing on it changes: otherwise a process that read a count
before it changed, and changed back, could still write the intermediate count.

A snapshot has twice as many members as are shown. About a hundred members may therefore leave it before all counts
have to be read again.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.feeds.leaderboards import LeaderboardMember, LeaderboardSnapshot, LeaderboardSnapshots
from datastore.primitives.tasks import gather_all

SHOWN = 100
STORED_FACTOR = 2  # the members of a snapshot, as a multiple of those shown
# Some twenty seconds: a failure would fail the batch of changes, whose retry would do the same work again.
CONFLICTS = Backoff(initial=0.02, maximum=0.5, attempts=100)

Period = tuple[str, str]  # kind and period


class LeaderboardRefresh:
    """Refreshes snapshots of which `shown` members are shown. Refreshes of one period in this process are serial."""

    def __init__(self, *, shown: int = SHOWN, uniform: Callable[[], float] = random.random) -> None:
        self._shown = shown
        self._uniform = uniform
        self._locks: WeakValueDictionary[Period, asyncio.Lock] = WeakValueDictionary()

    async def refresh(self, snapshots: LeaderboardSnapshots, changed: Mapping[Period, Iterable[str]]) -> None:
        """Refresh the snapshots of all periods with the counts of the changed names.

        Raises `Throttled` if other processes keep writing the same snapshot, and the store's errors: the first of all
        failures, after all snapshots were tried.
        """
        await gather_all([self._refresh(snapshots, period, frozenset(names)) for period, names in changed.items()])

    async def _refresh(self, snapshots: LeaderboardSnapshots, period: Period, names: frozenset[str]) -> None:
        async with self._locks.setdefault(period, asyncio.Lock()):
            for delay in CONFLICTS.delays(self._uniform):
                if await snapshots.put(await _refreshed(snapshots, period, names, self._shown)):
                    return
                await asyncio.sleep(delay)
        raise Throttled("Other processes are writing the same leaderboard; try again in a moment.")


async def _refreshed(
    snapshots: LeaderboardSnapshots, period: Period, names: frozenset[str], shown: int
) -> LeaderboardSnapshot:
    before = await snapshots.snapshot(*period)
    merged = before and merge(before, await snapshots.members(*period, sorted(names)), shown)
    if merged is not None:
        return merged
    size = STORED_FACTOR * shown
    version = before.version + 1 if before else 1
    ranked = await snapshots.best(*period, size + 1)
    return LeaderboardSnapshot(
        *period, version, tuple(ranked[:size]), bound=ranked[size].rank if len(ranked) > size else None
    )


def merge(
    snapshot: LeaderboardSnapshot, changed: Sequence[LeaderboardMember], shown: int
) -> LeaderboardSnapshot | None:
    """Return the next snapshot, with the counts of `changed`; None if an unlisted member may have to be shown."""
    names = {member.name for member in changed}
    unchanged = [member for member in snapshot.members if member.name not in names]
    ranked = sorted([*unchanged, *(member for member in changed if member.score > 0)], key=lambda member: member.rank)
    if snapshot.bound is not None:
        bound = snapshot.bound
        # An unlisted member may rank before the others.
        ranked = [member for member in ranked if member.rank <= bound]
        if len(ranked) < shown:
            return None
    listed, rest = ranked[: STORED_FACTOR * shown], ranked[STORED_FACTOR * shown :]
    bound_after = rest[0].rank if rest else snapshot.bound
    return LeaderboardSnapshot(snapshot.kind, snapshot.period, snapshot.version + 1, tuple(listed), bound_after)
