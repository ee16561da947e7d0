"""What the API says about earthquakes: the shape only."""

from collections.abc import AsyncGenerator
from datetime import date, datetime
from typing import Any

import strawberry

from datastore.earthquakes import earthquakes as records
from datastore.earthquakes import events as earthquake_events
from datastore.earthquakes.regions import SeismicRegion
from datastore.earthquakes.revisions import MOST_REVISIONS
from datastore.earthquakes.totals import Grouping
from datastore.keyspace import earthquake_statistics as statistics
from datastore.keyspace import earthquakes as patterns
from datastore.model.access_patterns import Extent
from resolvers.earthquakes import earthquakes as resolve
from resolvers.earthquakes import statistics as resolve_statistics
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import ask, listen

strawberry.enum(Grouping, name="EarthquakeGrouping", description="What earthquakes are counted by.")
strawberry.enum(
    SeismicRegion,
    description="A region of the world: a rectangle, the first in a fixed list that holds the epicentre.",
)
strawberry.enum(
    earthquake_events.SeismicEventKind, name="SeismicEventKind", description="Which seismic events are listed."
)
strawberry.enum(records.LogType, description="What a request log is about.")


@strawberry.type(description="A later report of a seismic event: USGS revised or deleted it.")
class EarthquakeRevision:
    event_id: strawberry.ID = strawberry.field(description="The id USGS preferred for the event in this report.")
    occurred_at: datetime = strawberry.field(description="When the ground moved.")
    magnitude: float = strawberry.field(description="From -2 to 10.")
    place: str = strawberry.field(description="The location in words.")
    latitude: float = strawberry.field(description="Degrees, -90 to 90.")
    longitude: float = strawberry.field(description="Degrees, -180 to 180.")
    depth_km: float | None = strawberry.field(description="Kilometres below the surface, 0 or more; null if unknown.")
    ingested_at: datetime = strawberry.field(description="When the report was stored here.")
    type: str = strawberry.field(description="What it was, in USGS's words.")
    status: str | None = strawberry.field(
        description="`automatic`, `reviewed`, or `deleted` if USGS deleted the event."
    )
    updated_at: datetime | None = strawberry.field(description="When USGS published the report.")
    alert: str | None = strawberry.field(description="The PAGER alert level; null where USGS issued none.")
    tsunami: bool | None = strawberry.field(
        description="Whether it is a large event in an oceanic region, for which a tsunami may be possible."
    )
    significance: int | None = strawberry.field(description="USGS's measure of significance, 0 to some 1,000.")
    url: str | None = strawberry.field(description="The event's page at USGS.")


@strawberry.type(description="A seismic event as USGS reported it when it was first seen here.")
class Earthquake(Node):
    id = strawberry.field(resolver=nodes.earthquake_id, graphql_type=strawberry.ID, description="Globally unique.")
    event_id: strawberry.ID = strawberry.field(description="The id USGS gave the event.")
    occurred_at: datetime = strawberry.field(description="When the ground moved.")
    magnitude: float = strawberry.field(description="From -2 to 10.")
    place: str = strawberry.field(description="The location in words.")
    latitude: float = strawberry.field(description="Degrees, -90 to 90.")
    longitude: float = strawberry.field(description="Degrees, -180 to 180.")
    depth_km: float | None = strawberry.field(description="Kilometres below the surface, 0 or more; null if unknown.")
    source: str = strawberry.field(description="Who reported it.")
    ingested_at: datetime = strawberry.field(description="When it was stored here.")
    type: str = strawberry.field(
        description="What it was, in USGS's words: `earthquake`, `quarry blast`, `explosion`, `ice quake` and others."
    )
    status: str | None = strawberry.field(description="Whether a human reviewed it: `automatic` or `reviewed`.")
    updated_at: datetime | None = strawberry.field(description="When USGS last changed it before it was stored here.")
    alert: str | None = strawberry.field(
        description="The PAGER alert level: `green`, `yellow`, `orange` or `red`; null where USGS issued none."
    )
    tsunami: bool | None = strawberry.field(
        description="Whether it is a large event in an oceanic region, for which a tsunami may be possible."
    )
    significance: int | None = strawberry.field(
        description="USGS's measure of significance, 0 to some 1,000, from magnitude, felt reports and impact."
    )
    url: str | None = strawberry.field(description="The event's page at USGS.")
    latest = ask(
        patterns.LATEST,
        resolver=resolve.latest,
        graphql_type=EarthquakeRevision | None,
        description="The newest report, if USGS revised or deleted the event after it was stored; else null.",
        by="event_id",
    )
    revisions = ask(
        patterns.REVISIONS,
        resolver=resolve.revisions,
        graphql_type=list[EarthquakeRevision],
        extent=Extent(size=MOST_REVISIONS),
        description="The newest 20 reports that USGS published after the event was stored, newest first.",
        by="event_id",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, earthquake_events.Earthquake)


@strawberry.type(description="One ingest or query as it went; kept for seven days.")
class RequestLog:
    log_type: records.LogType = strawberry.field(description="Ingest or query.")
    request_id: strawberry.ID = strawberry.field(description="A UUID, unique to the request.")
    timestamp: datetime = strawberry.field(description="When the request began.")
    route: str = strawberry.field(description="What was asked.")
    status: int = strawberry.field(description="200, or the status of the failure.")
    latency_ms: int = strawberry.field(description="From beginning to end, in milliseconds.")
    fetched: int | None = strawberry.field(description="Ingest: events in the feed.")
    upserted: int | None = strawberry.field(description="Ingest: events that were new.")
    skipped: int | None = strawberry.field(description="Ingest: events that were known.")
    retries: int | None = strawberry.field(description="Ingest: how often the feed was asked for again.")
    upstream_size: int | None = strawberry.field(description="Ingest: bytes of the feed.")
    upstream_hash: str | None = strawberry.field(description="Ingest: SHA-256 of the feed.")
    start_time: datetime | None = strawberry.field(description="Query: the earliest time asked for.")
    end_time: datetime | None = strawberry.field(description="Query: the latest time asked for.")
    min_magnitude: float | None = strawberry.field(description="Query: the least magnitude asked for.")
    page_size: int | None = strawberry.field(description="Query: the page size asked for.")
    result_count: int | None = strawberry.field(description="Query: events in the page.")
    has_next_token: bool | None = strawberry.field(description="Query: whether the list went on.")
    buckets_scanned: int | None = strawberry.field(description="Query: day buckets read.")
    error: str | None = strawberry.field(description="The stable code of the failure, if it failed.")


@strawberry.type(description="How many events were rejected for one reason.")
class Rejected:
    reason: str = strawberry.field(description="A stable name, such as MISSING_MAGNITUDE.")
    count: int = strawberry.field(description="How many events.")


@strawberry.type(description="How an ingest went: fetched = upserted + skipped + all rejected.")
class IngestSummary:
    source: str = strawberry.field(description="The feed.")
    fetched: int = strawberry.field(description="Events in the feed.")
    upserted: int = strawberry.field(description="Events that were new and are stored now.")
    skipped: int = strawberry.field(description="Events that were known already.")
    rejected = strawberry.field(
        resolver=resolve.rejected,
        graphql_type=list[Rejected],
        description="Events that cannot be stored, by reason.",
    )
    unchanged: bool = strawberry.field(description="The feed was what it was last time; nothing was written.")
    retries: int = strawberry.field(description="How often the feed was asked for again.")
    upstream_size: int = strawberry.field(description="Bytes of the feed.")
    upstream_hash: str | None = strawberry.field(description="SHA-256 of the feed.")
    latency_ms: int = strawberry.field(description="From beginning to end, in milliseconds.")
    error: str | None = strawberry.field(description="The stable code of the failure, if it failed.")


@strawberry.type(description="The earthquakes of one day, magnitude class or region.")
class EarthquakeGroup:
    count: int = strawberry.field(description="How many there were.")
    greatest_magnitude: float = strawberry.field(description="The greatest magnitude among them.")
    day: date | None = strawberry.field(description="The UTC day, where they are counted by day.")
    magnitude_class: int | None = strawberry.field(
        description="The whole number that their magnitudes begin with (4 is 4.0 up to 5.0), where it is what they are "
        "counted by. The least and greatest classes, -2 and 9, hold what is beyond as well."
    )
    region: SeismicRegion | None = strawberry.field(description="The region, where they are counted by region.")


@strawberry.type(
    description="How many earthquakes there were on whole UTC days. Events of other types, such as quarry blasts, do "
    "not count. An event is counted a second or two after it is stored."
)
class EarthquakeStatistics:
    start: date = strawberry.field(description="The first day: the UTC day of the argument `start`.")
    end: date = strawberry.field(description="The last day: the UTC day of the argument `end`.")
    is_complete: bool = strawberry.field(
        description="Whether all events of these days are known to be counted. Where they are not, "
        "`gateway.py statistics rebuild` counts them."
    )
    count: int = strawberry.field(description="How many there were in all.")
    greatest_magnitude: float | None = strawberry.field(description="The greatest magnitude; null without any.")
    groups: list[EarthquakeGroup] = strawberry.field(
        description="Those with earthquakes: days newest first, magnitude classes greatest first, regions with the "
        "most earthquakes first. At most 3,661 days, 12 classes or 20 regions.",
        metadata={"extent": Extent(size=1)},
    )


@strawberry.type
class EarthquakeQueries:
    earthquake = ask(
        patterns.EVENT,
        resolver=resolve.earthquake,
        graphql_type=Earthquake | None,
        description="One earthquake by its USGS id, or null.",
    )
    earthquakes = ask(
        patterns.EVENTS_BY_DAY,
        resolver=resolve.earthquakes,
        graphql_type=Connection[Earthquake],
        extent=Extent(
            partitions=resolve.days_between,
            scanned=resolve.scanned_for_one,
            behind=records.LOG_WRITE_UNITS,
            model=resolve.EARTHQUAKE_COSTS,
        ),
        description="The earthquakes of a time window, newest first.",
    )
    earthquake_statistics = ask(
        statistics.DAYS,
        resolver=resolve_statistics.earthquake_statistics,
        graphql_type=EarthquakeStatistics,
        extent=Extent(
            size=resolve_statistics.groups_of,
            partitions=resolve_statistics.partitions_of,
            behind=records.LOG_WRITE_UNITS,
        ),
        description="How many earthquakes there were, by day, magnitude class or region.",
    )
    request_logs = ask(
        patterns.LOGS_OF_DAY,
        resolver=resolve.request_logs,
        graphql_type=Connection[RequestLog],
        description="The request logs of a day, newest first.",
    )


@strawberry.type
class EarthquakeMutations:
    ingest_earthquakes = ask(
        patterns.INSERT_EVENT,
        resolver=resolve.ingest_earthquakes,
        graphql_type=IngestSummary,
        extent=Extent(written=50),
        description="Fetch a USGS feed and store each of its events once.",
    )


@strawberry.type
class EarthquakeSubscriptions:
    earthquake_detected = listen(
        patterns.DETECTED,
        resolver=resolve.earthquake_detected,
        graphql_type=AsyncGenerator[Earthquake, None],
        description="Earthquakes as they are stored, whoever stores them.",
    )
