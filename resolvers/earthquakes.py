"""Earthquakes and the request log: QUAKE-1 … QUAKE-5 and QUAKE-S1."""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated

import strawberry

from datastore.changes import Change
from datastore.earthquakes import (
    Earthquake,
    IngestSummary,
    LogType,
    RequestLog,
    event_from,
    is_event,
    log_from,
)
from datastore.errors import BadUserInput, DomainError
from datastore.hub import Policy
from datastore.keyspace import earthquakes as keys
from datastore.moments import iso
from datastore.pages import Page
from resolvers.access import require
from resolvers.arguments import After, Before, End, First, Last, MinMagnitude, Start, WhenSlow
from resolvers.connections import Connection, Paging, connection, listing
from resolvers.context import Context, Info
from resolvers.selection import selected_node_fields
from resolvers.subscribing import follow

DEFAULT_WINDOW = timedelta(days=30)
LONGEST_WINDOW = timedelta(days=36_525)
LARGEST_INGEST_SOURCE = 2048
ROUTE = "graphql/earthquakes"

# What a field of the type Earthquake needs of the record.
NEEDS = {
    "id": "event_id",
    "eventId": "event_id",
    "occurredAt": "occurred_at",
    "magnitude": "magnitude",
    "place": "place",
    "latitude": "latitude",
    "longitude": "longitude",
    "depthKm": "depth_km",
    "source": "source",
    "ingestedAt": "ingested_at",
}


@strawberry.input(description="A rectangle on the globe. One that crosses the 180th meridian has `west` above `east`.")
class BoundingBox:
    south: float = strawberry.field(description="Southern edge, degrees latitude, -90 to 90.")
    west: float = strawberry.field(description="Western edge, degrees longitude, -180 to 180.")
    north: float = strawberry.field(description="Northern edge, degrees latitude, -90 to 90.")
    east: float = strawberry.field(description="Eastern edge, degrees longitude, -180 to 180.")

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


EventId = Annotated[strawberry.ID, strawberry.argument(description="The id USGS gave the event.")]
Day = Annotated[date | None, strawberry.argument(description="The UTC day of the requests; today if nothing is said.")]
Type = Annotated[LogType | None, strawberry.argument(description="Ingests or queries; both if nothing is said.")]
Feed = Annotated[str, strawberry.argument(description="A USGS feed by name, such as `all_day`, or an http(s) URL.")]
Box = Annotated[
    BoundingBox | None, strawberry.argument(description="Only events in here; everywhere if nothing is said.")
]


async def earthquake(info: Info, event_id: EventId) -> Earthquake | None:
    return await info.context.earthquakes.by_id(event_id)


@dataclass(frozen=True, slots=True)
class Window:
    """The time and magnitude asked for."""

    start: datetime
    end: datetime
    min_magnitude: float | None


async def earthquakes(
    info: Info,
    start: Start = None,
    end: End = None,
    min_magnitude: MinMagnitude = None,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Earthquake]:
    context, began = info.context, time.perf_counter()
    paging = Paging(first, after, last, before)
    window = _window(context.now, start, end, min_magnitude)
    try:
        answer, page = await _earthquakes(info, window, paging, (start, end))
    except DomainError as problem:
        _log(context, window, paging, began, None, problem.extensions["code"])
        raise
    _log(context, window, paging, began, page, None)
    return answer


async def _earthquakes(
    info: Info, window: Window, paging: Paging, given: tuple[datetime | None, datetime | None]
) -> tuple[Connection[Earthquake], Page]:
    bound = [None if moment is None else iso(moment) for moment in given]
    of = listing(
        info.context.services.cursors,
        keys.EVENTS_BY_DAY,
        "Query.earthquakes",
        {"window": bound, "minMagnitude": window.min_magnitude},
    )
    fields = frozenset(NEEDS[name] for name in selected_node_fields(info) if name in NEEDS)
    page = await info.context.earthquakes.between(
        window.start, window.end, of.span(paging), min_magnitude=window.min_magnitude, fields=fields
    )
    return connection(of, page, lambda item: event_from(item, fields)), page


def _window(now: datetime, start: datetime | None, end: datetime | None, min_magnitude: float | None) -> Window:
    end = _aware("end", end) or now
    start = _aware("start", start) or end - DEFAULT_WINDOW
    if start > end:
        raise BadUserInput("`start` must not be after `end`.", field="start")
    if end - start > LONGEST_WINDOW:
        raise BadUserInput(f"The window may span at most {LONGEST_WINDOW.days} days.", field="start")
    return Window(start, end, min_magnitude)


def _aware(name: str, moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise BadUserInput(f"`{name}` needs an offset from UTC, such as 2026-06-25T14:30:00Z.", field=name)
    return moment


def _log(context: Context, window: Window, paging: Paging, began: float, page: Page | None, error: str | None) -> None:
    context.services.request_logs.add(
        RequestLog(
            log_type=LogType.QUERY,
            request_id=context.services.new_id(),
            timestamp=context.now,
            route=ROUTE,
            status=200 if error is None else 400,
            latency_ms=round((time.perf_counter() - began) * 1000),
            start_time=window.start,
            end_time=window.end,
            min_magnitude=window.min_magnitude,
            page_size=paging.first or paging.last,
            result_count=None if page is None else len(page.items),
            has_next_token=None if page is None else page.has_next,
            buckets_scanned=None if page is None else page.partitions,
            error=error,
        )
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
    bucket = f"{day or context.now.date():%Y%m%d}"
    arguments = {"day": bucket, "type": type}
    of = listing(context.services.cursors, keys.LOGS_OF_DAY, "Query.requestLogs", arguments)
    page = await context.earthquakes.logs_of(bucket, of.span(Paging(first, after, last, before)), type)
    return connection(of, page, log_from)


async def ingest_earthquakes(info: Info, feed: Feed) -> IngestSummary:
    require(info.context.identity, keys.INSERT_EVENT)
    if len(feed) > LARGEST_INGEST_SOURCE:
        raise BadUserInput(f"`feed` may have at most {LARGEST_INGEST_SOURCE} characters.", field="feed")
    return await info.context.services.ingest(feed)


async def earthquake_detected(
    info: Info,
    min_magnitude: MinMagnitude = None,
    bounding_box: Box = None,
    when_slow: WhenSlow = Policy.DISCONNECT,
) -> AsyncGenerator[Earthquake, None]:
    if bounding_box is not None:
        bounding_box.check()

    def detected(change: Change) -> Earthquake | None:
        if change.kind != "INSERT" or change.new is None or not is_event(change.keys):
            return None
        event = event_from(change.new)
        strong = min_magnitude is None or event.magnitude >= min_magnitude
        near = bounding_box is None or bounding_box.holds(event.latitude, event.longitude)
        return event if strong and near else None

    return follow(info.context, keys.EARTHQUAKES, detected, when_slow, key=lambda event: event.event_id)


@dataclass(frozen=True, slots=True)
class Rejected:
    """How many events were rejected for one reason."""

    reason: str
    count: int


def rejected(parent: strawberry.Parent[IngestSummary]) -> list[Rejected]:
    return [Rejected(reason, count) for reason, count in sorted(parent.rejected.items())]
