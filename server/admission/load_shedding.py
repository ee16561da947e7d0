"""How much work the process takes on: beyond that it says so at once, before queues grow."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from datastore.errors import Throttled, Unavailable

QUEUE_SECONDS = 0.5
RETRY_SECONDS = 1
LAG_EVERY = 0.25
# In hand of one caller, for each that is executed: a client begins a hundred subscriptions at once, and they may wait.
IN_HAND = 4
# One late turn may be a large answer; two in a row are a loop that does not keep up.
LATE_TURNS = 2

_log = logging.getLogger(__name__)


class _SlotQueue:
    """So many at once; who has waited longest is next."""

    __slots__ = ("_waiting", "free")

    def __init__(self, most: int) -> None:
        self.free = most
        self._waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self, seconds: float) -> None:
        """Take one when there is one. Raises `TimeoutError`."""
        if self.free:
            self.free -= 1
            return
        if self._waiting is None:
            self._waiting = deque()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give_back()  # it came in the moment in which it was given up
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """One that was taken: to who waits the longest, or for whoever comes."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class _CallerSlots(_SlotQueue):
    """The turns of one caller."""

    __slots__ = ("in_hand",)

    def __init__(self, each: int) -> None:
        super().__init__(each)
        self.in_hand = 0


class LoadShedder:
    """At most `most` operations are executed at once, and as many wait a moment for their turn; 0 is without limit.

    `each` is how many of those may be one caller's. His others wait a moment too, behind his own, until he has
    `IN_HAND` times as many in hand.

    While the event loop `watched` is late by more than `lag_seconds`, twice in a row, nothing is taken on either.
    `what` they are is told to those who are refused.
    """

    def __init__(
        self,
        most: int,
        *,
        each: int = 0,
        what: str = "operations",
        queue_seconds: float = QUEUE_SECONDS,
        lag_seconds: float = 0.0,
    ) -> None:
        self._most = most
        self._each = each
        self._callers: dict[str, _CallerSlots] = {}
        self._what = what
        self._queue_seconds = queue_seconds
        self._lag_seconds = lag_seconds
        self._turns = _SlotQueue(most)
        self.running = 0
        self.waiting = 0
        self.late_turns = 0
        self.shed = 0

    def check(self) -> None:
        """Raises `Unavailable` when an operation that came now would not be taken on: nothing need be read of it."""
        if self.late_turns >= LATE_TURNS:
            raise self._refusal("The server does not keep up with its work.")
        if self._most and self.running >= self._most and self.waiting >= self._most:
            raise self._refusal(f"The server has {self._most:,} {self._what} in hand, and as many are waiting.")

    @asynccontextmanager
    async def turn(self, caller: str = "") -> AsyncIterator[None]:
        """Execute inside. Raises `Unavailable` when there is no turn soon enough, and `Throttled` when that is because
        of what the caller has in hand himself; who is not named has no turns of his own.
        """
        if not self.take(caller):
            await self.wait(caller)
        try:
            yield
        finally:
            self.leave(caller)

    def take(self, caller: str = "") -> bool:
        """Take a turn, for which `leave` is called then, if there is one at once: else it is to be waited for.

        Raises `Unavailable` for one who need not wait.
        """
        if self.late_turns or self.waiting:
            self.check()
        if self._most and not self._turns.free:
            return False
        if self._each and caller:
            own = self._callers.get(caller)
            if own is None:
                own = self._callers[caller] = _CallerSlots(self._each)
            elif not own.free:
                return False
            own.in_hand += 1
            own.free -= 1
        self._turns.free -= 1
        self.running += 1
        return True

    async def wait(self, caller: str = "") -> None:
        """Take a turn when there is one, for which `leave` is called then. Raises as `turn` does."""
        if not (self._each and caller):
            await self._wait()
            return
        own = self._callers.get(caller) or self._callers.setdefault(caller, _CallerSlots(self._each))
        if own.in_hand >= self._each * IN_HAND:
            raise self._throttled(f"You have {own.in_hand:,} {self._what} in hand.")
        own.in_hand += 1
        try:
            await self._wait_for_own(own)
            try:
                await self._wait()
            except BaseException:
                own.give_back()
                raise
        except BaseException:
            self._let_go(caller, own)
            raise

    def leave(self, caller: str = "") -> None:
        """Give a turn back."""
        self.running -= 1
        self._turns.give_back()
        if self._each and caller:
            own = self._callers[caller]
            own.give_back()
            self._let_go(caller, own)

    def _let_go(self, caller: str, own: _CallerSlots) -> None:
        own.in_hand -= 1
        if not own.in_hand:
            del self._callers[caller]

    async def _wait_for_own(self, own: _CallerSlots) -> None:
        try:
            await own.wait(self._queue_seconds)
        except TimeoutError:
            message = (
                f"At most {self._each:,} {self._what} of a caller are executed at once, and none of yours ended soon."
            )
            raise self._throttled(message) from None

    async def _wait(self) -> None:
        """For a turn of the process."""
        if self._most and not self._turns.free:
            self.waiting += 1
            try:
                await self._turns.wait(self._queue_seconds)
            except TimeoutError:
                message = f"The server has {self._most:,} {self._what} in hand, and none ended soon."
                raise self._refusal(message) from None
            finally:
                self.waiting -= 1
        else:
            self._turns.free -= 1
        self.running += 1

    def _refusal(self, reason: str) -> Unavailable:
        self.shed += 1
        return Unavailable(f"{reason} Try again in a moment.", retryAfter=RETRY_SECONDS)

    def _throttled(self, reason: str) -> Throttled:
        return Throttled(f"{reason} Try again in a moment.", retryAfter=RETRY_SECONDS)

    async def watched(self) -> None:
        """Measure how late the event loop is, for as long as this runs."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(LAG_EVERY)
            self.note(loop.time() - before - LAG_EVERY)

    def note(self, late: float) -> None:
        """The loop was so many seconds late."""
        if self._lag_seconds and late > self._lag_seconds:
            self.late_turns += 1
            if self.late_turns == LATE_TURNS:
                _log.warning("The event loop is %.1f s late: operations are refused until it keeps up", late)
        else:
            self.late_turns = 0
