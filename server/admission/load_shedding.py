"""Load shedding: beyond its capacity the process refuses work at once, before queues grow."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from datastore.errors import Throttled, Unavailable

QUEUE_SECONDS = 0.5
RETRY_SECONDS = 1
LAG_INTERVAL = 0.25
# The limit of a caller's running and waiting operations, as a multiple of its limit of running ones. A client that
# starts a hundred subscriptions at once may then wait for them.
MAX_ACTIVE_RATIO = 4
# One late turn may be a large response; two in a row mean that the loop does not keep up.
LATE_TURNS = 2

_log = logging.getLogger(__name__)


class _SlotQueue(Struct, eq=False):
    """A semaphore with a queue: a released slot goes to the longest waiter."""

    free: int
    _waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a slot and take it. Raises `TimeoutError`."""
        if self.free:
            self.free -= 1
            return
        if self._waiting is None:
            self._waiting = deque()
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot was assigned at the moment of the cancellation
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def release(self) -> None:
        """Release a slot: assign it to the longest waiter, or return it."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1


class _CallerSlots(_SlotQueue):
    """The slots of one caller."""

    active: int = 0


class LoadShedder:
    """A limiter of concurrent operations: `limit` run, as many more wait up to `queue_seconds`, and others are refused.

    At most `per_caller` operations of one caller run at once. The caller may have `MAX_ACTIVE_RATIO` times as many that
    run or wait. A limit of 0 is unlimited. While two successive turns of the event loop are late by more than
    `lag_seconds`, all operations are refused. `noun` names the operations in messages.
    """

    def __init__(
        self,
        limit: int,
        *,
        per_caller: int = 0,
        noun: str = "operations",
        queue_seconds: float = QUEUE_SECONDS,
        lag_seconds: float = 0.0,
    ) -> None:
        self._max_running = limit
        self._per_caller = per_caller
        self._callers: dict[str, _CallerSlots] = {}
        self._noun = noun
        self._queue_seconds = queue_seconds
        self._lag_seconds = lag_seconds
        self._slots = _SlotQueue(limit)
        self.running = 0
        self.waiting = 0
        self.late_turns = 0
        self.shed = 0

    def check(self) -> None:
        """Raise `Unavailable` if a new operation would be refused, so that the transport need not read its request."""
        if self.late_turns >= LATE_TURNS:
            raise self._refusal("The server does not keep up with its work.")
        if self._max_running and self.running >= self._max_running and self.waiting >= self._max_running:
            raise self._refusal(f"The server executes {self._max_running:,} {self._noun}, and as many are waiting.")

    @asynccontextmanager
    async def slot(self, caller: str = "") -> AsyncIterator[None]:
        """Hold a slot for the duration of a block. An empty `caller` has no limit of its own.

        Raises:
            Unavailable: no slot was released in time.
            Throttled: the caller has reached its own limit.
        """
        if not self.try_acquire(caller):
            await self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

    def try_acquire(self, caller: str = "") -> bool:
        """Take a free slot. Return False if there is none, and the caller of this method has to `acquire` one.

        `release` returns the slot. Raises `Unavailable` if the operation would be refused after waiting.
        """
        if self.late_turns or self.waiting:
            self.check()
        if self._max_running and not self._slots.free:
            return False
        if self._per_caller and caller:
            if caller not in self._callers:
                self._callers[caller] = _CallerSlots(self._per_caller)
            own = self._callers[caller]
            if not own.free:
                return False
            own.active += 1
            own.free -= 1
        self._slots.free -= 1
        self.running += 1
        return True

    async def acquire(self, caller: str = "") -> None:
        """Wait for a slot and take it. `release` returns the slot. Raises the same errors as `slot`."""
        if not (self._per_caller and caller):
            await self._wait_for_slot()
            return
        own = self._callers.get(caller) or self._callers.setdefault(caller, _CallerSlots(self._per_caller))
        if own.active >= self._per_caller * MAX_ACTIVE_RATIO:
            raise self._throttled(f"You have {own.active:,} {self._noun} running or waiting.")
        own.active += 1
        try:
            await self._wait_for_own(own)
            try:
                await self._wait_for_slot()
            except BaseException:
                own.release()
                raise
        except BaseException:
            self._forget(caller, own)
            raise

    def release(self, caller: str = "") -> None:
        """Release a slot of the process, and of the caller."""
        self.running -= 1
        if self.waiting:
            self._slots.release()
        else:
            self._slots.free += 1
        if self._per_caller and caller:
            own = self._callers[caller]
            own.active -= 1
            if own.active:
                own.release()
            else:
                del self._callers[caller]

    def _forget(self, caller: str, own: _CallerSlots) -> None:
        own.active -= 1
        if not own.active:
            del self._callers[caller]

    async def _wait_for_own(self, own: _CallerSlots) -> None:
        try:
            await own.wait(self._queue_seconds)
        except TimeoutError:
            message = (
                f"At most {self._per_caller:,} {self._noun} of a caller are executed at once, and none of yours ended."
            )
            raise self._throttled(message) from None

    async def _wait_for_slot(self) -> None:
        """Wait for a slot of the process, and take it."""
        if self._max_running and not self._slots.free:
            self.waiting += 1
            try:
                await self._slots.wait(self._queue_seconds)
            except TimeoutError:
                message = f"The server executes {self._max_running:,} {self._noun}, and none ended in time."
                raise self._refusal(message) from None
            finally:
                self.waiting -= 1
        else:
            self._slots.free -= 1
        self.running += 1

    def _refusal(self, reason: str) -> Unavailable:
        self.shed += 1
        return Unavailable(f"{reason} Try again in a moment.", retryAfter=RETRY_SECONDS)

    def _throttled(self, reason: str) -> Throttled:
        return Throttled(f"{reason} Try again in a moment.", retryAfter=RETRY_SECONDS)

    async def watch_lag(self) -> None:
        """Measure the delay of the event loop until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(LAG_INTERVAL)
            self.record_lag(loop.time() - before - LAG_INTERVAL)

    def record_lag(self, late: float) -> None:
        """Record a delay of the event loop, in seconds."""
        if self._lag_seconds and late > self._lag_seconds:
            self.late_turns += 1
            if self.late_turns == LATE_TURNS:
                _log.warning("The event loop is %.1f s late: operations are refused until it keeps up", late)
        else:
            self.late_turns = 0
