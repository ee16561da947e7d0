"""Handles batches of a stream's records: every handler gets each change, and one at fault holds up no other item's."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

from datastore.change_streams.dead_letters import DeadLetter, DeadLetters, letter_of
from datastore.change_streams.shards.stream_reader import Change, decode_change, encode_change
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.session.store import Store
from pipelines.consumer.failures import (
    OUTAGE,
    is_any_refusal,
    is_for_all,
    is_outage,
    is_permanent,
    is_throttled,
    waited_out,
)
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics

DECODING = "decode"  # in the place of a handler's name, for records that no handler was given
RETRIES = Backoff(initial=0.1, maximum=1.6, attempts=6)  # a first try, and five more
AT_ONCE = 32
# When so many items have failed alone it is no use to look for those that would not.
MANY = 50

# The changes of one item, and what is wrong with the only one, as far as that is known.
Failed = tuple[Sequence[Change], Exception | None]
Passes = Callable[[BaseException], bool]

logger = logging.getLogger(__name__)


class BatchProcessor:
    """Brings records to all handlers.

    An outage of the store is waited out (`for_ever`, else for the tries of `outage`; then it is raised). For any other
    failure the batch is split until the item at fault is alone; its changes are then tried one by one, and one that
    goes on failing is buried, at once where it cannot be stored as it is. What is throttled or late is split as well,
    for it may be one item's fault, or too much at once; the item that is left alone with it is waited for, and never
    buried.
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
        for_ever: bool = True,
    ) -> None:
        self.handlers = tuple(handlers)
        self._open_store = open_store
        self._now = now
        self._metrics = metrics
        self._retries = retries
        self._outage = outage
        self._for_ever = for_ever
        self._at_once = asyncio.Semaphore(AT_ONCE)

    @property
    def patience(self) -> float:
        """How many seconds are waited between the tries of one change, at the most, and as many again for others."""
        return 2 * sum(self._retries.delays(lambda: 1.0))

    async def handle(self, table: str, records: Sequence[dict[str, Any]], patience: float | None = None) -> None:
        """Returns when every record has been handled by every handler, or buried.

        `patience` (seconds) limits what is waited between tries, whatever fails. Raises the store's outages, in an
        `ExceptionGroup`, unless they are waited out for ever.
        """
        changes = [change for record in records if (change := await self._decoded(table, record)) is not None]
        if not changes:
            return
        patience = self.patience if patience is None else patience
        async with asyncio.TaskGroup() as tasks:
            for handler in self.handlers:
                tasks.create_task(self._handle(handler, changes, patience))

    async def _decoded(self, table: str, record: dict[str, Any]) -> Change | None:
        try:
            change = decode_change(table, record)
            _item(change)  # keys of other kinds than a key has cannot be told apart
            return change
        except Exception as problem:  # whatever is in it
            await self._bury(letter_of(table, DECODING, record, problem, 1, self._now()))
            return None

    async def _handle(self, handler: Handler, changes: Sequence[Change], patience: float) -> None:
        failed: list[Failed] = []
        # The whole is given some time before it is split for being throttled, the pieces are not.
        await self._split(handler, changes, failed, _passes_at_first(self._outage.attempts))
        async with asyncio.TaskGroup() as tasks:
            for item in failed:
                tasks.create_task(self._persist(handler, *item, patience))

    async def _split(
        self, handler: Handler, changes: Sequence[Change], failed: list[Failed], passes: Passes = is_for_all
    ) -> None:
        """Handle them, in smaller pieces where it must be; what fails alone is added to `failed`."""
        by_item: dict[Any, list[Change]] = {}
        for change in changes:
            by_item.setdefault(_item(change), []).append(change)
        if len(failed) >= MANY:
            failed += [(one, None) for one in by_item.values()]
            return
        try:
            await self._attempt(handler, changes, passes, partial(handler.handle, changes))
            return
        except Exception as problem:
            if is_for_all(problem):
                raise
            if len(by_item) == 1:
                failed.append((changes, None if len(changes) > 1 or is_outage(problem) else problem))
                return
        first = set(list(by_item)[: len(by_item) // 2])
        await self._split(handler, [change for change in changes if _item(change) in first], failed)
        await self._split(handler, [change for change in changes if _item(change) not in first], failed)

    async def _persist(
        self, handler: Handler, changes: Sequence[Change], problem: Exception | None, patience: float
    ) -> None:
        """One item's changes, one after another; once one is buried, those after it have a single try each."""
        for change in changes:
            waited = await self._retry(handler, change, problem, self._waits(patience))
            patience = -1.0 if waited is None else patience - waited

    def _waits(self, patience: float) -> list[float]:
        """The delays between the tries of a change, as many as there is patience for."""
        delays = list(self._retries.delays(lambda: 1.0))
        return [delay for delay, total in zip(delays, accumulate(delays), strict=True) if total <= patience]

    async def _retry(
        self, handler: Handler, change: Change, problem: Exception | None, waits: Sequence[float]
    ) -> float | None:
        """How long it waited until the change was handled, or buried at once; None when it was buried after all tries.

        `problem` is a first try's.
        """
        problem, waited, attempts = problem or await self._problem(handler, change), 0.0, 1
        for wait in waits:
            if problem is None or is_permanent(problem):
                break
            self._metrics.retried(change.table, handler.name)
            await asyncio.sleep(wait)
            problem, waited, attempts = await self._problem(handler, change), waited + wait, attempts + 1
        if problem is None:
            return waited
        letter = letter_of(change.table, handler.name, encode_change(change), problem, attempts, self._now())
        await self._bury(letter)
        return waited if is_permanent(problem) else None

    async def _problem(self, handler: Handler, change: Change) -> Exception | None:
        """What is wrong with the change, if anything is."""

        async def handle() -> None:
            async with self._at_once:  # those that wait hold up no others
                await handler.handle([change])

        try:
            await self._attempt(handler, [change], is_outage, handle)
        except Exception as problem:
            if is_outage(problem):
                raise
            return problem
        return None

    async def _attempt(
        self, handler: Handler, changes: Sequence[Change], passes: Passes, handle: Callable[[], Awaitable[None]]
    ) -> None:
        """Have the changes handled. What `passes` is waited out; everything else is raised."""
        await self._waited_out(handler.name, handle, passes)
        self._metrics.handled(changes[0].table, handler.name, len(changes))

    async def _bury(self, letter: DeadLetter) -> None:
        logger.error(
            "A change of %s is buried: %s fails on %s %s: %s: %s",
            letter.table,
            letter.handler,
            letter.event,
            letter.item_keys,
            letter.error_type,
            letter.error,
        )
        # Nothing is given up before its letter is kept.
        await self._waited_out("dead letters", partial(self._keep, letter), is_any_refusal)
        self._metrics.buried(letter.table, letter.handler)

    async def _keep(self, letter: DeadLetter) -> None:
        await DeadLetters(self._open_store(), CONSUMER_TABLE).bury(letter)

    async def _waited_out(self, what: str, ask: Callable[[], Awaitable[None]], passes: Passes) -> None:
        def tell(problem: Exception) -> None:
            logger.warning("%s: the store is out of order, which is waited out: %s", what, problem)

        await waited_out(ask, tell, backoff=self._outage, for_ever=self._for_ever, passes=passes)


def _passes_at_first(tries: int) -> Passes:
    """Passes what is an outage for all records; for the first tries also what is throttled."""
    left = tries

    def passes(problem: BaseException) -> bool:
        nonlocal left
        left -= 1
        return is_for_all(problem) or (is_throttled(problem) and left > 0)

    return passes


def _item(change: Change) -> tuple[str, frozenset[tuple[str, Any]]]:
    return change.table, frozenset(change.keys.items())
