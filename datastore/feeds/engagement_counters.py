"""Engagement counters: posts, likes and comments of an author by month, and posts with a tag by hour and day.

A post, like or comment counts in the month of its own time. The tags of a post count in its hour and day. Periods are
in UTC.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from datastore.change_streams.exactly_once import Write
from datastore.feeds.leaderboards import TagWindow
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.model.timestamps import from_iso, iso, to_seconds

HOUR_LIFETIME = timedelta(hours=1, days=3)  # from the start of the period
DAY_LIFETIME = timedelta(days=1 + 60)

Counted = Literal["posts", "likes", "comments"]


def author_month(author_id: str, moment: datetime, counted: Counted, step: int) -> Write:
    """Return the write that adds `step` (1 or -1) to a counter of an author, and to the score."""
    key = keys.counters(keys.AUTHORS, month_of(moment), author_id)
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
            keys.counters(keys.TAGS, period, tag),
            add={"posts": step},
            set={"expiresAt": to_seconds(expires_at)},
        )
        for period, expires_at in periods
        for tag in dict.fromkeys(tags)
    ]


def _windows_of(moment: datetime) -> list[tuple[str, datetime]]:
    """Return the hour and the day that contain a time, each with the time at which its counts expire."""
    periods = [window.period(moment) for window in TagWindow]
    return [(period, expires) for period in periods if (expires := period_expiry(keys.TAGS, period)) is not None]


def period_expiry(kind: str, period: str) -> datetime | None:
    """Return the time at which the counts and the leaderboard of a period expire. Months never expire."""
    if kind == keys.AUTHORS:
        return None
    if "T" in period:
        return from_iso(f"{period}:00Z") + HOUR_LIFETIME
    return from_iso(f"{period}T00:00Z") + DAY_LIFETIME
