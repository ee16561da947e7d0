"""Leaderboards: the top authors of a month, and the trending tags of an hour or a day. Each is one item."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.keyspace.feeds import leaderboards as keys
from datastore.session.store import Store

MIN_ELAPSED = timedelta(minutes=1)  # a window that has just begun says little about an hour
HOUR = timedelta(hours=1)


class TagWindow(StrEnum):
    """A time window in UTC in which the posts with a tag are counted."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return HOUR if self is TagWindow.HOUR else timedelta(days=1)

    def start(self, at: datetime) -> datetime:
        """Return the start of the window that contains `at`, a time in UTC."""
        hour = at.replace(minute=0, second=0, microsecond=0)
        return hour if self is TagWindow.HOUR else hour.replace(hour=0)

    def period(self, at: datetime) -> str:
        """Return the window that contains `at` in the form of keys: `2026-06-25T14` or `2026-06-25`."""
        return at.strftime("%Y-%m-%dT%H" if self is TagWindow.HOUR else "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class AuthorRank:
    """An author's rank in a month. The score is the number of public posts, plus the likes and comments on them."""

    rank: int
    author_id: str
    posts: int
    likes: int
    comments: int
    score: int


@dataclass(frozen=True, slots=True)
class TagTrend:
    """A tag's rank in a window by its public posts. `velocity` is in posts per hour of the elapsed time."""

    rank: int
    tag: str
    posts: int
    velocity: float


class Leaderboards:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def top_authors(self, month: str, top: int) -> list[AuthorRank]:
        """FEED-010: return the first `top` authors of a month (`2026-06`), best first."""
        board = await self._store.get(keys.TOP_AUTHORS, keys.board(keys.AUTHORS, month))
        return readable_records(_author_rank, self._ranked(board, top))

    async def trending_tags(self, window: TagWindow, at: datetime, top: int) -> list[TagTrend]:
        """FEED-010: return the first `top` tags of the hour or day that contains `at` (in UTC), most posts first."""
        board = await self._store.get(keys.TRENDING_TAGS, keys.board(keys.TAGS, window.period(at)))
        elapsed = max(MIN_ELAPSED, min(self._now - window.start(at), window.length))
        return readable_records(lambda member: _tag_trend(member, elapsed / HOUR), self._ranked(board, top))

    def _ranked(self, board: Item | None, top: int) -> list[Item]:
        """Return the first members of a leaderboard, each with its rank."""
        if board is None or board.get("expiresAt", float("inf")) <= self._now.timestamp():
            return []
        return [{**member, "rank": rank} for rank, member in enumerate(board["members"][:top], start=1)]


def _author_rank(member: Mapping[str, Any]) -> AuthorRank:
    return AuthorRank(
        rank=member["rank"],
        author_id=member["name"],
        posts=int(member.get("posts", 0)),
        likes=int(member.get("likes", 0)),
        comments=int(member.get("comments", 0)),
        score=int(member["score"]),
    )


def _tag_trend(member: Mapping[str, Any], hours: float) -> TagTrend:
    posts = int(member["posts"])
    return TagTrend(member["rank"], member["name"], posts, posts / hours)
