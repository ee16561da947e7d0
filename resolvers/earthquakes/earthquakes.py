"""Earthquakes: QUAKE-1, QUAKE-2, QUAKE-5 and QUAKE-S1."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

import strawberry

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader
from datastore.earthquakes.earthquakes import IngestSummary
from datastore.earthquakes.events import (
    MAX_EVENT_ID,
    Earthquake,
    SeismicEventKind,
    event_from,
    event_with,
    is_event,
)
from datastore.errors import BadUserInput
from datastore.keyspace import earthquakes as keys
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE
from datastore.model.timestamps import epoch_ms, iso
from resolvers.earthquakes.query_window import LARGEST_MAGNITUDE, checked_time, window_of
from resolvers.earthquakes.request_logs import LoggedQuery, logged
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, Buffer, End, First, Last, MinMagnitude, Start, WhenSlow
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.event_source import follow, queue_limits
from resolvers.shared.paging import Connection
from resolvers.shared.selected_fields import selected_node_fields

RECENT_MS = 24 * 3_600_000
LARGEST_INGEST_SOURCE = 1024
# The cost model of `earthquakes`.
EARTHQUAKE_COSTS = "earthquakes"
# The attribute of the record that each field of the type Earthquake needs.
RECORD_FIELDS = {
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
        """Raise `BadUserInput`, which names the edge, for an edge off the globe."""
        for name, value, bound in (
            ("south", self.south, 90),
            ("north", self.north, 90),
            ("west", self.west, 180),
            ("east", self.east, 180),
        ):
            if not -bound <= value <= bound:
                raise BadUserInput(f"`boundingBox.{name}` must be between -{bound} and {bound}.", field=name)
        if self.south > self.north:
            raise BadUserInput("`boundingBox.south` must not be north of `north`.", field="south")

    def contains(self, latitude: float, longitude: float) -> bool:
        if not self.south <= latitude <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= longitude <= self.east
        return longitude >= self.west or longitude <= self.east


EventId = Annotated[strawberry.ID, strawberry.argument(description="The id that USGS gave the event.")]
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
    if not 1 <= len(event_id) <= MAX_EVENT_ID:
        raise BadUserInput(f"`eventId` must have 1 to {MAX_EVENT_ID} characters.", field="eventId")
    return await info.context.earthquakes.by_id(event_id)


async def latest(parent: strawberry.Parent[Earthquake], info: Info) -> Earthquake | None:
    return await info.context.earthquakes.latest(parent.event_id)


async def revisions(parent: strawberry.Parent[Earthquake], info: Info) -> list[Earthquake]:
    return await info.context.earthquakes.revisions(parent.event_id)


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
    context, paging = info.context, (first, after, last, before)
    with logged(context, LoggedQuery(first or last or DEFAULT_PAGE_SIZE)) as query:
        query.window = window = window_of(context.now, start, end)
        query.min_magnitude = minimum = _magnitude(min_magnitude)
        fields = frozenset(RECORD_FIELDS[name] for name in selected_node_fields(info) if name in RECORD_FIELDS)
        connection = Connection(
            context.services.cursors,
            keys.EVENTS_BY_DAY,
            "Query.earthquakes",
            {"window": [start and iso(window.start), end and iso(window.end)], "minMagnitude": minimum, "kind": kind},
            event_with(fields),
        )
        query.page = await context.earthquakes.between(
            window.start, window.end, connection.span(*paging), min_magnitude=minimum, kind=kind, fields=fields
        )
        return connection.of(query.page)


def _magnitude(minimum: float | None) -> float | None:
    if minimum is None:
        return None
    if not -LARGEST_MAGNITUDE <= minimum <= LARGEST_MAGNITUDE:
        limits = f"-{LARGEST_MAGNITUDE} and {LARGEST_MAGNITUDE}"
        raise BadUserInput(f"`minMagnitude` must be between {limits}.", field="minMagnitude")
    return round(minimum, 12)  # DynamoDB rejects tiny numbers, such as 1e-200


async def ingest_earthquakes(info: Info, feed: Feed) -> IngestSummary:
    require(info.context.identity, keys.INSERT_EVENT)
    _check_feed(feed)
    return await info.context.services.ingest(feed)


def _check_feed(feed: str) -> None:
    """Raise `BadUserInput` for a URL other than http(s) without a user. The ingest checks names and hosts."""
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
        raise BadUserInput("`feed` must be a name, or an http(s) URL without a user name.", field="feed")


async def earthquake_detected(
    info: Info,
    min_magnitude: MinMagnitude = None,
    bounding_box: Box = None,
    kind: Kind = SeismicEventKind.EARTHQUAKE,
    since: Since = None,
    when_slow: WhenSlow = keys.DETECTED.default_policy,
    buffer: Buffer = None,
) -> SharedSource[Earthquake]:
    minimum = _magnitude(min_magnitude)
    if bounding_box is not None:
        bounding_box.check()
    limits = queue_limits(when_slow, buffer)
    earliest = None if since is None else epoch_ms(checked_time("since", since))

    def detected(change: Change) -> Earthquake | None:
        if change.kind != "INSERT" or change.new is None or not is_event(change.new):
            return None
        event = event_from(change.new)
        strong = minimum is None or event.magnitude >= minimum
        near = bounding_box is None or bounding_box.contains(event.latitude, event.longitude)
        # Compare with the time of storing, not of delivery: a client that resumes receives the same events as others.
        recent = event.occurred_at_ms >= (event.ingested_at_ms - RECENT_MS if earliest is None else earliest)
        return event if strong and near and recent and kind.holds(event) else None

    def events(reader: SourceReader[Earthquake]) -> AsyncGenerator[Earthquake, None]:
        return follow(info.context, keys.EARTHQUAKES, detected, limits, reader=reader)

    return SharedSource(info.context, limits, events)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The number of events that were rejected for one reason."""

    reason: str
    count: int


def rejected(parent: strawberry.Parent[IngestSummary]) -> list[Rejected]:
    return [Rejected(reason, count) for reason, count in sorted(parent.rejected.items())]
