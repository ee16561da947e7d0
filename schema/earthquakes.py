"""GraphQL types and fields of earthquakes."""

from collections.abc import AsyncGenerator
from datetime import date, datetime

import strawberry

from datastore.earthquakes import earthquakes as records
from datastore.earthquakes import events as earthquake_events
from datastore.earthquakes.regions import SeismicRegion
from datastore.earthquakes.revisions import MAX_REVISIONS
from datastore.earthquakes.totals import Grouping
from datastore.keyspace import earthquake_statistics as statistics
from datastore.keyspace import earthquakes as patterns
from datastore.model.access_patterns import Extent
from resolvers.earthquakes import earthquakes as resolve
from resolvers.earthquakes import query_window
from resolvers.earthquakes import request_logs as resolve_logs
from resolvers.earthquakes import statistics as resolve_statistics
from schema.connections import Connection
from schema.fields import batch_field, described, pattern_field, pattern_subscription
from schema.nodes import Node, node_type, object_type, value_type
from schema.systems import System

strawberry.enum(Grouping, name="EarthquakeGrouping", description="How earthquakes are grouped.")
strawberry.enum(
    SeismicRegion,
    description="A region of the world. Regions are rectangles; an earthquake belongs to the first one of a fixed "
    "list that contains its epicentre.",
)
strawberry.enum(
    earthquake_events.SeismicEventKind, name="SeismicEventKind", description="The kinds of seismic events to list."
)
strawberry.enum(records.LogType, description="The kind of request that a log describes.")


@object_type(
    "event_id",
    "updated_at_ms",
    description="A later report of a seismic event, published when USGS revised or deleted the event.",
)
class EarthquakeRevision:
    event_id: strawberry.ID = described("The id that USGS preferred for the event in this report.")
    occurred_at: datetime = described("The time of the event.")
    magnitude: float = described("The magnitude, -2 to 10.")
    place: str = described("The location in words.")
    latitude: float = described("The latitude of the epicentre in degrees, -90 to 90.")
    longitude: float = described("The longitude of the epicentre in degrees, -180 to 180.")
    depth_km: float | None = described("The depth below the surface in kilometres, 0 or more; null if it is unknown.")
    ingested_at: datetime = described("The time at which the gateway stored the report.")
    type: str = described("The type of the event in USGS's words, such as `earthquake` or `quarry blast`.")
    status: str | None = described(
        "The status of the report: `automatic`, `reviewed`, or `deleted` if USGS deleted the event; null if it is "
        "unknown."
    )
    updated_at: datetime | None = described("The time at which USGS published the report; null if it is unknown.")
    alert: str | None = described(
        "The PAGER alert level: `green`, `yellow`, `orange` or `red`; null if USGS issued none."
    )
    tsunami: bool | None = described(
        "Whether the event is large and in an oceanic region, so that a tsunami is possible; null if it is unknown.",
        name="isTsunamiPossible",
    )
    significance: int | None = described(
        "USGS's measure of significance, from 0 to about 1,000; null if it is unknown."
    )
    url: str | None = described("The address of the event's page at USGS; null if it is unknown.")


@node_type(
    earthquake_events.Earthquake,
    patterns.EVENT,
    parts=("event_id",),
    read=lambda context, *key: context.earthquakes.by_id(*key),
    description="A seismic event as USGS reported it when the gateway first stored it.",
)
class Earthquake(Node):
    event_id: strawberry.ID = described("The id that USGS gave the event.")
    occurred_at: datetime = described("The time of the event.")
    magnitude: float = described("The magnitude, -2 to 10.")
    place: str = described("The location in words.")
    latitude: float = described("The latitude of the epicentre in degrees, -90 to 90.")
    longitude: float = described("The longitude of the epicentre in degrees, -180 to 180.")
    depth_km: float | None = described("The depth below the surface in kilometres, 0 or more; null if it is unknown.")
    source: str = described("The network that reported the event.")
    ingested_at: datetime = described("The time at which the gateway stored the event.")
    type: str = described(
        "The type of the event in USGS's words: `earthquake`, `quarry blast`, `explosion`, `ice quake` and others."
    )
    status: str | None = described(
        "The status of the report: `automatic`, or `reviewed` if a seismologist reviewed it; null if it is unknown."
    )
    updated_at: datetime | None = described(
        "The time at which USGS published the report that was stored; null if it is unknown."
    )
    alert: str | None = described(
        "The PAGER alert level: `green`, `yellow`, `orange` or `red`; null if USGS issued none."
    )
    tsunami: bool | None = described(
        "Whether the event is large and in an oceanic region, so that a tsunami is possible; null if it is unknown.",
        name="isTsunamiPossible",
    )
    significance: int | None = described(
        "USGS's measure of significance, from 0 to about 1,000; null if it is unknown. It depends on "
        "magnitude, felt reports and estimated impact."
    )
    url: str | None = described("The address of the event's page at USGS; null if it is unknown.")
    latest = batch_field(
        patterns.LATEST,
        resolver=resolve.latest,
        depends_on="event_id",
        graphql_type=EarthquakeRevision | None,
        description="The newest report, if USGS revised or deleted the event after it was stored; otherwise null.",
    )
    revisions = batch_field(
        patterns.REVISIONS,
        resolver=resolve.revisions,
        depends_on="event_id",
        graphql_type=list[EarthquakeRevision],
        extent=Extent(size=MAX_REVISIONS),
        description="The newest 20 reports that USGS published after the event was stored, newest first.",
    )


@object_type("request_id", description="The log of one ingest or query. Logs are kept for seven days.")
class RequestLog:
    log_type: records.LogType = described("The kind of request.")
    request_id: strawberry.ID = described("The id of the request, a UUID.")
    timestamp: datetime = described("The time at which the request began.", name="startedAt")
    route: str = described("The route of the request, such as `graphql/earthquakes`.")
    status: int = described("The HTTP status that describes the outcome: 200 for success.")
    latency_ms: int = described("The duration in milliseconds.")
    fetched: int | None = described("For an ingest: the number of events in the feed; otherwise null.")
    upserted: int | None = described("For an ingest: the number of new events; otherwise null.")
    skipped: int | None = described("For an ingest: the number of events that were stored already; otherwise null.")
    retries: int | None = described(
        "For an ingest: the number of times that the request for the feed was retried; otherwise null."
    )
    upstream_size: int | None = described("For an ingest: the size of the feed in bytes; otherwise null.")
    upstream_hash: str | None = described(
        "For an ingest: the SHA-256 digest of the feed; otherwise, or if the feed could not be read, null."
    )
    start_time: datetime | None = described(
        "For a query: the start of the range of times; otherwise, or for an invalid range, null.", name="from"
    )
    end_time: datetime | None = described(
        "For a query: the end of the range of times; otherwise, or for an invalid range, null.", name="to"
    )
    min_magnitude: float | None = described(
        "For a query: the minimum magnitude; otherwise, or without a minimum, null."
    )
    page_size: int | None = described("For a query: the requested page size; otherwise null.")
    result_count: int | None = described(
        "For a query: the number of events in the page; otherwise, or after an error, null."
    )
    has_next_token: bool | None = described(
        "For a query: whether a further page exists; otherwise, or after an error, null."
    )
    buckets_scanned: int | None = described(
        "For a query: the number of UTC days that were read; otherwise, or after an error, null."
    )
    error: str | None = described("The stable code of the error; null for success.")


@value_type(description="The number of events that were rejected for one reason.")
class Rejected:
    reason: str = described("The reason, a stable name such as MISSING_MAGNITUDE.")
    count: int = described("The number of events.", name="eventCount")


@value_type(
    description="The outcome of an ingest. `fetched` is the sum of `upserted`, `skipped` and each `eventCount` of "
    "`rejected`."
)
class IngestSummary:
    source: str = described("The feed that was read, as the argument named it.", name="feed")
    fetched: int = described("The number of events in the feed.")
    upserted: int = described("The number of new events, which are stored now.")
    skipped: int = described("The number of events that were stored already.")
    rejected = strawberry.field(
        resolver=resolve.rejected,
        graphql_type=list[Rejected],
        description="The numbers of events that cannot be stored, one entry for each reason, in no order.",
    )
    unchanged: bool = described(
        "Whether the feed is equal to that of the last ingest. In this case nothing was written."
    )
    retries: int = described("The number of times that the request for the feed was retried.")
    upstream_size: int = described("The size of the feed in bytes.")
    upstream_hash: str | None = described("The SHA-256 digest of the feed; null if the feed could not be read.")
    latency_ms: int = described("The duration in milliseconds.")
    error: str | None = described("The stable code of the error; null for success.")


@value_type(description="The earthquakes of one day, magnitude class or region.")
class EarthquakeGroup:
    count: int = described("The number of earthquakes.", name="earthquakeCount")
    greatest_magnitude: float = described("The greatest magnitude of the group.", name="maxMagnitude")
    day: date | None = described("The UTC day, for groups by day; otherwise null.")
    magnitude_class: int | None = described(
        "The magnitude class, for groups by magnitude; otherwise null. Class 4 contains magnitudes "
        "from 4.0 up to, but not including, 5.0. The lowest class, -2, and the highest class, 9, also contain all "
        "lower and higher magnitudes."
    )
    region: SeismicRegion | None = described("The region, for groups by region; otherwise null.")


@value_type(
    description="Counts of earthquakes on UTC days. Other events, such as quarry blasts, do not count. An "
    "event is counted one or two seconds after it is stored."
)
class EarthquakeStatistics:
    start: date = described("The first day.", name="from")
    end: date = described("The last day.", name="to")
    is_complete: bool = described(
        "Whether the counts are known to include all events of these days. If not, some may be missing until an "
        "operator has them counted again."
    )
    count: int = described("The number of earthquakes in all groups.", name="earthquakeCount")
    greatest_magnitude: float | None = described(
        "The greatest magnitude; null if there are no earthquakes.", name="maxMagnitude"
    )
    groups: list[EarthquakeGroup] = strawberry.field(
        description="The groups with at least one earthquake: days, newest first; magnitude classes, greatest "
        "first; or regions, most earthquakes first. At most 3,661 days, 12 classes or 20 regions.",
        metadata={"extent": Extent(size=1)},
    )


@strawberry.type
class EarthquakeQueries:
    earthquake = pattern_field(
        patterns.EVENT,
        resolver=resolve.earthquake,
        graphql_type=Earthquake | None,
        description="Return an earthquake; null if the id is unknown.",
    )
    earthquakes = pattern_field(
        patterns.EVENTS_BY_DAY,
        resolver=resolve.earthquakes,
        graphql_type=Connection[Earthquake],
        extent=Extent(
            partitions=query_window.days_between,
            scanned=query_window.events_scanned_for_one,
            deferred=records.LOG_WRITE_UNITS,
            model=resolve.EARTHQUAKE_COSTS,
        ),
        description="Return the earthquakes of a range of times, newest first.",
    )
    earthquake_statistics = pattern_field(
        statistics.DAYS,
        resolver=resolve_statistics.earthquake_statistics,
        graphql_type=EarthquakeStatistics,
        extent=Extent(
            size=resolve_statistics.groups_of,
            partitions=resolve_statistics.partitions_of,
            deferred=records.LOG_WRITE_UNITS,
        ),
        description="Return counts of the earthquakes of a range of UTC days, by day, magnitude class or region.",
    )
    request_logs = pattern_field(
        patterns.LOGS_OF_DAY,
        resolver=resolve_logs.request_logs,
        graphql_type=Connection[RequestLog],
        extent=Extent(
            scanned=resolve_logs.logs_scanned_for_one,
            ignores={"day": "Each day is a partition, of which a page reads as much as it shows."},
        ),
        description="Return the request logs of a day, newest first.",
    )


@strawberry.type
class EarthquakeMutations:
    ingest_earthquakes = pattern_field(
        patterns.INSERT_EVENT,
        resolver=resolve.ingest_earthquakes,
        graphql_type=IngestSummary,
        extent=Extent(written=50),
        description="Fetch a USGS feed and store each of its events once.",
    )


@strawberry.type
class EarthquakeSubscriptions:
    earthquake_detected = pattern_subscription(
        patterns.DETECTED,
        resolver=resolve.earthquake_detected,
        graphql_type=AsyncGenerator[Earthquake, None],
        description="Receive earthquakes as they are stored, by any process. With `whenSlow: LATEST` the newest "
        "earthquake alone waits.",
    )


SYSTEM = System(
    queries=(EarthquakeQueries,),
    mutations=(EarthquakeMutations,),
    subscriptions=(EarthquakeSubscriptions,),
    nodes=(Earthquake,),
)
