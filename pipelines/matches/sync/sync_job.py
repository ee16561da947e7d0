"""The base of sync jobs: a run under a lock that writes the provider's records where they differ."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

from datastore.dynamodb.client import RequestRefused
from datastore.errors import BadUserInput, DomainError
from datastore.keyspace.matches.locks import job_lock
from datastore.matches.locks import Locks
from datastore.session.store import Store
from pipelines.matches.providers.provider import Provider, ProviderError

# Longer than the slowest step of a run: a request to the provider with its retries.
LOCK_SECONDS = 120.0
BATCH_SIZE = 100

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a run."""

    #: The provider's records.
    fetched: int = 0
    #: The records that differed and were written.
    written: int = 0
    #: The records that differed and could not be stored.
    rejected: int = 0
    #: Another instance held the lock, so the run did nothing.
    locked: bool = False
    #: The error that ended the run early. Earlier writes remain.
    error: str | None = None

    def __str__(self) -> str:
        words = f"{self.fetched:,} fetched, {self.written:,} written"
        if self.rejected:
            words += f", {self.rejected:,} rejected"
        return words if self.error is None else f"{words}, ended early ({self.error})"


class _LockLost(Exception):
    """Another instance took over the job because this one outlived its lock."""


class SyncJob:
    """A job with one run at a time among all instances. `open_store` returns a new store, with a new deadline."""

    name: ClassVar[str]

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._held_since = now()
        self._result = SyncResult()

    async def run(self) -> SyncResult:
        """Run once. Raises the store's errors on taking the lock; later failures end the run and are in the result."""
        self._held_since = self._now()
        if not await self._locks().acquire(job_lock(self.name), LOCK_SECONDS):
            return SyncResult(locked=True)
        self._result = SyncResult()
        try:
            await self._sync()
        except (ProviderError, DomainError, _LockLost) as problem:
            logger.warning("Sync of %s ended early: %s", self.name, problem or "its lock was lost")
            self._result = replace(self._result, error=type(problem).__name__.lstrip("_"))
        finally:
            await self._unlock()
        return self._result

    async def _sync(self) -> None:
        raise NotImplementedError

    async def _write(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        """Write records in batches. If the store refuses a batch, write its records one by one and count rejections."""
        for start in range(0, len(records), BATCH_SIZE):
            batch = records[start : start + BATCH_SIZE]
            await self._extend_lock()
            try:
                await write(self._open_store(), batch)
                self._result = replace(self._result, written=self._result.written + len(batch))
            except (BadUserInput, RequestRefused):
                await self._write_each(batch, write)

    async def _write_each(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        for record in records:
            await self._extend_lock()
            try:
                await write(self._open_store(), [record])
                self._result = replace(self._result, written=self._result.written + 1)
            except (BadUserInput, RequestRefused) as problem:
                logger.warning("Sync of %s: skipping %.200r, which cannot be stored: %s", self.name, record, problem)
                self._result = replace(self._result, rejected=self._result.rejected + 1)

    def _count_fetched(self, records: Sequence[T]) -> Sequence[T]:
        self._result = replace(self._result, fetched=self._result.fetched + len(records))
        return records

    async def _extend_lock(self) -> None:
        """Extend the lock after half its lifetime.

        Raises: _LockLost if another instance holds it.
        """
        if self._now() - self._held_since < timedelta(seconds=LOCK_SECONDS / 2):
            return
        self._held_since = self._now()
        if not await self._locks().extend(job_lock(self.name), LOCK_SECONDS):
            raise _LockLost

    async def _unlock(self) -> None:
        try:
            await self._locks().release(job_lock(self.name))
        except DomainError as problem:
            logger.warning("Could not release the lock of job %s; it expires by itself: %s", self.name, problem)

    def _locks(self) -> Locks:
        return Locks(self._open_store(), self._instance_id, self._now())
