"""Earthquakes, the request log and the state of ingests: the access patterns QUAKE-1 to QUAKE-6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.earthquakes.days_with_events import days_that_may_have
from datastore.earthquakes.event_ids import is_alias, store_once
from datastore.earthquakes.events import EARTHQUAKE, Earthquake, SeismicEventKind, attributes_of, event_from, event_item
from datastore.earthquakes.revisions import MAX_REVISIONS, revise, withdraw
from datastore.earthquakes.totals import EarthquakeStatistics, Grouping, statistics_between
from datastore.keyspace import earthquakes as keys
from datastore.model.composite_keys import split
from datastore.model.timestamps import epoch_ms, from_epoch_ms
from datastore.session.pagination import Page, Span, Values, read_page
from datastore.session.store import Store

LOG_LIFETIME = timedelta(days=7)
# A log takes less than 1 KB, and is in no index.
LOG_WRITE_UNITS = 1
DAY = timedelta(days=1)


class LogType(StrEnum):
    """The kind of request that a log describes."""

    INGEST = "INGEST"
    QUERY = "QUERY"


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The log of an ingest or a query. The optional fields apply to one of the two types only."""

    log_type: LogType
    request_id: str
    timestamp: datetime
    route: str
    status: int
    latency_ms: int
    fetched: int | None = None
    upserted: int | None = None
    skipped: int | None = None
    retries: int | None = None
    upstream_size: int | None = None
    upstream_hash: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    min_magnitude: float | None = None
    page_size: int | None = None
    result_count: int | None = None
    has_next_token: bool | None = None
    buckets_scanned: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class IngestState:
    """The feed of the last complete ingest of a source: its HTTP validators, its hash and its counts."""

    source: str
    upstream_hash: str
    fetched: int
    rejected: Mapping[str, int]
    etag: str | None = None
    last_modified: str | None = None


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


class Earthquakes:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime, bounds: KnownBounds | None = None) -> None:
        self._store = store
        self._now = now
        self._bounds = KnownBounds() if bounds is None else bounds

    async def insert(self, earthquake: Earthquake) -> bool:
        """QUAKE-1: store the event unless it is stored under any of its ids. Return whether it was new.

        A newer report of an event that is stored becomes a revision of it.
        """
        item = event_item(earthquake)
        known = await store_once(self._store, self._bounds, item, earthquake.other_ids)
        if known is not None:
            await revise(self._store, known, item)
        return known is None

    async def withdraw(self, event_id: str, deleted_at_ms: int, ingested_at_ms: int) -> bool:
        """QUAKE-1: add a revision that says that USGS deleted the event. Return whether it was added.

        Times are in epoch milliseconds. An event that is not stored has no revisions.
        """
        return await withdraw(self._store, event_id, deleted_at_ms, ingested_at_ms)

    async def latest(self, event_id: str) -> Earthquake | None:
        """QUAKE-N1: return the newest revision, or None. Raises `Internal` for a damaged item."""
        return record(event_from, await self._store.get(keys.LATEST, keys.latest(event_id)))

    async def revisions(self, event_id: str) -> list[Earthquake]:
        """QUAKE-N2: return up to `MAX_REVISIONS` revisions, newest first, without damaged items."""
        values = {"partition": keys.event(event_id).partition, "revisions": "REVISION#"}
        page = await self._store.query(keys.REVISIONS, values, limit=MAX_REVISIONS)
        return readable_records(event_from, page.items)

    async def between(
        self,
        start: datetime,
        end: datetime,
        span: Span,
        *,
        min_magnitude: float | None = None,
        kind: SeismicEventKind = SeismicEventKind.EARTHQUAKE,
        fields: frozenset[str] | None = None,
    ) -> Page:
        """QUAKE-2: return the events from `start` to `end`, both included, newest first.

        Events of the same time are in the order of the index. The window may move between two pages. If the span starts
        outside of it, the page begins at the nearest end of the window, or is empty if the whole window lies before it.
        `fields` names the fields of `Earthquake` that are needed; None means all.
        """
        values: dict[str, Any] = {"start": epoch_ms(start), "end": epoch_ms(end)}
        if min_magnitude is not None:
            values["minMagnitude"] = min_magnitude
        if kind is not SeismicEventKind.ANY:
            values["earthquake" if kind is SeismicEventKind.EARTHQUAKE else "noEarthquake"] = EARTHQUAKE
        if span.start is not None and not values["start"] <= span.start["gsi1sk"] <= values["end"]:
            newer = span.start["gsi1sk"] > values["end"]
            if newer is span.backward:
                return Page([], has_next=span.backward, has_previous=not span.backward, partitions=0)
            span = Span(span.size, span.backward)
        days = [values | {"partition": keys.day(bucket)} for bucket in day_buckets(start, end)]

        async def narrow(days: Sequence[Values]) -> list[Values]:
            buckets = [split(values["partition"])[1] for values in days]
            other = kind is SeismicEventKind.OTHER
            kept = await days_that_may_have(self._store, self._now, buckets, min_magnitude, other=other)
            return [values for values, bucket in zip(days, buckets, strict=True) if bucket in kept]

        return await read_page(self._store, keys.EVENTS_BY_DAY, days, span, attributes_of(fields), narrow=narrow)

    async def statistics(self, start: datetime, end: datetime, by: Grouping) -> EarthquakeStatistics:
        """QUAKE-6: return the numbers of earthquakes on the UTC days from that of `start` to that of `end`."""
        first, last = start.astimezone(UTC).date(), end.astimezone(UTC).date()
        return await statistics_between(self._store, self._now, first, last, by)

    async def by_id(self, event_id: str) -> Earthquake | None:
        """QUAKE-5: return the event with this id, which may be any of its ids, or None.

        Raises: `Internal` for a damaged item.
        """
        item = await self._store.get(keys.EVENT, keys.event(event_id))
        if item is not None and is_alias(item):
            item = await self._store.get(keys.EVENT, keys.event(str(item["aliasOf"])))
        return record(event_from, item)

    async def write_log(self, log: RequestLog) -> None:
        """QUAKE-3: store a request log."""
        await self._store.put(keys.WRITE_LOG, _log_item(log))

    async def logs_of(self, bucket: str, span: Span, log_type: LogType | None = None) -> Page:
        """QUAKE-4: return the logs of a day (YYYYMMDD), newest first."""
        values: dict[str, Any] = {"partition": keys.log_day(bucket), "now": int(self._now.timestamp())}
        if log_type is not None:
            values["type"] = log_type.value
        return await read_page(self._store, keys.LOGS_OF_DAY, [values], span)

    async def ingest_state(self, source: str) -> IngestState | None:
        """QUAKE-1: return the state of the last complete ingest of a source, or None."""
        item = await self._store.get(keys.INGEST_STATE, keys.ingest_state(source))
        return _state_from(item) if item else None

    async def save_ingest_state(self, state: IngestState) -> None:
        """QUAKE-1: store the state of a complete ingest."""
        await self._store.put(keys.INGEST_STATE, _state_item(state))


def day_buckets(start: datetime, end: datetime) -> list[str]:
    """Return the UTC days (YYYYMMDD) from that of `end` back to that of `start`."""
    first, last = start.astimezone(UTC).date(), end.astimezone(UTC).date()
    return [f"{last - offset * DAY:%Y%m%d}" for offset in range((last - first).days + 1)]


LOG_ATTRIBUTES = {
    "route": "route",
    "status": "status",
    "latency_ms": "latencyMs",
    "fetched": "fetched",
    "upserted": "upserted",
    "skipped": "skipped",
    "retries": "retries",
    "upstream_size": "upstreamSize",
    "upstream_hash": "upstreamHash",
    "min_magnitude": "minmagnitude",
    "page_size": "pageSize",
    "result_count": "resultCount",
    "has_next_token": "hasNextToken",
    "buckets_scanned": "bucketsScanned",
    "error": "error",
}


def _log_item(log: RequestLog) -> Item:
    key = keys.log(log.timestamp, log.request_id)
    item = {
        "pk": key.partition,
        "sk": key.sort,
        "entity": "LOG",
        "logType": log.log_type.value,
        "requestId": log.request_id,
        "timestamp": epoch_ms(log.timestamp),
        "starttime": None if log.start_time is None else epoch_ms(log.start_time),
        "endtime": None if log.end_time is None else epoch_ms(log.end_time),
        "ttl": epoch_ms(log.timestamp + LOG_LIFETIME) // 1000,
    }
    item |= {name: getattr(log, attribute) for attribute, name in LOG_ATTRIBUTES.items()}
    return {name: value for name, value in item.items() if value is not None}


def log_from(item: Mapping[str, Any]) -> RequestLog:
    return RequestLog(
        log_type=LogType(item["logType"]),
        request_id=item["requestId"],
        timestamp=from_epoch_ms(item["timestamp"]),
        start_time=from_epoch_ms(item["starttime"]) if "starttime" in item else None,
        end_time=from_epoch_ms(item["endtime"]) if "endtime" in item else None,
        **_figures(item),
    )


def _figures(item: Mapping[str, Any]) -> dict[str, Any]:
    return {attribute: item.get(name) for attribute, name in LOG_ATTRIBUTES.items()}


def _state_item(state: IngestState) -> Item:
    key = keys.ingest_state(state.source)
    item = {
        "pk": key.partition,
        "sk": key.sort,
        "entity": "INGEST_STATE",
        "source": state.source,
        "upstreamHash": state.upstream_hash,
        "fetched": state.fetched,
        "rejected": dict(state.rejected),
        "etag": state.etag,
        "lastModified": state.last_modified,
    }
    return {name: value for name, value in item.items() if value is not None}


def _state_from(item: Mapping[str, Any]) -> IngestState:
    return IngestState(
        source=item["source"],
        upstream_hash=item["upstreamHash"],
        fetched=item["fetched"],
        rejected=item["rejected"],
        etag=item.get("etag"),
        last_modified=item.get("lastModified"),
    )
