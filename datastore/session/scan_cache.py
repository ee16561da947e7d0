"""A cache of the Scans of small tables and of shared lists, for all requests of the process."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item
from datastore.errors import Timeout
from datastore.model.access_patterns import AccessPattern, Table
from datastore.primitives.single_flight import SingleFlight, result_of
from datastore.session.read_trace import SharedRead, current_field
from datastore.session.store import Store

Value = TypeVar("Value")

LIFETIME = timedelta(seconds=30)


def _lifetime(pattern: AccessPattern) -> timedelta:
    return timedelta(milliseconds=pattern.shared_ms) if pattern.shared_ms else LIFETIME


@dataclass(frozen=True, slots=True)
class _CachedScan:
    """A Scan that is in flight or has finished."""

    started_at: datetime
    task: asyncio.Task[Any]


class ScanCache:
    """A process's cache of Scans. Concurrent callers share one Scan. A write by this process invalidates it at once.

    `open_store` opens a store with its own deadline for the Scan, so that the Scan outlives the first caller. Writes of
    other processes become visible when the entry expires, after 30 seconds or the pattern's `shared_ms`.
    """

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._now = now
        #: The time of the latest failure to read the index, by the pattern that reads it.
        self.refused_at: dict[AccessPattern, datetime] = {}
        self._scans: dict[AccessPattern, _CachedScan] = {}
        self._running = SingleFlight[AccessPattern, Any]()

    async def scan(
        self, caller: Store, pattern: AccessPattern, convert: Callable[[list[Item]], Value], **values: Any
    ) -> Value:
        """Return the pattern's items, converted. Calls for one pattern must pass the same `values` and `convert`."""

        async def fetch(store: Store) -> Value:
            return convert(await store.scan(pattern, **values))

        return await self.read(caller, pattern, fetch)

    async def read(self, caller: Store, pattern: AccessPattern, fetch: Callable[[Store], Awaitable[Value]]) -> Value:
        """Return the result of `fetch`, from the cache or from a Scan.

        Calls for one pattern must pass the same `fetch`. The meter of the caller that starts the Scan is charged.

        Raises the error of the Scan, or `Timeout` if the caller's deadline passes first. Errors are not cached.
        """
        scan = self._scans.get(pattern)
        if scan is None or not timedelta(0) <= self._now() - scan.started_at < _lifetime(pattern):
            scan = self._scans[pattern] = self._start(caller, pattern, fetch)
        elif caller.meter.detailed:
            caller.meter.hits.append(SharedRead(current_field.get(), pattern.id, None))
        try:
            found: Value = await result_of(scan.task, caller.deadline.remaining())
        except TimeoutError:
            raise Timeout("The store did not answer in time.") from None
        return found

    def invalidate(self, table: Table) -> None:
        """Drop the table's Scans, because it was just written. A Scan in flight is not cached either."""
        for pattern in [pattern for pattern in self._scans if pattern.table is table]:
            del self._scans[pattern]

    async def aclose(self) -> None:
        """Cancel the Scans in flight, and wait for their end."""
        await self._running.aclose()

    def _start(self, caller: Store, pattern: AccessPattern, fetch: Callable[[Store], Awaitable[Value]]) -> _CachedScan:
        # Here, not in the Scan: its waiters would receive the error of this caller.
        caller.meter.check_limit(pattern.operations[0])

        async def read_all() -> Value:
            store = self._open_store()
            store.meter = caller.meter
            return await fetch(store)

        self._running.forget(pattern)  # one in flight is too old, or was invalidated
        scan = _CachedScan(self._now(), self._running.start(pattern, read_all))
        scan.task.add_done_callback(lambda _: self._scan_done(pattern, scan))
        return scan

    def _scan_done(self, pattern: AccessPattern, scan: _CachedScan) -> None:
        failed = scan.task.cancelled() or scan.task.exception() is not None
        if failed and self._scans.get(pattern) is scan:
            del self._scans[pattern]
