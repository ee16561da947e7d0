"""Ingest of earthquake feeds (QUAKE-1): each event is stored once, however often its feed is read."""

import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO

import aiohttp

from datastore.dynamodb.client import Client, RequestRefused
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.earthquakes.earthquakes import Earthquakes, IngestState, IngestSummary, LogType, RequestLog
from datastore.earthquakes.events import Earthquake
from datastore.earthquakes.request_logs import RequestLogs
from datastore.errors import DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.model.timestamps import epoch_ms
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.earthquakes.usgs_events import Rejection, RejectionReason
from pipelines.earthquakes.usgs_feed import FeedCode, FeedError, read_events
from pipelines.earthquakes.usgs_fetch import FeedDownload, open_source

CONCURRENT_PUTS = 32
PUT_SECONDS = 30.0
SPOOL_BYTES = 8 << 20
PIECE = 64 * 1024
# An outage is not a string of bad records: give up when the store fails this often.
MOST_FAILURES = 100
ROUTE = "ingest/earthquakes"
CANCELLED = "CANCELLED"
# What failed, as the request log tells it; a fault of the feed itself where nothing else is said.
UPSTREAM_FAILED = 502
STATUS = {
    FeedCode.BAD_SOURCE: 400,
    FeedCode.NOT_FOUND: 404,
    FeedCode.RATE_LIMITED: 429,
    FeedCode.TIMEOUT: 504,
    CANCELLED: 499,
    Internal.code: 500,
    Throttled.code: 503,
    Unavailable.code: 503,
    Timeout.code: 504,
}
# A body may stop coming in these ways; what came is read all the same.
BROKEN_OFF = (FeedCode.TRUNCATED, FeedCode.TIMEOUT)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestProgress:
    """How far an ingest is. `received` and `expected` in bytes; expected is None when the source does not tell."""

    received: int = 0
    expected: int | None = None
    fetched: int = 0
    upserted: int = 0
    skipped: int = 0


class _StoreFails(Exception):
    """Too many events could not be stored; `code` is the last failure's."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class EarthquakeIngest:
    """Ingests feeds into the store. One per process; runs may overlap, the store keeps each event once."""

    def __init__(
        self,
        client: Client,
        *,
        prefix: str,
        logs: RequestLogs,
        session: aiohttp.ClientSession,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._logs = logs
        self._session = session
        self._now = now
        self._new_id = new_id
        self._bounds = KnownBounds()

    async def run(self, source: str, on_progress: Callable[[IngestProgress], None] = lambda _: None) -> IngestSummary:
        """Read the feed (a USGS feed's name, an http(s) URL, or a file) and store what is new.

        A failure on the way is the summary's `error`; what came before it is stored, and the next run goes over the
        feed again. Raises nothing but programming errors.
        """
        began, moment = time.perf_counter(), self._now()
        run = _Run(self, source, on_progress, epoch_ms(moment))
        try:
            await run.go()
        except FeedError as problem:
            run.fail(problem.code.value, problem, retries=problem.retries)
        except (DomainError, _StoreFails) as problem:
            run.fail(problem.code, problem)
        except BaseException as problem:
            run.fail(CANCELLED if isinstance(problem, asyncio.CancelledError) else Internal.code, problem)
            raise
        finally:
            summary = replace(run.summary, latency_ms=round((time.perf_counter() - began) * 1000))
            self._log(summary, moment)
        return summary

    def repository(self) -> Earthquakes:
        store = Store(self._client, prefix=self._prefix, deadline=Deadline(PUT_SECONDS), token=self._new_id)
        return Earthquakes(store, self._now(), self._bounds)

    def open(self, source: str, state: IngestState | None) -> AbstractAsyncContextManager[FeedDownload]:
        """The source, asked for only if it changed since `state`."""
        etag, modified = (state.etag, state.last_modified) if state else (None, None)
        return open_source(source, session=self._session, etag=etag, last_modified=modified)

    def _log(self, summary: IngestSummary, moment: datetime) -> None:
        self._logs.add(
            RequestLog(
                log_type=LogType.INGEST,
                request_id=self._new_id(),
                timestamp=moment,
                route=ROUTE,
                status=200 if summary.error is None else STATUS.get(summary.error, UPSTREAM_FAILED),
                latency_ms=summary.latency_ms,
                fetched=summary.fetched,
                upserted=summary.upserted,
                skipped=summary.skipped,
                retries=summary.retries,
                upstream_size=summary.upstream_size,
                upstream_hash=summary.upstream_hash,
                error=summary.error,
            )
        )


class _Run:
    """One ingest of one source."""

    def __init__(
        self, ingest: EarthquakeIngest, source: str, on_progress: Callable[[IngestProgress], None], ingested_at_ms: int
    ) -> None:
        self.summary = IngestSummary(source)
        self._ingest = ingest
        self._source = source
        self._on_progress = on_progress
        self._ingested_at_ms = ingested_at_ms
        self._progress = IngestProgress()
        self._rejected: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    async def go(self) -> None:
        state = await self._ingest.repository().ingest_state(self._source)
        async with self._ingest.open(self._source, state) as source:
            self._progress.expected = source.total
            if source.not_modified and state is not None:
                self._unchanged(state, source)
                return
            with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
                broken_off = await self._download(source, spool)
                if state is not None and state.upstream_hash == source.sha256:
                    self._unchanged(state, source)
                    return
                await self._store_what_came(spool, broken_off)
            if not self._failed:
                await self._remember(source)

    def fail(self, code: str, problem: BaseException, *, retries: int = 0) -> None:
        self.summary = replace(self.summary, error=code, retries=retries or self.summary.retries)
        logger.warning("Ingest of %s: %s", self._source, problem or code)

    async def _download(self, source: FeedDownload, spool: IO[bytes]) -> FeedError | None:
        """To the end first: only the whole feed's hash tells whether it is the last one again.

        How it was broken off, if it was.
        """
        try:
            async for part in source.chunks():
                spool.write(part)
                self._progress.received = source.size
                self._on_progress(self._progress)
        except FeedError as problem:
            if problem.code not in BROKEN_OFF:
                raise
            return problem
        finally:
            spool.seek(0)
            self.summary = replace(
                self.summary, retries=source.retries, upstream_size=source.size, upstream_hash=source.sha256
            )
        return None

    async def _store_what_came(self, spool: IO[bytes], broken_off: FeedError | None) -> None:
        try:
            await self._store_all(read_events(_pieces(spool), ingested_at_ms=self._ingested_at_ms))
        except FeedError as problem:
            raise broken_off or problem from problem
        if broken_off is not None:
            raise broken_off

    def _unchanged(self, state: IngestState, source: FeedDownload) -> None:
        self.summary = replace(
            self.summary,
            fetched=state.fetched,
            skipped=state.fetched - sum(state.rejected.values()),
            rejected=dict(state.rejected),
            unchanged=True,
            retries=source.retries,
            upstream_hash=state.upstream_hash,
        )

    async def _store_all(self, events: AsyncIterator[Earthquake | Rejection]) -> None:
        """A few puts at a time, so that a large feed neither waits for each event nor piles them up."""
        places = asyncio.Semaphore(CONCURRENT_PUTS)
        puts: set[asyncio.Task[None]] = set()
        try:
            async for event in events:
                if isinstance(event, Rejection) and not (event.reason is RejectionReason.DELETED and event.event_id):
                    self._progress.fetched += 1
                    self._rejected[event.reason.value] += 1
                    continue
                await places.acquire()
                self._give_up_if_down()
                self._progress.fetched += 1
                put = asyncio.create_task(self._put(event, places))
                puts.add(put)
                put.add_done_callback(puts.discard)
        finally:
            # What was read before a feed broke off stands.
            await asyncio.gather(*puts)
            self._count()

    async def _put(self, event: Earthquake | Rejection, places: asyncio.Semaphore) -> None:
        try:
            new = await self._write(event)
        except DomainError as problem:
            self._failed[problem.code] += 1
            return
        except RequestRefused as problem:
            self._failed[Internal.code] += 1
            logger.error("The store refuses the event %r: %s", event.event_id, problem)
            return
        finally:
            places.release()
        if isinstance(event, Rejection):
            self._rejected[event.reason.value] += 1
        else:
            self._progress.upserted += new
            self._progress.skipped += not new
        self._on_progress(self._progress)

    async def _write(self, event: Earthquake | Rejection) -> bool:
        repository = self._ingest.repository()
        if isinstance(event, Earthquake):
            return await repository.insert(event)
        deleted_at_ms = self._ingested_at_ms if event.updated_at_ms is None else event.updated_at_ms
        return await repository.withdraw(event.event_id or "", deleted_at_ms, self._ingested_at_ms)

    def _give_up_if_down(self) -> None:
        if self._failed.total() >= MOST_FAILURES:
            raise _StoreFails(self._failed.most_common(1)[0][0])

    def _count(self) -> None:
        failed = {f"STORE_{code}": count for code, count in self._failed.items()}
        self.summary = replace(
            self.summary,
            fetched=self._progress.fetched,
            upserted=self._progress.upserted,
            skipped=self._progress.skipped,
            rejected={**self._rejected, **failed},
            error=next(iter(self._failed), None),
        )

    async def _remember(self, source: FeedDownload) -> None:
        await self._ingest.repository().save_ingest_state(
            IngestState(
                source=self._source,
                upstream_hash=source.sha256,
                fetched=self._progress.fetched,
                rejected=dict(self._rejected),
                etag=source.etag,
                last_modified=source.last_modified,
            )
        )


async def _pieces(spool: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := spool.read(PIECE):
        yield piece
