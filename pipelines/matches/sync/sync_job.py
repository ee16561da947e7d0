"""A sync job: under a lock of its own, it writes what the provider says where that differs from what is stored."""

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
AT_ONCE = 100

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Synced:
    """How a run went: of the `fetched` records of the provider those that differed were `written` or, bad, `rejected`.

    `locked`: another instance was at it, so nothing was done. `error`: what ended the run early, and what was written
    before it stays.
    """

    fetched: int = 0
    written: int = 0
    rejected: int = 0
    locked: bool = False
    error: str | None = None

    def __str__(self) -> str:
        words = f"{self.fetched:,} fetched, {self.written:,} written"
        if self.rejected:
            words += f", {self.rejected:,} rejected"
        return words if self.error is None else f"{words}, ended early ({self.error})"


class _LockLost(Exception):
    """Another instance took the job over, for this one was slower than its lock lives."""


class SyncJob:
    """A run at a time among all instances. `open_store` gives a fresh store, and so a fresh deadline, for each step."""

    name: ClassVar[str]

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        *,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._lock_seconds = lock_seconds
        self._held_since = now()
        self._done = Synced()

    async def run(self) -> Synced:
        """Raises what the store raises on taking the lock; later failures end the run, and are logged and told."""
        self._held_since = self._now()
        if not await self._locks().acquire(job_lock(self.name), self._lock_seconds):
            return Synced(locked=True)
        self._done = Synced()
        try:
            await self._sync()
        except (ProviderError, DomainError, _LockLost) as problem:
            logger.warning("Sync of %s ended early: %s", self.name, problem or "its lock was lost")
            self._done = replace(self._done, error=type(problem).__name__.lstrip("_"))
        finally:
            await self._unlock()
        return self._done

    async def _sync(self) -> None:
        raise NotImplementedError

    async def _write(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        """Write records, a hundred at a time. Where the store refuses some, each by itself: then one is rejected."""
        for at in range(0, len(records), AT_ONCE):
            some = records[at : at + AT_ONCE]
            await self._keep_lock()
            try:
                await write(self._open_store(), some)
                self._done = replace(self._done, written=self._done.written + len(some))
            except (BadUserInput, RequestRefused):
                await self._write_each(some, write)

    async def _write_each(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        for one in records:
            await self._keep_lock()
            try:
                await write(self._open_store(), [one])
                self._done = replace(self._done, written=self._done.written + 1)
            except (BadUserInput, RequestRefused) as problem:
                logger.warning("Sync of %s: %.200r cannot be stored: %s", self.name, one, problem)
                self._done = replace(self._done, rejected=self._done.rejected + 1)

    def _fetched(self, records: Sequence[T]) -> Sequence[T]:
        self._done = replace(self._done, fetched=self._done.fetched + len(records))
        return records

    async def _keep_lock(self) -> None:
        """Extend the lock when half its time is over. Raises `_LockLost`."""
        if self._now() - self._held_since < timedelta(seconds=self._lock_seconds / 2):
            return
        self._held_since = self._now()
        if not await self._locks().extend(job_lock(self.name), self._lock_seconds):
            raise _LockLost

    async def _unlock(self) -> None:
        try:
            await self._locks().release(job_lock(self.name))
        except DomainError as problem:
            logger.warning("The lock of the job %s is left to expire: %s", self.name, problem)

    def _locks(self) -> Locks:
        return Locks(self._open_store(), self._instance_id, self._now())
