"""Leaderboards: the top authors of a month, and the trending tags of an hour or a day.

Each leaderboard is a snapshot in one item, computed from counters: posts, likes and comments of an author by month, and
posts with a tag by hour and day. A post, like or comment counts in the month of its own time. The tags of a post count
in its hour and day. Periods are in UTC.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from heapq import nsmallest
from typing import Any, Literal

from datastore.change_streams.exactly_once import Write
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.items.repository import Repository
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store

MIN_ELAPSED = timedelta(minutes=1)  # a window that has just begun says little about an hour
HOUR = timedelta(hours=1)
HOUR_LIFETIME = timedelta(hours=1, days=3)  # from the start of the period
DAY_LIFETIME = timedelta(days=1 + 60)

Counted = Literal["posts", "likes", "comments"]
COUNTS = {keys.AUTHORS: ("posts", "likes", "comments", "score"), keys.TAGS: ("posts",)}
SCORE = {keys.AUTHORS: "score", keys.TAGS: "posts"}

Rank = tuple[int, str]


class TagPeriod(StrEnum):
    """A calendar period in UTC in which the posts with a tag are counted."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return HOUR if self is TagPeriod.HOUR else timedelta(days=1)

    def start(self, at: datetime) -> datetime:
        """Return the start of the period that contains `at`, a time in UTC."""
        hour = at.replace(minute=0, second=0, microsecond=0)
        return hour if self is TagPeriod.HOUR else hour.replace(hour=0)

    def key_of(self, at: datetime) -> str:
        """Return the period that contains `at` in the form of keys: `2026-06-25T14` or `2026-06-25`."""
        return at.strftime("%Y-%m-%dT%H" if self is TagPeriod.HOUR else "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class AuthorRank:
    """An author's rank in a month. The score is the number of public posts, plus the likes and comments on them."""

    rank: int
    #: Such as `2026-06`.
    month: str
    author_id: str
    posts: int
    likes: int
    comments: int
    score: int


@dataclass(frozen=True, slots=True)
class TagTrend:
    """A tag's rank in a period by its public posts. `velocity` is in posts per hour of the elapsed time."""

    rank: int
    #: The period, such as `2026-06-25T14` or `2026-06-25`.
    period: str
    tag: str
    posts: int
    velocity: float


class Leaderboards(Repository):
    """One method for each access pattern."""

    async def top_authors(self, month: str, top: int, pattern: AccessPattern = keys.TOP_AUTHORS) -> list[AuthorRank]:
        """FEED-010: return the first `top` authors of a month (`2026-06`), best first.

        `pattern` may be one that reads consistently.
        """
        board = await self._store.get(pattern, keys.board(keys.AUTHORS, month))
        return readable_records(partial(_author_rank, month), self._ranked(board, top))

    async def trending_tags(
        self, period: TagPeriod, at: datetime, top: int, pattern: AccessPattern = keys.TRENDING_TAGS
    ) -> list[TagTrend]:
        """FEED-010: return the first `top` tags of the hour or day that contains `at` (in UTC), most posts first.

        `pattern` may be one that reads consistently.
        """
        key = period.key_of(at)
        board = await self._store.get(pattern, keys.board(keys.TAGS, key))
        elapsed = max(MIN_ELAPSED, min(self._now - period.start(at), period.length))
        return readable_records(partial(_tag_trend, key, elapsed / HOUR), self._ranked(board, top))

    def _ranked(self, board: Item | None, top: int) -> list[Item]:
        """Return the first members of a leaderboard, each with its rank."""
        if board is None:
            return []
        return [{**member, "rank": rank} for rank, member in enumerate(board["members"][:top], start=1)]


def _author_rank(month: str, member: Mapping[str, Any]) -> AuthorRank:
    posts, likes, comments = (int(member.get(name, 0)) for name in ("posts", "likes", "comments"))
    return AuthorRank(member["rank"], month, member["name"], posts, likes, comments, int(member["score"]))


def _tag_trend(period: str, hours: float, member: Mapping[str, Any]) -> TagTrend:
    posts = int(member["posts"])
    return TagTrend(member["rank"], period, member["name"], posts, posts / hours)


def author_month(author_id: str, moment: datetime, counted: Counted, step: int) -> Write:
    """Return the write that adds `step` (1 or -1) to a counter of an author, and to the score."""
    key = keys.counters_of(keys.AUTHORS, month_of(moment), author_id)
    return Write(FEED_METRICS, key, add={counted: step, "score": step})


def month_of(moment: datetime) -> str:
    """Return the month of a time: `2026-06`."""
    return iso(moment)[:7]


def tag_windows(tags: Iterable[str], moment: datetime, step: int, now: datetime) -> list[Write]:
    """Return the writes that add `step` to the posts of each tag, except in windows whose counts have expired."""
    periods = [(period, expires_at) for period, expires_at in _windows_of(moment) if expires_at > now]
    return [
        Write(
            FEED_METRICS,
            keys.counters_of(keys.TAGS, period, tag),
            add={"posts": step},
            set={"expiresAt": to_seconds(expires_at)},
        )
        for period, expires_at in periods
        for tag in dict.fromkeys(tags)
    ]


def _windows_of(moment: datetime) -> list[tuple[str, datetime]]:
    """Return the hour and the day that contain a time, each with the time at which its counts expire."""
    periods = [period.key_of(moment) for period in TagPeriod]
    return [(period, expires) for period in periods if (expires := period_expiry(keys.TAGS, period)) is not None]


def period_expiry(kind: str, period: str) -> datetime | None:
    """Return the time at which the counts and the leaderboard of a period expire. Months never expire."""
    if kind == keys.AUTHORS:
        return None
    if "T" in period:
        return from_iso(f"{period}:00Z") + HOUR_LIFETIME
    return from_iso(f"{period}T00:00Z") + DAY_LIFETIME


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
        counts = [keys.counters_of(kind, period, name) for name in names]
        for key in counts:
            self._store.invalidate(FEED_METRICS, key)
        items = await asyncio.gather(*[self._store.get(keys.COUNTERS, key) for key in counts])
        return [_member_from(kind, key, item or {}) for key, item in zip(counts, items, strict=True)]

    async def best(self, kind: str, period: str, limit: int) -> list[LeaderboardMember]:
        """FEED-P5: read all counts of a period. Return the first `limit` members, best first."""
        shards = [keys.counters.values_of(kind, period, str(number)) for number in range(keys.SHARDS)]
        parts = [self._best_of(kind, values, limit) for values in shards]
        return _best([member for part in await asyncio.gather(*parts) for member in part], limit)

    async def _best_of(self, kind: str, values: Mapping[str, str], limit: int) -> list[LeaderboardMember]:
        best: list[LeaderboardMember] = []
        async for items in self._store.query_pages(keys.ALL_COUNTERS, values):
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
    return LeaderboardMember(keys.counters.parts(key)[-1], counts[SCORE[kind]], counts)


def _snapshot_from(kind: str, period: str, item: Item) -> LeaderboardSnapshot:
    members = tuple(
        LeaderboardMember(entry["name"], int(entry[SCORE[kind]]), {name: int(entry[name]) for name in COUNTS[kind]})
        for entry in item["members"]
    )
    bound = (-int(item["floor"]), item["floor_name"]) if item["floor"] else None
    return LeaderboardSnapshot(kind, period, int(item["version"]), members, bound)


def _item_of(snapshot: LeaderboardSnapshot) -> Item:
    """Return the item of a snapshot. `floor` and `floor_name` are its bound."""
    item: Item = {
        **keys.board.item(snapshot.kind, snapshot.period),
        "version": snapshot.version,
        "members": [{"name": member.name, **member.counts} for member in snapshot.members],
        "floor": 0,
    }
    if snapshot.bound is not None:
        item |= {"floor": -snapshot.bound[0], "floor_name": snapshot.bound[1]}
    expires_at = period_expiry(snapshot.kind, snapshot.period)
    return item if expires_at is None else item | {"expiresAt": to_seconds(expires_at)}
