"""Leaderboard snapshots: the authors or tags with the highest counts of a period, stored as one item."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.feeds.engagement_counters import period_expiry
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.model.composite_keys import Key
from datastore.model.timestamps import to_seconds
from datastore.session.store import Store

COUNTS = {keys.AUTHORS: ("posts", "likes", "comments", "score"), keys.TAGS: ("posts",)}
SCORE = {keys.AUTHORS: "score", keys.TAGS: "posts"}

Rank = tuple[int, str]


@dataclass(frozen=True, slots=True)
class LeaderboardMember:
    """An author or a tag with its counts in a period."""

    name: str
    score: int
    counts: Mapping[str, int]

    @property
    def rank(self) -> Rank:
        """The sort key, smallest first: the higher score, then the name."""
        return -self.score, self.name


@dataclass(frozen=True, slots=True)
class LeaderboardSnapshot:
    """The members of a period, best first."""

    kind: str
    period: str
    #: Grows by one each time the snapshot is written.
    version: int
    members: tuple[LeaderboardMember, ...]
    #: No unlisted author or tag ranks above it. None if all are listed.
    bound: Rank | None


class LeaderboardSnapshots:
    """The snapshots and their counts. Every read goes to the table, and is consistent."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def snapshot(self, kind: str, period: str) -> LeaderboardSnapshot | None:
        """FEED-P5: return the stored snapshot, or None."""
        key = keys.board(kind, period)
        self._store.invalidate(FEED_METRICS, key)
        item = await self._store.get(keys.PUT_BOARD, key)
        return None if item is None else _snapshot_from(kind, period, item)

    async def members(self, kind: str, period: str, names: Iterable[str]) -> list[LeaderboardMember]:
        """FEED-P5: return the authors or tags of these names with their counts."""
        counts = [keys.counters(kind, period, name) for name in names]
        for key in counts:
            self._store.invalidate(FEED_METRICS, key)
        items = await asyncio.gather(*[self._store.get(keys.COUNTERS, key) for key in counts])
        return [_member_from(kind, key, item or {}) for key, item in zip(counts, items, strict=True)]

    async def best(self, kind: str, period: str, limit: int) -> list[LeaderboardMember]:
        """FEED-P5: read all counts of a period. Return the first `limit` members, best first."""
        parts = [self._best_of(kind, partition, limit) for partition in keys.counter_partitions(kind, period)]
        return _best([member for part in await asyncio.gather(*parts) for member in part], limit)

    async def _best_of(self, kind: str, partition: str, limit: int) -> list[LeaderboardMember]:
        best: list[LeaderboardMember] = []
        async for items in self._store.query_pages(keys.ALL_COUNTERS, {"partition": partition}):
            counted = [_member_from(kind, Key(item["PK"], item["SK"]), item) for item in items]
            best = _best([*best, *counted], limit)
        return best

    async def put(self, snapshot: LeaderboardSnapshot) -> bool:
        """FEED-P5: store a snapshot. Return False if another writer stored one of this version before."""
        written = await self._store.put(keys.PUT_BOARD, _item_of(snapshot), version=snapshot.version - 1)
        # After an ambiguous write the stored snapshot may be this one.
        return written.ok or (written.is_retry and written.item == _item_of(snapshot))


def _best(members: list[LeaderboardMember], limit: int) -> list[LeaderboardMember]:
    return nsmallest(limit, (member for member in members if member.score > 0), key=lambda member: member.rank)


def _member_from(kind: str, key: Key, item: Mapping[str, Any]) -> LeaderboardMember:
    # A count is below 0 if its decrement was applied while the increment is a dead letter.
    counts = {name: max(0, int(item.get(name, 0))) for name in COUNTS[kind]}
    return LeaderboardMember(keys.counter_parts(key)[2], counts[SCORE[kind]], counts)


def _snapshot_from(kind: str, period: str, item: Item) -> LeaderboardSnapshot:
    members = tuple(
        LeaderboardMember(entry["name"], int(entry[SCORE[kind]]), {name: int(entry[name]) for name in COUNTS[kind]})
        for entry in item["members"]
    )
    bound = (-int(item["floor"]), item["floor_name"]) if item["floor"] else None
    return LeaderboardSnapshot(kind, period, int(item["version"]), members, bound)


def _item_of(snapshot: LeaderboardSnapshot) -> Item:
    """Return the item of a snapshot. `floor` and `floor_name` are its bound."""
    key = keys.board(snapshot.kind, snapshot.period)
    item: Item = {
        "PK": key.partition,
        "SK": key.sort,
        "version": snapshot.version,
        "members": [{"name": member.name, **member.counts} for member in snapshot.members],
        "floor": 0,
    }
    if snapshot.bound is not None:
        item |= {"floor": -snapshot.bound[0], "floor_name": snapshot.bound[1]}
    expires_at = period_expiry(snapshot.kind, snapshot.period)
    return item if expires_at is None else item | {"expiresAt": to_seconds(expires_at)}
