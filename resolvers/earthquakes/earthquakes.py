"""Earthquakes and the request log: QUAKE-1 … QUAKE-5 and QUAKE-S1."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit

import strawberry
from strawberry.exceptions import StrawberryInputCoercionError

from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.earthquakes.earthquakes import LOG_WRITE_UNITS, IngestSummary, LogType, RequestLog, log_from
from datastore.earthquakes.events import (
    EARLIEST_MS,
    LONGEST_EVENT_ID,
    Earthquake,
    SeismicEventKind,
    event_from,
    event_with,
    is_event,
)
from datastore.errors import BadCursor, BadUserInput, DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.keyspace import earthquakes as keys
from datastore.model.access_patterns import DEFAULT_PAGE
from datastore.model.composite_keys import split
from datastore.model.timestamps import epoch_ms, from_epoch_ms, iso
from datastore.session.pagination import SPARSE_AFTER, Page
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, Buffer, End, First, Last, MinMagnitude, Start, WhenSlow
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, queue_limits
from resolvers.shared.paging import Connection, Listing, Paging, connection
from resolvers.shared.selected_fields import selected_node_fields

DEFAULT_WINDOW = timedelta(days=30)
LONGEST_WINDOW = timedelta(days=3_660)
EARLIEST = from_epoch_ms(EARLIEST_MS)
LARGEST_MAGNITUDE = 10
# The most events that a query reads for each event of its page: with more, it reads all events of a month anyway.
MOST_SCANNED = 250.0
RECENT_MS = 24 * 3_600_000
LARGEST_INGEST_SOURCE = 1024
# The cost model of `earthquakes`.
EARTHQUAKE_COSTS = "earthquakes"
ROUTE = "graphql/earthquakes"
CANCELLED = "CANCELLED"
# The HTTP status that a request log has for a code.
STATUS = {
    BadUserInput.code: 400,
    BadCursor.code: 400,
    CANCELLED: 499,
    Throttled.code: 503,
    Unavailable.code: 503,
    Timeout.code: 504,
}

REFUSALS = (BadUserInput.code, BadCursor.code)

# What a field of the type Earthquake needs of the record.
NEEDS = {
    "id": "event_id",
    "eventId": "event_id",
    "occurredAt": "occurred_at_ms",
    "magnitude": "magnitude",
    "place": "place",
    "latitude": "latitude",
    "longitude": "longitude",
    "depthKm": "depth_km",
    "source": "source",
    "ingestedAt": "ingested_at_ms",
    "type": "type",
    "status": "status",
    "updatedAt": "updated_at_ms",
    "alert": "alert",
    "tsunami": "tsunami",
    "significance": "significance",
    "url": "url",
    "latest": "event_id",
    "revisions": "event_id",
}


@strawberry.input(
    description="A rectangle on the globe. If it crosses the 180th meridian, `west` is greater than `east`."
)
class BoundingBox:
    south: float = strawberry.field(description="The latitude of the southern edge in degrees, -90 to 90.")
    west: float = strawberry.field(description="The longitude of the western edge in degrees, -180 to 180.")
    north: float = strawberry.field(description="The latitude of the northern edge in degrees, -90 to 90.")
    east: float = strawberry.field(description="The longitude of the eastern edge in degrees, -180 to 180.")

    def check(self) -> None:
        """Raise `BadUserInput` naming the edge that is off the globe."""
        for name, value, bound in (
            ("south", self.south, 90),
            ("north", self.north, 90),
            ("west", self.west, 180),
            ("east", self.east, 180),
        ):
            if not -bound <= value <= bound:
                raise BadUserInput(f"`boundingBox.{name}` must be between -{bound} and {bound}.", field=name)
        if self.south > self.north:
            raise BadUserInput("`boundingBox.south` must not be above `north`.", field="south")

    def holds(self, latitude: float, longitude: float) -> bool:
        if not self.south <= latitude <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= longitude <= self.east
        return longitude >= self.west or longitude <= self.east


EventId = Annotated[strawberry.ID, strawberry.argument(description="The id that USGS gave the event.")]
Day = Annotated[date | None, strawberry.argument(description="The UTC day of the requests; by default today.")]
Type = Annotated[LogType | None, strawberry.argument(description="The kind of requests; by default both.")]
Feed = Annotated[
    str, strawberry.argument(description="The feed: the name of a USGS feed, such as `all_day`, or an http(s) address.")
]
Kind = Annotated[
    SeismicEventKind,
    strawberry.argument(
        description="The kind of events: EARTHQUAKE, OTHER (such as quarry blasts, explosions and ice quakes), or "
        "ANY. The field `type` is USGS's type of an event."
    ),
]
Since = Annotated[
    datetime | None,
    strawberry.argument(
        description="The earliest time of an event. By default, events are sent that were at most 24 hours old "
        "when they were stored, so the ingestion of an old feed sends no events."
    ),
]
Box = Annotated[
    BoundingBox | None, strawberry.argument(description="The area of the events; by default the whole globe.")
]


async def earthquake(info: Info, event_id: EventId) -> Earthquake | None:
    if not 1 <= len(event_id) <= LONGEST_EVENT_ID:
        raise BadUserInput(f"`eventId` must have 1 to {LONGEST_EVENT_ID} characters.", field="eventId")
    return await info.context.earthquakes.by_id(event_id)


async def latest(parent: strawberry.Parent[Earthquake], info: Info) -> Earthquake | None:
    return await info.context.earthquakes.latest(parent.event_id)


async def revisions(parent: strawberry.Parent[Earthquake], info: Info) -> list[Earthquake]:
    return await info.context.earthquakes.revisions(parent.event_id)


@dataclass(frozen=True, slots=True)
class Window:
    """The times asked for, both included. Times count to the millisecond."""

    start: datetime
    end: datetime


@dataclass(slots=True)
class Asked:
    """What a request log tells of a query; what is not known, or was refused, is None."""

    page_size: int | None = None
    window: Window | None = None
    min_magnitude: float | None = None
    page: Page | None = None
    route: str = ROUTE


async def earthquakes(
    info: Info,
    start: Start = None,
    end: End = None,
    min_magnitude: MinMagnitude = None,
    kind: Kind = SeismicEventKind.EARTHQUAKE,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Earthquake]:
    context, paging = info.context, Paging(first, after, last, before)
    with logged(context, Asked(first or last or DEFAULT_PAGE)) as asked:
        asked.window = window = window_of(context.now, start, end)
        asked.min_magnitude = least = _magnitude(min_magnitude)
        listing = Listing(
            context.services.cursors,
            keys.EVENTS_BY_DAY,
            "Query.earthquakes",
            {"window": [start and iso(window.start), end and iso(window.end)], "minMagnitude": least, "kind": kind},
        )
        fields = frozenset(NEEDS[name] for name in selected_node_fields(info) if name in NEEDS)
        asked.page = await context.earthquakes.between(
            window.start, window.end, listing.span(paging), min_magnitude=least, kind=kind, fields=fields
        )
        return connection(listing, asked.page, event_with(fields))


def window_of(now: datetime, start: datetime | None, end: datetime | None) -> Window:
    """Return the window of a query's arguments. Raises `BadUserInput` naming the invalid argument."""
    until = now if end is None else _moment("end", end)
    since = max(until - DEFAULT_WINDOW, EARLIEST) if start is None else _moment("start", start)
    if since > until:
        raise BadUserInput("`start` must not be after `end`.", field="start")
    if until - since > LONGEST_WINDOW:
        raise BadUserInput(f"`start` may be at most {LONGEST_WINDOW.days} days before `end`.", field="start")
    return Window(since, until)


def days_between(arguments: Mapping[str, Any], now: datetime) -> float:
    """How many days, and so index partitions, the arguments reach over. They are as they came, whatever they are.

    The count includes the statistics by which the query skips days: one item, and one partition for each year.

    They are read as the scalar DateTime is. What cannot be read counts as the longest window.
    """
    days = days_of_window(arguments, now)
    return days if days <= 2 * SPARSE_AFTER else days + 3 + days // 366


def days_of_window(arguments: Mapping[str, Any], now: datetime) -> float:
    """Return the number of days of the window, by the unvalidated arguments."""
    try:
        until = given_moment(arguments.get("end")) or now
        since = given_moment(arguments.get("start")) or until - DEFAULT_WINDOW
    except (StrawberryInputCoercionError, OverflowError):
        return 1.0 + LONGEST_WINDOW.days
    return 1.0 + min(max((until.date() - since.date()).days, 0), LONGEST_WINDOW.days)


def scanned_for_one(arguments: Mapping[str, Any]) -> float:
    """How many events are read for each of the asked magnitude: 7 for 2.5, 42 for 4.5, as measured in USGS's catalog.

    At most `MOST_SCANNED`, which counts for events other than earthquakes as well.
    """
    if kind_of(arguments) is SeismicEventKind.OTHER:
        return MOST_SCANNED
    least = arguments.get("minMagnitude")
    if isinstance(least, bool) or not isinstance(least, int | float) or not least > 0:
        return 1.0
    return float(max(1.0, min(10 ** (0.4 * min(least, LARGEST_MAGNITUDE)) / 1.5, MOST_SCANNED)))


def kind_of(arguments: Mapping[str, Any]) -> SeismicEventKind | None:
    """Return the kind that the arguments ask for; None for a value that the field refuses."""
    kind = arguments.get("kind", SeismicEventKind.EARTHQUAKE)
    return SeismicEventKind(kind) if isinstance(kind, str) and kind in SeismicEventKind.__members__ else None


def given_moment(argument: object) -> datetime | None:
    """Return the moment in UTC of an unvalidated argument.

    Raises `StrawberryInputCoercionError` like the scalar DateTime, or `OverflowError`.
    """
    return None if argument is None else validate.parse_timestamp(argument).astimezone(UTC)


def _moment(name: str, moment: datetime) -> datetime:
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or utc < EARLIEST:
        raise BadUserInput(f"`{name}` must lie in the years 1000 to 9999 (UTC).", field=name)
    return utc


def _magnitude(least: float | None) -> float | None:
    if least is None:
        return None
    if not -LARGEST_MAGNITUDE <= least <= LARGEST_MAGNITUDE:
        limits = f"-{LARGEST_MAGNITUDE} and {LARGEST_MAGNITUDE}"
        raise BadUserInput(f"`minMagnitude` must be between {limits}.", field="minMagnitude")
    return round(least, 12)  # DynamoDB refuses numbers that are tiny, such as 1e-200


@contextmanager
def logged(context: Context, asked: Asked) -> Iterator[Asked]:
    """Write one request log in the end, however it ends; of fields that are refused for what they ask, one for all."""
    began, error = time.perf_counter(), None
    try:
        yield asked
    except DomainError as problem:
        error = problem.code
        raise
    except asyncio.CancelledError:
        error = CANCELLED
        raise
    except Exception:
        error = Internal.code
        raise
    finally:
        if error not in REFUSALS or not context.has_logged_refusal:
            context.has_logged_refusal |= error in REFUSALS
            log = _log(context, asked, round((time.perf_counter() - began) * 1000), error)
            if context.services.request_logs.add(log):
                context.meter.defer_writes(LOG_WRITE_UNITS)


def _log(context: Context, asked: Asked, latency_ms: int, error: str | None) -> RequestLog:
    window, page = asked.window, asked.page
    return RequestLog(
        log_type=LogType.QUERY,
        request_id=context.services.new_id(),
        timestamp=context.now,
        route=asked.route,
        status=200 if error is None else STATUS.get(error, 500),
        latency_ms=latency_ms,
        start_time=window.start if window else None,
        end_time=window.end if window else None,
        min_magnitude=asked.min_magnitude,
        page_size=asked.page_size,
        result_count=len(page.items) if page else None,
        has_next_token=page.has_next if page else None,
        buckets_scanned=page.partitions if page else None,
        error=error,
    )


async def request_logs(
    info: Info,
    day: Day = None,
    type: Type = None,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[RequestLog]:
    context = info.context
    require(context.identity, keys.LOGS_OF_DAY)
    listing = Listing(context.services.cursors, keys.LOGS_OF_DAY, "Query.requestLogs", {"day": day, "type": type})
    span = listing.span(Paging(first, after, last, before))
    bucket = f"{day or context.now:%Y%m%d}"
    if day is None and span.start is not None:
        # Who pages through today's logs over midnight stays in the day they began with.
        bucket = split(span.start["pk"])[1]
    page = await context.earthquakes.logs_of(bucket, span, type)
    return connection(listing, page, log_from)


async def ingest_earthquakes(info: Info, feed: Feed) -> IngestSummary:
    require(info.context.identity, keys.INSERT_EVENT)
    _check_feed(feed)
    return await info.context.services.ingest(feed)


def _check_feed(feed: str) -> None:
    """Raise `BadUserInput` for what is no plain URL. Which names and hosts are good is for the ingest to know."""
    if len(feed) > LARGEST_INGEST_SOURCE:
        raise BadUserInput(f"`feed` may have at most {LARGEST_INGEST_SOURCE} characters.", field="feed")
    validate.id("feed", feed, LARGEST_INGEST_SOURCE)
    if "://" not in feed:
        return
    try:
        parts = urlsplit(feed)
        is_plain = parts.scheme in ("http", "https") and parts.username is None and parts.port != 0
    except ValueError:
        is_plain = False
    if not is_plain:
        raise BadUserInput("`feed` must be an http(s) URL without a user name, or a name.", field="feed")


async def earthquake_detected(
    info: Info,
    min_magnitude: MinMagnitude = None,
    bounding_box: Box = None,
    kind: Kind = SeismicEventKind.EARTHQUAKE,
    since: Since = None,
    when_slow: WhenSlow = keys.DETECTED.policy,
    buffer: Buffer = None,
) -> SharedSource[Earthquake]:
    least = _magnitude(min_magnitude)
    if bounding_box is not None:
        bounding_box.check()
    kept = queue_limits(when_slow, buffer)
    earliest = None if since is None else epoch_ms(_moment("since", since))

    def detected(change: Change) -> Earthquake | None:
        if change.kind != "INSERT" or change.new is None or not is_event(change.new):
            return None
        event = event_from(change.new)
        strong = least is None or event.magnitude >= least
        near = bounding_box is None or bounding_box.holds(event.latitude, event.longitude)
        # Compare with the time of storing, not of delivery: a resuming client gets the same events as all others.
        recent = event.occurred_at_ms >= (event.ingested_at_ms - RECENT_MS if earliest is None else earliest)
        return event if strong and near and recent and kind.holds(event) else None

    return SharedSource(info.context, kept, lambda _: follow(info.context, keys.EARTHQUAKES, detected, kept))


@dataclass(frozen=True, slots=True)
class Rejected:
    """How many events were rejected for one reason."""

    reason: str
    count: int


def rejected(parent: strawberry.Parent[IngestSummary]) -> list[Rejected]:
    return [Rejected(reason, count) for reason, count in sorted(parent.rejected.items())]
