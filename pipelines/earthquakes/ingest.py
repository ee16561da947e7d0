"""The ingest of earthquake feeds (QUAKE-1). Reading a feed again stores no event twice."""

import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING

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

if TYPE_CHECKING:
    import aiohttp

    from pipelines.earthquakes.usgs_fetch import FeedDownload

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
# The fields that the request log has in common with the summary.
LOGGED = (
    *("latency_ms", "fetched", "upserted", "skipped"),
    *("retries", "upstream_size", "upstream_hash", "error"),
)
# After these errors of a download, the part that arrived is read nevertheless.
INTERRUPTIONS = (FeedCode.TRUNCATED, FeedCode.TIMEOUT)

logger = logging.getLogger(__name__)


class _StoreFailed(Exception):
    """Too many events could not be stored. `code` is the most frequent error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class EarthquakeIngest:
    """The ingest of feeds into the store, one object per process.

    Runs may overlap: conditional writes store each event once.
    """

    client: Client
    prefix: str
    logs: RequestLogs
    open_session: Callable[[], "aiohttp.ClientSession"]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    bounds: KnownBounds = field(default_factory=KnownBounds)

    async def run(self, source: str, on_progress: Callable[["IngestRun"], None] = lambda _: None) -> IngestSummary:
        """Read a feed (a USGS feed's name, an http(s) URL, or a file) and store its new events and revisions.

        A failure is the summary's `error`. The events before it are stored, and the next run reads the feed again.
        Only programming errors are raised.
        """
        began, moment = time.perf_counter(), self.now()
        run = IngestRun(self, source, on_progress, epoch_ms(moment))
        try:
            await run.ingest()
        except (FeedError, DomainError, _StoreFailed) as problem:
            run.fail(str(problem.code), problem)
        except BaseException as problem:
            run.fail(CANCELLED if isinstance(problem, asyncio.CancelledError) else Internal.code, problem)
            raise
        finally:
            summary = run.summary(round((time.perf_counter() - began) * 1000))
            self._log(summary, moment)
        return summary

    def repository(self) -> Earthquakes:
        store = Store(self.client, prefix=self.prefix, deadline=Deadline(PUT_SECONDS), token=self.new_id, now=self.now)
        return Earthquakes(store, self.now(), self.bounds)

    def _log(self, summary: IngestSummary, moment: datetime) -> None:
        status = 200 if summary.error is None else STATUS.get(summary.error, UPSTREAM_FAILED)
        details = {name: getattr(summary, name) for name in LOGGED}
        self.logs.add(RequestLog(LogType.INGEST, self.new_id(), moment, ROUTE, status, **details))


class IngestRun:
    """One ingest of one source, with its progress."""

    def __init__(
        self, ingest: EarthquakeIngest, source: str, on_progress: Callable[["IngestRun"], None], ingested_at_ms: int
    ) -> None:
        self._ingest = ingest
        self._source = source
        self._on_progress = on_progress
        self._ingested_at_ms = ingested_at_ms
        #: In bytes.
        self.received = 0
        #: In bytes; None when the source does not state its size.
        self.expected: int | None = None
        self.fetched = self.upserted = self.skipped = 0
        self._rejected: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._retries = 0
        self._error: str | None = None
        self._download: FeedDownload | None = None  # from the first byte on
        self._unchanged: IngestState | None = None  # the state of the last run, if the feed is the same

    async def ingest(self) -> None:
        """Download the feed and store its events. Raises the errors that end the run."""
        state = await self._ingest.repository().ingest_state(self._source)
        etag, modified = (state.etag, state.last_modified) if state else (None, None)
        # Imported late: aiohttp is only loaded if feeds are read.
        from pipelines.earthquakes.usgs_fetch import open_source

        session = self._ingest.open_session()
        async with open_source(self._source, session=session, etag=etag, last_modified=modified) as source:
            self._retries = source.retries
            self.expected = source.total
            if source.not_modified and state is not None:
                self._keep_state(state)
                return
            with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
                interruption = await self._spool(source, spool)
                if state is not None and state.upstream_hash == source.sha256:
                    self._keep_state(state)
                    return
                await self._store_spool(spool, interruption)
            if not self._failed:
                counts = self.fetched, dict(self._rejected)
                state = IngestState(self._source, source.sha256, *counts, source.etag, source.last_modified)
                await self._ingest.repository().save_ingest_state(state)

    def fail(self, code: str, problem: BaseException) -> None:
        """Record the error that ended the run, and log it."""
        self._error, self._retries = code, getattr(problem, "retries", 0) or self._retries
        logger.warning("Ingest of %s: %s", self._source, problem or code)

    def summary(self, latency_ms: int) -> IngestSummary:
        download = self._download
        downloaded_hash = None if download is None else download.sha256
        return IngestSummary(
            self._source,
            fetched=self.fetched,
            upserted=self.upserted,
            skipped=self.skipped,
            rejected={**self._rejected, **{f"STORE_{code}": count for code, count in self._failed.items()}},
            unchanged=self._unchanged is not None,
            retries=self._retries,
            upstream_size=0 if download is None else download.size,
            upstream_hash=downloaded_hash if self._unchanged is None else self._unchanged.upstream_hash,
            latency_ms=latency_ms,
            error=self._error or next(iter(self._failed), None),
        )

    async def _spool(self, source: "FeedDownload", spool: IO[bytes]) -> FeedError | None:
        """Download the whole feed before it is read: its hash shows whether it is the same as the last one.

        Return the error that interrupted the download, if any.
        """
        self._download = source
        try:
            async for part in source.chunks():
                spool.write(part)
                self.received = source.size
                self._on_progress(self)
        except FeedError as problem:
            if problem.code not in INTERRUPTIONS:
                raise
            return problem
        finally:
            spool.seek(0)
        return None

    async def _store_spool(self, spool: IO[bytes], interruption: FeedError | None) -> None:
        """Store the events that were downloaded. Raises the interruption of the download, or the feed's error."""
        try:
            await self._store_all(read_events(spool, ingested_at_ms=self._ingested_at_ms))
        except FeedError as problem:
            raise interruption or problem from problem
        if interruption is not None:
            raise interruption

    def _keep_state(self, state: IngestState) -> None:
        """Count the events of the last run, since the feed has not changed."""
        self._unchanged = state
        self._rejected = Counter(state.rejected)
        self.fetched, self.skipped = state.fetched, state.fetched - self._rejected.total()

    async def _store_all(self, events: AsyncIterator[Earthquake | Rejection]) -> None:
        """Write the events with a limit of concurrent writes, so that a large feed does not fill the memory."""
        slots = asyncio.Semaphore(CONCURRENT_PUTS)
        puts: set[asyncio.Task[None]] = set()
        try:
            async for event in events:
                if isinstance(event, Rejection) and not (event.reason is RejectionReason.DELETED and event.event_id):
                    self.fetched += 1
                    self._rejected[event.reason.value] += 1
                    continue
                await slots.acquire()
                if self._failed.total() >= MAX_FAILURES:
                    raise _StoreFailed(self._failed.most_common(1)[0][0])
                self.fetched += 1
                put = asyncio.create_task(self._put(event, slots))
                puts.add(put)
                put.add_done_callback(puts.discard)
        finally:
            # The events before an error are stored and counted.
            await asyncio.gather(*puts)

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
            self.upserted += new
            self.skipped += not new
        self._on_progress(self)

    async def _write(self, event: Earthquake | Rejection) -> bool:
        repository = self._ingest.repository()
        if isinstance(event, Earthquake):
            return await repository.insert(event)
        deleted_at_ms = self._ingested_at_ms if event.updated_at_ms is None else event.updated_at_ms
        return await repository.withdraw(event.event_id or "", deleted_at_ms, self._ingested_at_ms)
