"""Earthquakes, the request log and the state of ingests: the access patterns QUAKE-1 to QUAKE-6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.records import point_records, readable_records, record
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.earthquakes.days_with_events import days_that_may_have
from datastore.earthquakes.event_ids import is_alias, store_once
from datastore.earthquakes.events import EARTHQUAKE, Earthquake, SeismicEventKind
from datastore.earthquakes.revisions import MAX_REVISIONS, revise, withdraw
from datastore.earthquakes.totals import EarthquakeStatistics, Grouping, statistics_between
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace import earthquakes as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import split
from datastore.model.timestamps import day_bucket, epoch_ms, from_epoch_ms
from datastore.session.pagination import Page, SortOrder, Span, Values, read_page
from datastore.session.store import Store

LOG_LIFETIME = timedelta(days=7)
# A log takes less than 1 KB, and is in no index.
LOG_WRITE_UNITS = 1
DAY = timedelta(days=1)


class LogType(StrEnum):
    """The kind of request that a log describes."""

    INGEST = "INGEST"
    QUERY = "QUERY"


def _expiry(log: "RequestLog") -> int:
    return epoch_ms(log.timestamp + LOG_LIFETIME) // 1000


class RequestLog(StoredItem, key=keys.log):
    """The log of an ingest or a query. The optional fields apply to one of the two types only."""

    entity = stored.constant("entity", "LOG")
    ttl = stored.computed("ttl", _expiry)
    log_type: LogType = stored.choice("logType", LogType)
    request_id: str = stored.text("requestId")
    timestamp: datetime = stored.number("timestamp", from_epoch_ms, encode=epoch_ms)
    route: str = stored.text("route", missing=None)
    status: int = stored.number("status", missing=None)
    latency_ms: int = stored.number("latencyMs", missing=None)
    fetched: int | None = stored.number("fetched", default=None)
    upserted: int | None = stored.number("upserted", default=None)
    skipped: int | None = stored.number("skipped", default=None)
    retries: int | None = stored.number("retries", default=None)
    upstream_size: int | None = stored.number("upstreamSize", default=None, typical=0)
    upstream_hash: str | None = stored.text("upstreamHash", default=None, typical=0)
    start_time: datetime | None = stored.number("starttime", from_epoch_ms, encode=epoch_ms, default=None)
    end_time: datetime | None = stored.number("endtime", from_epoch_ms, encode=epoch_ms, default=None)
    min_magnitude: float | None = stored.number("minmagnitude", default=None)
    page_size: int | None = stored.number("pageSize", default=None)
    result_count: int | None = stored.number("resultCount", default=None)
    has_next_token: bool | None = stored.flag("hasNextToken", default=None)
    buckets_scanned: int | None = stored.number("bucketsScanned", default=None)
    error: str | None = stored.text("error", default=None, typical=0)

    @property
    def day(self) -> str:
        """The UTC day as YYYYMMDD."""
        return day_bucket(self.timestamp)

    @property
    def milliseconds(self) -> str:
        """The time in milliseconds since 1970."""
        return str(epoch_ms(self.timestamp))


class IngestState(StoredItem, key=keys.ingest_state):
    """The feed of the last complete ingest of a source: its HTTP validators, its hash and its counts."""

    entity = stored.constant("entity", "INGEST_STATE")
    source: str = stored.text("source")
    upstream_hash: str = stored.text("upstreamHash")
    fetched: int = stored.number("fetched")
    rejected: Mapping[str, int] = stored.mapping("rejected")
    etag: str | None = stored.text("etag", default=None)
    last_modified: str | None = stored.text("lastModified", default=None)


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """The result of an ingest. fetched = upserted + skipped + the sum of rejected."""

    source: str
    fetched: int = 0
    upserted: int = 0
    skipped: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    #: The feed has the same bytes as the last one, so nothing was written.
    unchanged: bool = False
    retries: int = 0
    #: In bytes.
    upstream_size: int = 0
    upstream_hash: str | None = None
    latency_ms: int = 0
    #: A stable code.
    error: str | None = None


class Earthquakes(Repository):
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime, bounds: KnownBounds | None = None) -> None:
        super().__init__(store, now)
        self._bounds = KnownBounds() if bounds is None else bounds

    async def insert(self, earthquake: Earthquake) -> bool:
        """QUAKE-1: store the event unless it is stored under any of its ids. Return whether it was new.

        A newer report of an event that is stored becomes a revision of it.
        """
        item = earthquake.item()
        known = await store_once(self._store, self._bounds, item, earthquake.other_ids)
        if known is not None:
            await revise(self._store, known, item)
        return known is None

    async def withdraw(self, event_id: str, deleted_at_ms: int, ingested_at_ms: int) -> bool:
        """QUAKE-1: add a revision that says that USGS deleted the event. Return whether it was added.

        Times are in epoch milliseconds. An event that is not stored has no revisions.
        """
        return await withdraw(self._store, event_id, deleted_at_ms, ingested_at_ms)

    async def latest(self, event_ids: Sequence[str]) -> list[Earthquake | Exception | None]:
        """QUAKE-N1: return the newest revision of each event, None, or the error of its read."""
        items = await self._store.find_all(keys.LATEST, list(map(keys.latest, event_ids)))
        return point_records(Earthquake.decoder, items)

    async def revisions(self, event_id: str) -> list[Earthquake]:
        """QUAKE-N2: return up to `MAX_REVISIONS` revisions, newest first, without damaged items."""
        page = await self._store.query(keys.REVISIONS, keys.revision.values_of(event_id), limit=MAX_REVISIONS)
        return readable_records(Earthquake.decoder, page.items)

    async def between(
        self,
        start: datetime,
        end: datetime,
        span: Span,
        *,
        min_magnitude: float | None = None,
        kind: SeismicEventKind = SeismicEventKind.EARTHQUAKE,
        attributes: Sequence[str] | None = None,
    ) -> Page:
        """QUAKE-2: return the events from `start` to `end`, both included, newest first or in the span's order.

        Events of the same time are in the order of the index. The window may move between two pages. If the span starts
        outside of it, the page begins at the nearest end of the window, or is empty if the whole window lies before it.
        `attributes` are those that are needed besides the keys; None means all.
        """
        values: dict[str, Any] = {"start": epoch_ms(start), "end": epoch_ms(end)}
        if min_magnitude is not None:
            values["minMagnitude"] = min_magnitude
        if kind is not SeismicEventKind.ANY:
            values["earthquake" if kind is SeismicEventKind.EARTHQUAKE else "noEarthquake"] = EARTHQUAKE
        if span.start is not None and not values["start"] <= span.start["gsi1sk"] <= values["end"]:
            newer = span.start["gsi1sk"] > values["end"]
            if newer is span.is_upward:
                return Page([], has_next=span.backward, has_previous=not span.backward, partitions=0)
            span = replace(span, start=None)
        buckets = day_buckets(start, end)
        if span.order is SortOrder.ASCENDING:
            buckets.reverse()
        days = [values | {"partition": keys.event_of_day.partition_of(bucket)} for bucket in buckets]

        async def narrow(days: Sequence[Values]) -> list[Values]:
            buckets = [split(values["partition"])[1] for values in days]
            other = kind is SeismicEventKind.OTHER
            kept = await days_that_may_have(self._store, self._now, buckets, min_magnitude, other=other)
            return [values for values, bucket in zip(days, buckets, strict=True) if bucket in kept]

        return await read_page(self._store, keys.EVENTS_BY_DAY, days, span, attributes, narrow=narrow)

    async def statistics(
        self, start: datetime, end: datetime, by: Grouping, *, consistent: bool = False
    ) -> EarthquakeStatistics:
        """QUAKE-6: return the numbers of earthquakes on the UTC days from that of `start` to that of `end`."""
        first, last = start.astimezone(UTC).date(), end.astimezone(UTC).date()
        return await statistics_between(self._store, self._now, first, last, by, consistent=consistent)

    async def by_id(self, event_id: str, pattern: AccessPattern = keys.EVENT) -> Earthquake | None:
        """QUAKE-5: return the event with this id, which may be any of its ids, or None.

        Raises: `Internal` for a damaged item.
        """
        item = await self._store.get(pattern, keys.event(event_id))
        if item is not None and is_alias(item):
            item = await self._store.get(pattern, keys.event(str(item["aliasOf"])))
        return record(Earthquake.decoder, item)

    async def write_log(self, log: RequestLog) -> None:
        """QUAKE-3: store a request log."""
        await self._store.put(keys.WRITE_LOG, log.item())

    async def logs_of(self, bucket: str, span: Span, log_type: LogType | None = None) -> Page:
        """QUAKE-4: return the logs of a day (YYYYMMDD), newest first."""
        values: dict[str, Any] = {"partition": keys.log.partition_of(bucket)}
        if log_type is not None:
            values["type"] = log_type.value
        return await read_page(self._store, keys.LOGS_OF_DAY, [values], span)

    async def ingest_state(self, source: str) -> IngestState | None:
        """QUAKE-1: return the state of the last complete ingest of a source, or None."""
        item = await self._store.get(keys.INGEST_STATE, keys.ingest_state(source))
        return IngestState.decoder(item) if item else None

    async def save_ingest_state(self, state: IngestState) -> None:
        """QUAKE-1: store the state of a complete ingest."""
        await self._store.put(keys.INGEST_STATE, state.item())


def day_buckets(start: datetime, end: datetime) -> list[str]:
    """Return the UTC days (YYYYMMDD) from that of `end` back to that of `start`."""
    first, last = start.astimezone(UTC).date(), end.astimezone(UTC).date()
    return [f"{last - offset * DAY:%Y%m%d}" for offset in range((last - first).days + 1)]
