"""Boards as they are made: the top of all counts of a period, kept as one item for whoever asks for it."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.feeds.engagement_counters import kept_until
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.model.composite_keys import Key
from datastore.model.timestamps import to_seconds
from datastore.session.store import Store

COUNTS = {keys.AUTHORS: ("posts", "likes", "comments", "score"), keys.TAGS: ("posts",)}
SCORE = {keys.AUTHORS: "score", keys.TAGS: "posts"}

Rank = tuple[int, str]


@dataclass(frozen=True, slots=True)
class BoardMember:
    """An author or a tag with its counts in a period."""

    name: str
    score: int
    counts: Mapping[str, int]

    @property
    def rank(self) -> Rank:
        """Smaller is higher up: the higher score, then the name."""
        return -self.score, self.name


@dataclass(frozen=True, slots=True)
class Board:
    """The members of a period, best first. Nobody outside ranks above `bound`; without one there is nobody outside.

    `version` grows by one each time the board is put.
    """

    kind: str
    period: str
    version: int
    members: tuple[BoardMember, ...]
    bound: Rank | None


class Boards:
    """The boards and the counts they are made of. What is read is read anew each time, and consistently."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def board(self, kind: str, period: str) -> Board | None:
        """FEED-P5: a board as it is, or None."""
        key = keys.board(kind, period)
        self._store.invalidate(FEED_METRICS, key)
        item = await self._store.get(keys.PUT_BOARD, key)
        return None if item is None else _board_from(kind, period, item)

    async def members(self, kind: str, period: str, names: Iterable[str]) -> list[BoardMember]:
        """FEED-P5: these authors or tags with their counts."""
        counts = [keys.count(kind, period, name) for name in names]
        for key in counts:
            self._store.invalidate(FEED_METRICS, key)
        items = await asyncio.gather(*[self._store.get(keys.COUNT, key) for key in counts])
        return [_member_from(kind, key, item or {}) for key, item in zip(counts, items, strict=True)]

    async def best(self, kind: str, period: str, most: int) -> list[BoardMember]:
        """FEED-P5: the best of all that were counted, best first."""
        parts = [self._best_of(kind, partition, most) for partition in keys.counts(kind, period)]
        return _best([member for part in await asyncio.gather(*parts) for member in part], most)

    async def _best_of(self, kind: str, partition: str, most: int) -> list[BoardMember]:
        best: list[BoardMember] = []
        async for items in self._store.query_pages(keys.COUNTS, {"partition": partition}):
            found = [_member_from(kind, Key(item["PK"], item["SK"]), item) for item in items]
            best = _best([*best, *found], most)
        return best

    async def put(self, board: Board) -> bool:
        """FEED-P5: whether the board is kept now: not if another came between."""
        written = await self._store.put(keys.PUT_BOARD, _item_of(board), version=board.version - 1)
        # A try whose answer was lost may have put the board that is now in its own way.
        return written.ok or (written.is_retry and written.item == _item_of(board))


def _best(members: list[BoardMember], most: int) -> list[BoardMember]:
    return nsmallest(most, (member for member in members if member.score > 0), key=lambda member: member.rank)


def _member_from(kind: str, key: Key, item: Mapping[str, Any]) -> BoardMember:
    # Below 0 is what was taken back while what it had added is a dead letter.
    counts = {name: max(0, int(item.get(name, 0))) for name in COUNTS[kind]}
    return BoardMember(keys.count_parts(key)[2], counts[SCORE[kind]], counts)


def _board_from(kind: str, period: str, item: Item) -> Board:
    members = tuple(
        BoardMember(entry["name"], int(entry[SCORE[kind]]), {name: int(entry[name]) for name in COUNTS[kind]})
        for entry in item["members"]
    )
    bound = (-int(item["floor"]), item["floor_name"]) if item["floor"] else None
    return Board(kind, period, int(item["version"]), members, bound)


def _item_of(board: Board) -> Item:
    """`floor` and `floor_name` are the bound: nobody outside has more, nor as much with a name that comes before."""
    key = keys.board(board.kind, board.period)
    item: Item = {
        "PK": key.partition,
        "SK": key.sort,
        "version": board.version,
        "members": [{"name": member.name, **member.counts} for member in board.members],
        "floor": 0,
    }
    if board.bound is not None:
        item |= {"floor": -board.bound[0], "floor_name": board.bound[1]}
    until = kept_until(board.kind, board.period)
    return item if until is None else item | {"expiresAt": to_seconds(until)}
