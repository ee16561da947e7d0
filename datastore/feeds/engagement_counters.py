"""What is counted by month and by hour: how much authors wrote and were answered, and which tags were used.

A thing counts in the month of its own moment, a post's tags in the hour and the day it was written in, all UTC.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from datastore.change_streams.exactly_once import Write
from datastore.feeds.leaderboards import TagWindow
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.model.timestamps import from_iso, iso, to_seconds

HOUR_KEPT = timedelta(hours=1, days=3)  # from its beginning on, as for the day
DAY_KEPT = timedelta(days=1 + 60)

Counted = Literal["posts", "likes", "comments"]


def author_month(author_id: str, moment: datetime, counted: Counted, step: int) -> Write:
    """One more (`step` 1) or one less (-1) of what an author's score is made of."""
    key = keys.count(keys.AUTHORS, month_of(moment), author_id)
    return Write(FEED_METRICS, key, add={counted: step, "score": step})


def month_of(moment: datetime) -> str:
    """The month that a moment counts in: `2026-06`."""
    return iso(moment)[:7]


def tag_windows(tags: Iterable[str], moment: datetime, step: int, now: datetime) -> list[Write]:
    """One post more or less for each tag; nothing for a window whose counts have expired by now."""
    periods = [(period, until) for period, until in _windows_of(moment) if until > now]
    return [
        Write(
            FEED_METRICS,
            keys.count(keys.TAGS, period, tag),
            add={"posts": step},
            set={"expiresAt": to_seconds(until)},
        )
        for period, until in periods
        for tag in dict.fromkeys(tags)
    ]


def _windows_of(moment: datetime) -> list[tuple[str, datetime]]:
    """The hour and the day a moment lies in, each with the moment until which it is kept."""
    periods = [window.period(moment) for window in TagWindow]
    return [(period, until) for period in periods if (until := kept_until(keys.TAGS, period)) is not None]


def kept_until(kind: str, period: str) -> datetime | None:
    """When the counts and the board of a period expire; those of months stay."""
    if kind == keys.AUTHORS:
        return None
    if "T" in period:
        return from_iso(f"{period}:00Z") + HOUR_KEPT
    return from_iso(f"{period}T00:00Z") + DAY_KEPT
