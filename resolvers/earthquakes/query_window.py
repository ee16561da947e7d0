"""The arguments of queries for earthquakes: ranges of times, and the factors of their cost.

Cost factors are computed from the unvalidated arguments, which may have any type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

import strawberry
from strawberry.exceptions import StrawberryInputCoercionError

from datastore.earthquakes.events import EARLIEST_MS, SeismicEventKind
from datastore.errors import BadUserInput
from datastore.model.timestamps import from_epoch_ms
from datastore.session.pagination import SPARSE_AFTER
from resolvers.shared import validation as validate
from resolvers.shared.arguments import argument

DEFAULT_WINDOW = timedelta(days=30)
LONGEST_WINDOW = timedelta(days=3_660)
EARLIEST = from_epoch_ms(EARLIEST_MS)
SMALLEST_MAGNITUDE, LARGEST_MAGNITUDE = -2, 10
# The maximum number of events read per event of a page. With more, the query reads all events of a month anyway.
MAX_SCANNED = 250.0

From = Annotated[
    datetime | None,
    strawberry.argument(
        name="from",
        description="The earliest time, inclusive, at most 3,660 days before `to`; by default the time 30 days before "
        "`to`.",
    ),
]
To = Annotated[datetime | None, argument("The latest time, inclusive; by default the present time.")]


@dataclass(frozen=True, slots=True)
class Window:
    """A time window, both ends inclusive, to the millisecond."""

    start: datetime
    end: datetime


def window_of(now: datetime, from_: datetime | None, to: datetime | None) -> Window:
    """Return the window of a query's arguments. Raises `BadUserInput` naming the invalid argument."""
    end = now if to is None else checked_time("to", to)
    start = max(end - DEFAULT_WINDOW, EARLIEST) if from_ is None else checked_time("from", from_)
    if start > end:
        raise BadUserInput("`from` must not be after `to`.", field="from")
    if end - start > LONGEST_WINDOW:
        raise BadUserInput(f"`from` may be at most {LONGEST_WINDOW.days} days before `to`.", field="from")
    return Window(start, end)


def window_of_days(now: datetime, from_: date | None, to: date | None) -> Window:
    """Return the window of whole UTC days. Raises `BadUserInput` naming the invalid argument."""
    first = None if from_ is None else datetime.combine(from_, time(), UTC)
    window = window_of(now, first, datetime.combine(to or now, time(), UTC))
    return Window(window.start, window.end.replace(hour=23, minute=59, second=59, microsecond=999_000))


def days_between(arguments: Mapping[str, Any], now: datetime) -> float:
    """Return the number of index partitions: one per day, and those of the statistics by which days are skipped.

    The statistics have one item and one partition per year. Invalid arguments count as the longest window.
    """
    days = days_of_window(arguments, now)
    return days if days <= 2 * SPARSE_AFTER else days + 3 + days // 366


def days_of_window(arguments: Mapping[str, Any], now: datetime) -> float:
    """Return the number of days of the window, from the unvalidated arguments."""
    try:
        end = parse_time(arguments.get("to")) or now
        start = parse_time(arguments.get("from")) or end - DEFAULT_WINDOW
    except (StrawberryInputCoercionError, OverflowError):
        return 1.0 + LONGEST_WINDOW.days
    return 1.0 + min(max((end.date() - start.date()).days, 0), LONGEST_WINDOW.days)


def events_scanned_for_one(arguments: Mapping[str, Any]) -> float:
    """Return the events read per event of the minimum magnitude: 7 for 2.5 and 42 for 4.5, as in USGS's catalog.

    The maximum is `MAX_SCANNED`, which is also the factor for events other than earthquakes.
    """
    if kind_of(arguments) is SeismicEventKind.OTHER:
        return MAX_SCANNED
    minimum = arguments.get("minMagnitude")
    if isinstance(minimum, bool) or not isinstance(minimum, int | float) or not minimum > 0:
        return 1.0
    return float(max(1.0, min(10 ** (0.4 * min(minimum, LARGEST_MAGNITUDE)) / 1.5, MAX_SCANNED)))


def kind_of(arguments: Mapping[str, Any]) -> SeismicEventKind | None:
    """Return the kind of events, or None for a value that the field rejects."""
    kind = arguments.get("kind", SeismicEventKind.EARTHQUAKE)
    return SeismicEventKind(kind) if isinstance(kind, str) and kind in SeismicEventKind.__members__ else None


def parse_time(argument: object) -> datetime | None:
    """Return the UTC time of an unvalidated argument.

    Raises `StrawberryInputCoercionError` like the scalar DateTime, or `OverflowError`.
    """
    return None if argument is None else validate.parse_timestamp(argument).astimezone(UTC)


def checked_time(name: str, time: datetime) -> datetime:
    """Return the time in UTC. Raises `BadUserInput` for a year before 1000."""
    try:
        utc = time.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or utc < EARLIEST:
        raise BadUserInput(f"`{name}` must lie in the years 1000 to 9999 (UTC).", field=name)
    return utc
