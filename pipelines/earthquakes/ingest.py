"""The ingest of earthquake feeds (QUAKE-1). Reading a feed again stores no event twice."""

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
# An ingest ends after this many failed writes: the store has an outage then, not a few bad records.
MAX_FAILURES = 100
ROUTE = "ingest/earthquakes"
CANCELLED = "CANCELLED"
# The HTTP status that the request log shows for an error code. All other codes are faults of the feed.
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
# After these errors of a download, the part that arrived is read nevertheless.
INTERRUPTIONS = (FeedCode.TRUNCATED, FeedCode.TIMEOUT)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestProgress:
    """The progress of an ingest."""

    #: In bytes.
    received: int = 0
    #: In bytes; None when the source does not state its size.
    expected: int | None = None
    fetched: int = 0
    upserted: int = 0
    skipped: int = 0


class _StoreFailed(Exception):
    """Too many events could not be stored. `code` is the most frequent error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class EarthquakeIngest:
    """The ingest of feeds into the store, one object per process.

    Runs may overlap: conditional writes store each event once.
    """

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
        """Read a feed (a USGS feed's name, an http(s) URL, or a file) and store its new events and revisions.

        A failure is the summary's `error`. The events before it are stored, and the next run reads the feed again.
        Only programming errors are raised.
        """
        began, moment = time.perf_counter(), self._now()
        run = _Run(self, source, on_progress, epoch_ms(moment))
        try:
            await run.ingest()
        except FeedError as problem:
            run.fail(problem.code.value, problem, retries=problem.retries)
        except (DomainError, _StoreFailed) as problem:
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
        """Open the source with a request that is conditional on a change since `state`."""
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

    async def ingest(self) -> None:
        """Download the feed and store its events. Raises the errors that end the run."""
        state = await self._ingest.repository().ingest_state(self._source)
        async with self._ingest.open(self._source, state) as source:
            self._progress.expected = source.total
            if source.not_modified and state is not None:
                self._report_unchanged(state, source)
                return
            with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
                interruption = await self._download(source, spool)
                if state is not None and state.upstream_hash == source.sha256:
                    self._report_unchanged(state, source)
                    return
                await self._store_spool(spool, interruption)
            if not self._failed:
                await self._save_state(source)

    def fail(self, code: str, problem: BaseException, *, retries: int = 0) -> None:
        """Add an error to the summary and log it."""
        self.summary = replace(self.summary, error=code, retries=retries or self.summary.retries)
        logger.warning("Ingest of %s: %s", self._source, problem or code)

    async def _download(self, source: FeedDownload, spool: IO[bytes]) -> FeedError | None:
        """Download the whole feed before it is read: its hash shows whether it is the same as the last one.

        Return the error that interrupted the download, if any.
        """
        try:
            async for part in source.chunks():
                spool.write(part)
                self._progress.received = source.size
                self._on_progress(self._progress)
        except FeedError as problem:
            if problem.code not in INTERRUPTIONS:
                raise
            return problem
        finally:
            spool.seek(0)
            self.summary = replace(
                self.summary, retries=source.retries, upstream_size=source.size, upstream_hash=source.sha256
            )
        return None

    async def _store_spool(self, spool: IO[bytes], interruption: FeedError | None) -> None:
        """Store the events that were downloaded. Raises the interruption of the download, or the feed's error."""
        try:
            await self._store_all(read_events(spool, ingested_at_ms=self._ingested_at_ms))
        except FeedError as problem:
            raise interruption or problem from problem
        if interruption is not None:
            raise interruption

    def _report_unchanged(self, state: IngestState, source: FeedDownload) -> None:
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
        """Write the events with a limit of concurrent writes, so that a large feed does not fill the memory."""
        slots = asyncio.Semaphore(CONCURRENT_PUTS)
        puts: set[asyncio.Task[None]] = set()
        try:
            async for event in events:
                if isinstance(event, Rejection) and not (event.reason is RejectionReason.DELETED and event.event_id):
                    self._progress.fetched += 1
                    self._rejected[event.reason.value] += 1
                    continue
                await slots.acquire()
                self._check_failures()
                self._progress.fetched += 1
                put = asyncio.create_task(self._put(event, slots))
                puts.add(put)
                put.add_done_callback(puts.discard)
        finally:
            # The events before an error are stored and counted.
            await asyncio.gather(*puts)
            self._summarize()

    async def _put(self, event: Earthquake | Rejection, slots: asyncio.Semaphore) -> None:
        try:
            new = await self._write(event)
        except DomainError as problem:
            self._failed[problem.code] += 1
            return
        except RequestRefused as problem:
            self._failed[Internal.code] += 1
            logger.error("The store refused the event %r: %s", event.event_id, problem)
            return
        finally:
            slots.release()
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

    def _check_failures(self) -> None:
        if self._failed.total() >= MAX_FAILURES:
            raise _StoreFailed(self._failed.most_common(1)[0][0])

    def _summarize(self) -> None:
        failed = {f"STORE_{code}": count for code, count in self._failed.items()}
        self.summary = replace(
            self.summary,
            fetched=self._progress.fetched,
            upserted=self._progress.upserted,
            skipped=self._progress.skipped,
            rejected={**self._rejected, **failed},
            error=next(iter(self._failed), None),
        )

    async def _save_state(self, source: FeedDownload) -> None:
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
