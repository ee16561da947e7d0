"""Batch processing of a stream's records: a change that cannot be handled does not delay changes of other items."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

from datastore.change_streams.change import Change, decode_change, encode_change
from datastore.change_streams.dead_letters import DeadLetter, DeadLetters, letter_of
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.primitives.retries import OutageLog, retry
from datastore.session.store import Store
from pipelines.consumer.failures import (
    OUTAGE,
    is_general_outage,
    is_outage,
    is_permanent,
    is_store_error,
    is_throttled,
)
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics

DECODING = "decode"  # in place of a handler's name, for records that could not be decoded
RETRIES = Backoff(initial=0.1, maximum=1.6, attempts=6)
MAX_CONCURRENCY = 32
# The number of failed items after which a batch is no longer split to find those that do not fail.
MAX_FAILED_ITEMS = 50

# The changes of one item, and the failure if there is a single change and its failure is known.
FailedItem = tuple[Sequence[Change], Exception | None]
# Returns whether a failure is retried.
ShouldRetry = Callable[[BaseException], bool]

logger = logging.getLogger(__name__)


class BatchProcessor:
    """A processor that passes each record to all handlers, and isolates records that cannot be handled.

    An outage of the store is retried `forever`, or else for the attempts of `outage` and then raised. After any other
    failure the batch is split until the item at fault is alone. Its changes are then retried one by one. A change that
    still fails becomes a dead letter; a change that cannot be stored as it is becomes one without retries. A batch that
    is throttled or times out is split as well, since one item or the size may be the reason. A single item is then
    retried, and never becomes a dead letter.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        metrics: StreamMetrics,
        *,
        retries: Backoff = RETRIES,
        outage: Backoff = OUTAGE,
        forever: bool = True,
    ) -> None:
        self.handlers = tuple(handlers)
        self._open_store = open_store
        self._now = now
        self._metrics = metrics
        self._retries = retries
        self._outage = outage
        self._forever = forever
        self._at_once = asyncio.Semaphore(MAX_CONCURRENCY)

    @property
    def max_delay_seconds(self) -> float:
        """Twice the total delay between the attempts of one change (seconds): half of it is for other changes."""
        return 2 * sum(self._retries.delays(lambda: 1.0))

    async def handle(
        self, table: str, records: Sequence[dict[str, Any]], max_delay_seconds: float | None = None
    ) -> None:
        """Handle the records. On return every handler has handled each record, or the record is a dead letter.

        `max_delay_seconds` limits the total delay between attempts (seconds).

        Raises: `ExceptionGroup` with an outage, unless outages are retried forever.
        """
        changes = [change for record in records if (change := await self._decoded(table, record)) is not None]
        if not changes:
            return
        max_delay_seconds = self.max_delay_seconds if max_delay_seconds is None else max_delay_seconds
        async with asyncio.TaskGroup() as tasks:
            for handler in self.handlers:
                tasks.create_task(self._handle(handler, changes, max_delay_seconds))

    async def _decoded(self, table: str, record: dict[str, Any]) -> Change | None:
        try:
            change = decode_change(table, record)
            _item(change)  # raises if the key's attributes are not hashable
            return change
        except Exception as problem:  # a record may be malformed in any way
            await self._bury(letter_of(table, DECODING, record, problem, 1, self._now()))
            return None

    async def _handle(self, handler: Handler, changes: Sequence[Change], max_delay_seconds: float) -> None:
        failed: list[FailedItem] = []
        # A throttled batch is retried before it is split; its parts are not.
        await self._split(handler, changes, failed, _retries_throttling(self._outage.attempts))
        async with asyncio.TaskGroup() as tasks:
            for item in failed:
                tasks.create_task(self._retry_item(handler, *item, max_delay_seconds))

    async def _split(
        self,
        handler: Handler,
        changes: Sequence[Change],
        failed: list[FailedItem],
        is_retried: ShouldRetry = is_general_outage,
    ) -> None:
        """Handle the changes, and after a failure each half of them. Add items that fail alone to `failed`."""
        by_item: dict[Any, list[Change]] = {}
        for change in changes:
            by_item.setdefault(_item(change), []).append(change)
        if len(failed) >= MAX_FAILED_ITEMS:
            failed += [(item_changes, None) for item_changes in by_item.values()]
            return
        try:
            await self._attempt(handler, changes, is_retried, partial(handler.handle, changes))
            return
        except Exception as problem:
            if is_general_outage(problem):
                raise
            if len(by_item) == 1:
                failed.append((changes, None if len(changes) > 1 or is_outage(problem) else problem))
                return
        first = set(list(by_item)[: len(by_item) // 2])
        await self._split(handler, [change for change in changes if _item(change) in first], failed)
        await self._split(handler, [change for change in changes if _item(change) not in first], failed)

    async def _retry_item(
        self, handler: Handler, changes: Sequence[Change], problem: Exception | None, max_delay_seconds: float
    ) -> None:
        """Handle an item's changes one by one. After one has failed all its retries, later ones have one attempt."""
        for change in changes:
            delayed = await self._retry(handler, change, problem, self._delays(max_delay_seconds))
            max_delay_seconds = -1.0 if delayed is None else max_delay_seconds - delayed

    def _delays(self, max_delay_seconds: float) -> list[float]:
        """Return the delays between the attempts of a change that fit into `max_delay_seconds`."""
        delays = list(self._retries.delays(lambda: 1.0))
        return [delay for delay, total in zip(delays, accumulate(delays), strict=True) if total <= max_delay_seconds]

    async def _retry(
        self, handler: Handler, change: Change, problem: Exception | None, delays: Sequence[float]
    ) -> float | None:
        """Retry a change until it is handled or buried. `problem` is the failure of the first attempt, if known.

        Return the total delay in seconds; None if the change was buried after all attempts.
        """
        problem, delayed, attempts = problem or await self._attempt_alone(handler, change), 0.0, 1
        for delay in delays:
            if problem is None or is_permanent(problem):
                break
            self._metrics.retried(change.table, handler.name)
            await asyncio.sleep(delay)
            problem, delayed, attempts = await self._attempt_alone(handler, change), delayed + delay, attempts + 1
        if problem is None:
            return delayed
        letter = letter_of(change.table, handler.name, encode_change(change), problem, attempts, self._now())
        await self._bury(letter)
        return delayed if is_permanent(problem) else None

    async def _attempt_alone(self, handler: Handler, change: Change) -> Exception | None:
        """Handle a single change. Return the failure, or raise it if it is an outage."""

        async def handle() -> None:
            async with self._at_once:  # a delayed retry holds no slot
                await handler.handle([change])

        try:
            await self._attempt(handler, [change], is_outage, handle)
        except Exception as problem:
            if is_outage(problem):
                raise
            return problem
        return None

    async def _attempt(
        self,
        handler: Handler,
        changes: Sequence[Change],
        is_retried: ShouldRetry,
        handle: Callable[[], Awaitable[None]],
    ) -> None:
        """Handle the changes. Retry failures for which `is_retried` holds, and raise others."""
        await self._retry_outage(handler.name, handle, is_retried)
        self._metrics.handled(changes[0].table, handler.name, len(changes))

    async def _bury(self, letter: DeadLetter) -> None:
        logger.error(
            "A change of %s is stored as a dead letter: handler %s failed on %s %s: %s: %s",
            self._open_store().prefix + letter.table,
            letter.handler,
            letter.event,
            letter.item_keys,
            letter.error_type,
            letter.error,
        )
        # Retried, since the record must not be dropped before its dead letter is stored.
        await self._retry_outage("dead letters", partial(self._store_letter, letter), is_store_error)
        self._metrics.buried(letter.table, letter.handler)

    async def _store_letter(self, letter: DeadLetter) -> None:
        await DeadLetters(self._open_store(), CONSUMER_TABLE).bury(letter)

    async def _retry_outage(self, action: str, call: Callable[[], Awaitable[None]], is_retried: ShouldRetry) -> None:
        def log_outage(problem: Exception) -> None:
            logger.warning("%s: the store failed; the call is retried: %s", action, problem)

        delays = self._outage.endless_delays() if self._forever else self._outage.delays()
        await retry(call, delays, is_retried, OutageLog(log_outage))


def _retries_throttling(attempts: int) -> ShouldRetry:
    """Return a predicate that holds for outages of all records, and for throttling during the first attempts."""
    left = attempts

    def is_retried(problem: BaseException) -> bool:
        nonlocal left
        left -= 1
        return is_general_outage(problem) or (is_throttled(problem) and left > 0)

    return is_retried


def _item(change: Change) -> tuple[str, frozenset[tuple[str, Any]]]:
    return change.table, frozenset(change.keys.items())
