"""Load shedding: beyond its capacity the process refuses work at once, before queues grow."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from datastore.errors import Throttled, Unavailable

QUEUE_SECONDS = 0.5
RETRY_SECONDS = 1
LAG_EVERY = 0.25
# The waiting and running operations of a caller, as a multiple of its running ones: a client that starts a hundred
# subscriptions at once may wait for them.
MAX_ACTIVE_RATIO = 4
# One late turn may be a large response; two in a row mean that the loop does not keep up.
LATE_TURNS = 2

_log = logging.getLogger(__name__)


class _SlotQueue:
    """A semaphore with a number of slots and a queue: a released slot goes to the longest waiter."""

    __slots__ = ("_waiting", "free")

    def __init__(self, slots: int) -> None:
        self.free = slots
        self._waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a slot, and take it. Raises `TimeoutError`."""
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

    __slots__ = ("active",)

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.active = 0


class LoadShedder:
    """A limit of `limit` operations that are executed at once; as many more wait up to `queue_seconds`. 0 is unlimited.

    `per_caller` limits the operations of one caller. Its others wait as well, until it has `MAX_ACTIVE_RATIO` times as
    many running and waiting. While the event loop is late by more than `lag_seconds`, twice in a row, every operation
    is refused. `noun` names the operations in messages.
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
        """Raise `Unavailable` if a new operation would be refused, so that the caller need not read it."""
        if self.late_turns >= LATE_TURNS:
            raise self._refusal("The server does not keep up with its work.")
        if self._max_running and self.running >= self._max_running and self.waiting >= self._max_running:
            raise self._refusal(f"The server executes {self._max_running:,} {self._noun}, and as many are waiting.")

    @asynccontextmanager
    async def slot(self, caller: str = "") -> AsyncIterator[None]:
        """Hold a slot for the duration of a block. An empty `caller` has no own limit.

        Raises:
            Unavailable: no slot was released in time.
            Throttled: the caller's own limit is the reason.
        """
        if not self.try_acquire(caller):
            await self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

    def try_acquire(self, caller: str = "") -> bool:
        """Take a free slot, which `release` releases. Return False if the caller has to `acquire` for one.

        Raises `Unavailable` if waiting would be in vain.
        """
        if self.late_turns or self.waiting:
            self.check()
        if self._max_running and not self._slots.free:
            return False
        if self._per_caller and caller:
            own = self._callers.get(caller)
            if own is None:
                own = self._callers[caller] = _CallerSlots(self._per_caller)
            elif not own.free:
                return False
            own.active += 1
            own.free -= 1
        self._slots.free -= 1
        self.running += 1
        return True

    async def acquire(self, caller: str = "") -> None:
        """Wait for a slot, which `release` releases. Raises the same errors as `slot`."""
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
        """Release a slot."""
        self.running -= 1
        self._slots.release()
        if self._per_caller and caller:
            own = self._callers[caller]
            own.release()
            self._forget(caller, own)

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
        """Wait for a slot of the process."""
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
            await asyncio.sleep(LAG_EVERY)
            self.record_lag(loop.time() - before - LAG_EVERY)

    def record_lag(self, late: float) -> None:
        """Record a delay of the event loop, in seconds."""
        if self._lag_seconds and late > self._lag_seconds:
            self.late_turns += 1
            if self.late_turns == LATE_TURNS:
                _log.warning("The event loop is %.1f s late: operations are refused until it keeps up", late)
        else:
            self.late_turns = 0
