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
from resolvers.earthquakes import nodes, query_window
from resolvers.earthquakes import request_logs as resolve_logs
from resolvers.earthquakes import statistics as resolve_statistics
from schema.connections import Connection, Node, is_record, node_id
from schema.fields import pattern_field, pattern_subscription

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


@strawberry.type(description="A later report of a seismic event, published when USGS revised or deleted the event.")
class EarthquakeRevision:
    event_id: strawberry.ID = strawberry.field(description="The id that USGS preferred for the event in this report.")
    occurred_at: datetime = strawberry.field(description="The time of the event.")
    magnitude: float = strawberry.field(description="The magnitude, -2 to 10.")
    place: str = strawberry.field(description="The location in words.")
    latitude: float = strawberry.field(description="The latitude of the epicentre in degrees, -90 to 90.")
    longitude: float = strawberry.field(description="The longitude of the epicentre in degrees, -180 to 180.")
    depth_km: float | None = strawberry.field(
        description="The depth below the surface in kilometres, 0 or more; null if unknown."
    )
    ingested_at: datetime = strawberry.field(description="The time at which the gateway stored the report.")
    type: str = strawberry.field(
        description="The type of the event in USGS's words, such as `earthquake` or `quarry blast`."
    )
    status: str | None = strawberry.field(
        description="The status of the report: `automatic`, `reviewed`, or `deleted` if USGS deleted the event."
    )
    updated_at: datetime | None = strawberry.field(description="The time at which USGS published the report.")
    alert: str | None = strawberry.field(
        description="The PAGER alert level: `green`, `yellow`, `orange` or `red`; null if USGS issued none."
    )
    tsunami: bool | None = strawberry.field(
        description="Whether the event is large and in an oceanic region, so that a tsunami is possible."
    )
    significance: int | None = strawberry.field(description="USGS's measure of significance, from 0 to about 1,000.")
    url: str | None = strawberry.field(description="The address of the event's page at USGS.")


@strawberry.type(description="A seismic event as USGS reported it when the gateway first stored it.")
class Earthquake(Node):
    id = node_id(nodes.earthquake_id)
    event_id: strawberry.ID = strawberry.field(description="The id that USGS gave the event.")
    occurred_at: datetime = strawberry.field(description="The time of the event.")
    magnitude: float = strawberry.field(description="The magnitude, -2 to 10.")
    place: str = strawberry.field(description="The location in words.")
    latitude: float = strawberry.field(description="The latitude of the epicentre in degrees, -90 to 90.")
    longitude: float = strawberry.field(description="The longitude of the epicentre in degrees, -180 to 180.")
    depth_km: float | None = strawberry.field(
        description="The depth below the surface in kilometres, 0 or more; null if unknown."
    )
    source: str = strawberry.field(description="The network that reported the event.")
    ingested_at: datetime = strawberry.field(description="The time at which the gateway stored the event.")
    type: str = strawberry.field(
        description="The type of the event in USGS's words: `earthquake`, `quarry blast`, `explosion`, `ice "
        "quake` and others."
    )
    status: str | None = strawberry.field(
        description="The status of the report: `automatic`, or `reviewed` if a seismologist reviewed it."
    )
    updated_at: datetime | None = strawberry.field(
        description="The time at which USGS published the report that was stored."
    )
    alert: str | None = strawberry.field(
        description="The PAGER alert level: `green`, `yellow`, `orange` or `red`; null if USGS issued none."
    )
    tsunami: bool | None = strawberry.field(
        description="Whether the event is large and in an oceanic region, so that a tsunami is possible."
    )
    significance: int | None = strawberry.field(
        description="USGS's measure of significance, from 0 to about 1,000. It depends on magnitude, felt reports "
        "and estimated impact."
    )
    url: str | None = strawberry.field(description="The address of the event's page at USGS.")
    latest = pattern_field(
        patterns.LATEST,
        resolver=resolve.latest,
        graphql_type=EarthquakeRevision | None,
        description="The newest report, if USGS revised or deleted the event after it was stored; otherwise null.",
        depends_on="event_id",
    )
    revisions = pattern_field(
        patterns.REVISIONS,
        resolver=resolve.revisions,
        graphql_type=list[EarthquakeRevision],
        extent=Extent(size=MAX_REVISIONS),
        description="The newest 20 reports that USGS published after the event was stored, newest first.",
        depends_on="event_id",
    )

    is_type_of = is_record(earthquake_events.Earthquake)


@strawberry.type(description="The log of one ingest or query. Logs are kept for seven days.")
class RequestLog:
    log_type: records.LogType = strawberry.field(description="The kind of request.")
    request_id: strawberry.ID = strawberry.field(description="The id of the request, a UUID.")
    timestamp: datetime = strawberry.field(description="The time at which the request began.")
    route: str = strawberry.field(description="The route of the request, such as `graphql/earthquakes`.")
    status: int = strawberry.field(description="The HTTP status that describes the outcome: 200 for success.")
    latency_ms: int = strawberry.field(description="The duration in milliseconds.")
    fetched: int | None = strawberry.field(description="For an ingest: the number of events in the feed.")
    upserted: int | None = strawberry.field(description="For an ingest: the number of new events.")
    skipped: int | None = strawberry.field(description="For an ingest: the number of events that were stored already.")
    retries: int | None = strawberry.field(
        description="For an ingest: the number of times that the request for the feed was retried."
    )
    upstream_size: int | None = strawberry.field(description="For an ingest: the size of the feed in bytes.")
    upstream_hash: str | None = strawberry.field(description="For an ingest: the SHA-256 digest of the feed.")
    start_time: datetime | None = strawberry.field(description="For a query: the start of the time window.")
    end_time: datetime | None = strawberry.field(description="For a query: the end of the time window.")
    min_magnitude: float | None = strawberry.field(description="For a query: the minimum magnitude.")
    page_size: int | None = strawberry.field(description="For a query: the requested page size.")
    result_count: int | None = strawberry.field(description="For a query: the number of events in the page.")
    has_next_token: bool | None = strawberry.field(description="For a query: whether a further page exists.")
    buckets_scanned: int | None = strawberry.field(description="For a query: the number of day buckets that were read.")
    error: str | None = strawberry.field(description="The stable code of the error; null for success.")


@strawberry.type(description="The number of events that were rejected for one reason.")
class Rejected:
    reason: str = strawberry.field(description="The reason, a stable name such as MISSING_MAGNITUDE.")
    count: int = strawberry.field(description="The number of events.")


@strawberry.type(
    description="The outcome of an ingest. `fetched` is the sum of `upserted`, `skipped` and all `rejected` counts."
)
class IngestSummary:
    source: str = strawberry.field(description="The feed that was read.")
    fetched: int = strawberry.field(description="The number of events in the feed.")
    upserted: int = strawberry.field(description="The number of new events, which are stored now.")
    skipped: int = strawberry.field(description="The number of events that were stored already.")
    rejected = strawberry.field(
        resolver=resolve.rejected,
        graphql_type=list[Rejected],
        description="The numbers of events that cannot be stored, by reason.",
    )
    unchanged: bool = strawberry.field(
        description="Whether the feed is equal to that of the last ingest. In this case nothing was written."
    )
    retries: int = strawberry.field(description="The number of times that the request for the feed was retried.")
    upstream_size: int = strawberry.field(description="The size of the feed in bytes.")
    upstream_hash: str | None = strawberry.field(
        description="The SHA-256 digest of the feed; null if the feed could not be read."
    )
    latency_ms: int = strawberry.field(description="The duration in milliseconds.")
    error: str | None = strawberry.field(description="The stable code of the error; null for success.")


@strawberry.type(description="The earthquakes of one day, magnitude class or region.")
class EarthquakeGroup:
    count: int = strawberry.field(description="The number of earthquakes.")
    greatest_magnitude: float = strawberry.field(description="The greatest magnitude of the group.")
    day: date | None = strawberry.field(description="The UTC day, for groups by day; otherwise null.")
    magnitude_class: int | None = strawberry.field(
        description="The magnitude class, for groups by magnitude; otherwise null. Class 4 contains magnitudes "
        "from 4.0 up to, but not including, 5.0. The lowest class, -2, and the highest class, 9, also contain all "
        "lower and higher magnitudes."
    )
    region: SeismicRegion | None = strawberry.field(description="The region, for groups by region; otherwise null.")


@strawberry.type(
    description="Counts of earthquakes on whole UTC days. Other events, such as quarry blasts, do not count. An "
    "event is counted one or two seconds after it is stored."
)
class EarthquakeStatistics:
    start: date = strawberry.field(description="The first day: the UTC day of the argument `start`.")
    end: date = strawberry.field(description="The last day: the UTC day of the argument `end`.")
    is_complete: bool = strawberry.field(
        description="Whether the counts are known to include all events of these days. If not, an operator can count "
        "the events again with `gateway.py statistics rebuild`."
    )
    count: int = strawberry.field(description="The number of earthquakes in all groups.")
    greatest_magnitude: float | None = strawberry.field(
        description="The greatest magnitude; null if there are no earthquakes."
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
        description="Return an earthquake by its USGS id; null if the id is unknown.",
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
        description="Return the earthquakes of a time window, newest first.",
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
        description="Return counts of the earthquakes of a time window, by day, magnitude class or region.",
    )
    request_logs = pattern_field(
        patterns.LOGS_OF_DAY,
        resolver=resolve_logs.request_logs,
        graphql_type=Connection[RequestLog],
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
        description="Receive earthquakes as they are stored, by any process.",
    )
