"""Renews the boards whose counts have changed.

A board is put only if it is as it was read, and counts are read after it: so a board never goes back to counts that are
older than those of the one before. It is put also when nothing on it changes. Else another that read a count before it
changed, and changed back, could still put that.

A board keeps twice as many as are shown. So those who leave it make room for others a hundred times, more or less,
before all counts must be read again.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.feeds.leaderboard_snapshots import Board, BoardMember, Boards
from datastore.tasks import gather_all

SHOWN = 100
KEPT = 2  # times as many as are shown
# Some twenty seconds: what failed would be the whole batch, and that would only do the same again.
CONFLICTS = Backoff(initial=0.02, maximum=0.5, attempts=100)

Period = tuple[str, str]  # kind and period


class LeaderboardRefresh:
    """Renews boards that show so many. Those of one process take turns, and so do not stand in each other's way."""

    def __init__(self, *, shown: int = SHOWN, uniform: Callable[[], float] = random.random) -> None:
        self._shown = shown
        self._uniform = uniform
        self._turns: WeakValueDictionary[Period, asyncio.Lock] = WeakValueDictionary()

    async def renew(self, boards: Boards, touched: Mapping[Period, Iterable[str]]) -> None:
        """Bring the boards up to date with the counts of those names.

        Raises `Throttled` when others went on putting the same board, or what the store raises: the first of all,
        after all boards were tried.
        """
        await gather_all([self._renew(boards, period, frozenset(names)) for period, names in touched.items()])

    async def _renew(self, boards: Boards, period: Period, names: frozenset[str]) -> None:
        async with self._turns.setdefault(period, asyncio.Lock()):
            for delay in CONFLICTS.delays(self._uniform):
                if await boards.put(await _renewed(boards, period, names, self._shown)):
                    return
                await asyncio.sleep(delay)
        raise Throttled("Others are renewing the same board; try again in a moment.")


async def _renewed(boards: Boards, period: Period, names: frozenset[str], shown: int) -> Board:
    before = await boards.board(*period)
    merged = before and merge(before, await boards.members(*period, sorted(names)), shown)
    if merged is not None:
        return merged
    size = KEPT * shown
    version = before.version + 1 if before else 1
    ranked = await boards.best(*period, size + 1)
    return Board(*period, version, tuple(ranked[:size]), bound=ranked[size].rank if len(ranked) > size else None)


def merge(board: Board, fresh: Sequence[BoardMember], shown: int) -> Board | None:
    """The board with the new counts in place of the old; None when somebody outside may belong among those shown."""
    names = {member.name for member in fresh}
    stay = [member for member in board.members if member.name not in names]
    ranked = sorted([*stay, *(member for member in fresh if member.score > 0)], key=lambda member: member.rank)
    if board.bound is not None:
        bound = board.bound
        # Before the others somebody outside may come.
        ranked = [member for member in ranked if member.rank <= bound]
        if len(ranked) < shown:
            return None
    listed, cut = ranked[: KEPT * shown], ranked[KEPT * shown :]
    return Board(board.kind, board.period, board.version + 1, tuple(listed), cut[0].rank if cut else board.bound)
