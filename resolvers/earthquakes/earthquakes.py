"""Earthquakes: QUAKE-1, QUAKE-2, QUAKE-5 and QUAKE-S1."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Unpack
from urllib.parse import urlsplit

import strawberry
from strawberry.utils.str_converters import to_camel_case

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream
from datastore.earthquakes.earthquakes import IngestSummary
from datastore.earthquakes.events import MAX_EVENT_ID, Earthquake, SeismicEventKind
from datastore.errors import BadUserInput
from datastore.keyspace import earthquakes as keys
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE, consistently
from datastore.model.timestamps import epoch_ms, iso
from datastore.session.pagination import SortOrder
from resolvers.earthquakes.query_window import LARGEST_MAGNITUDE, SMALLEST_MAGNITUDE, From, To, checked_time, window_of
from resolvers.earthquakes.request_logs import LoggedQuery, logged
from resolvers.shared import validation as validate
from resolvers.shared.arguments import DEFAULT_BUFFER, Buffer, Consistent, MinMagnitude, WhenSlow, argument, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.event_source import follow, queue_limits
from resolvers.shared.global_ids import local_id
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in
from resolvers.shared.selected_fields import selected_node_fields

RECENT_MS = 24 * 3_600_000
LARGEST_INGEST_SOURCE = 1024
# The cost model of `earthquakes`.
EARTHQUAKE_COSTS = "earthquakes"
# The attribute of the record that each field of the type Earthquake needs.
RECORD_FIELDS = {to_camel_case(name.removesuffix("_ms")): name for name in Earthquake.__declaration__.attributes}
RECORD_FIELDS |= dict.fromkeys(("id", "latest", "revisions"), "event_id")


@strawberry.input(
    description="A rectangle on the globe. If it crosses the 180th meridian, `west` is greater than `east`."
)
class GeoBoundingBoxInput:
    south: float = required("The latitude of the southern edge in degrees, -90 to 90.")
    west: float = required("The longitude of the western edge in degrees, -180 to 180.")
    north: float = required("The latitude of the northern edge in degrees, -90 to 90.")
    east: float = required("The longitude of the eastern edge in degrees, -180 to 180.")

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


EventId = Annotated[
    strawberry.ID, argument("The earthquake's `eventId` or `id`. Any id that USGS gave the event is accepted.")
]
Feed = Annotated[str, argument("The feed: the name of a USGS feed, such as `all_day`, or an http(s) address.")]
Kind = Annotated[
    SeismicEventKind,
    argument(
        "The kind of events: EARTHQUAKE, OTHER (such as quarry blasts, explosions and ice quakes), or "
        "ANY. The field `type` is USGS's type of an event."
    ),
]
Earliest = Annotated[
    datetime | None,
    strawberry.argument(
        name="from",
        description="The earliest time of an event, inclusive. By default, events are sent that were at most 24 hours "
        "old when they were stored, so the ingestion of an old feed sends no events.",
    ),
]
Box = Annotated[GeoBoundingBoxInput | None, argument("The area of the events; by default the whole globe.")]


async def earthquake(info: Info, id: EventId, consistent: Consistent = False) -> Earthquake | None:
    event_id = local_id("id", id, "Earthquake")
    if not 1 <= len(event_id) <= MAX_EVENT_ID:
        raise BadUserInput(f"`id` must have 1 to {MAX_EVENT_ID} characters.", field="id")
    return await info.context.earthquakes.by_id(event_id, consistently(keys.EVENT, consistent))


async def latest(event_ids: Sequence[str], info: Info) -> Sequence[Earthquake | Exception | None]:
    return await info.context.earthquakes.latest(event_ids)


async def revisions(event_ids: Sequence[str], info: Info) -> Sequence[list[Earthquake] | BaseException]:
    return await asyncio.gather(*map(info.context.earthquakes.revisions, event_ids), return_exceptions=True)


@paged_in(SortOrder.DESCENDING)
async def earthquakes(
    info: Info,
    from_: From = None,
    to: To = None,
    min_magnitude: MinMagnitude = None,
    kind: Kind = SeismicEventKind.EARTHQUAKE,
    **paging: Unpack[Paging],
) -> Connection[Earthquake]:
    context = info.context
    with logged(context, LoggedQuery(paging.get("first") or paging.get("last") or DEFAULT_PAGE_SIZE)) as query:
        query.window = window = window_of(context.now, from_, to)
        query.min_magnitude = minimum = _magnitude(min_magnitude)
        fields = frozenset(RECORD_FIELDS[name] for name in selected_node_fields(info) if name in RECORD_FIELDS)
        decoder = Earthquake.decoder.projected(fields)
        # The default window moves with the clock, so the cursors are bound to the arguments.
        given = {"window": [from_ and iso(window.start), to and iso(window.end)], "minMagnitude": minimum}
        connection = connection_of(info, keys.EVENTS_BY_DAY, decoder, {**given, "kind": kind}, replaces=("from", "to"))
        query.page = await context.earthquakes.between(
            *(window.start, window.end, connection.span(**paging)),
            min_magnitude=minimum,
            kind=kind,
            attributes=decoder.attributes,
        )
        return connection.of(query.page)


def _magnitude(minimum: float | None) -> float | None:
    if minimum is None:
        return None
    if not SMALLEST_MAGNITUDE <= minimum <= LARGEST_MAGNITUDE:
        limits = f"{SMALLEST_MAGNITUDE} and {LARGEST_MAGNITUDE}"
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
    from_: Earliest = None,
    when_slow: WhenSlow = keys.DETECTED.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[Earthquake]:
    minimum = _magnitude(min_magnitude)
    if bounding_box is not None:
        bounding_box.check()
    limits = queue_limits(when_slow, buffer)
    earliest = None if from_ is None else epoch_ms(checked_time("from", from_))
    parse = info.context.services.earthquake_parser.parse

    def detected(change: Change) -> Earthquake | None:
        event = parse(change) if change.kind == "INSERT" else None
        if event is None:
            return None
        strong = minimum is None or event.magnitude >= minimum
        near = bounding_box is None or bounding_box.contains(event.latitude, event.longitude)
        # Compare with the time of storing, not of delivery: a client that resumes receives the same events as others.
        recent = event.occurred_at_ms >= (event.ingested_at_ms - RECENT_MS if earliest is None else earliest)
        return event if strong and near and recent and kind.holds(event) else None

    return EventSource(lambda reader: EventStream(follow(reader, keys.EARTHQUAKES, detected, limits)), limits)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The number of events that were rejected for one reason."""

    reason: str
    count: int


def rejected(parent: strawberry.Parent[IngestSummary]) -> list[Rejected]:
    return [Rejected(reason, count) for reason, count in sorted(parent.rejected.items())]
