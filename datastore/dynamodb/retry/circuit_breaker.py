"""Whether an endpoint is asked at all: while it is away nothing is sent but one probe at a time."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from datastore.dynamodb.retry.budget import RetryBudget
from datastore.errors import Unavailable

UNREACHABLE = "The store cannot be reached at the moment; try again."

logger = logging.getLogger(__name__)


class BreakerState(IntEnum):
    """CLOSED: all is sent. WAITING: it may be back in a moment, and calls wait for that. OPEN: calls fail at once."""

    CLOSED = 0
    WAITING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class BreakerConfig:
    """After `failures` in a row, with no answer between them, calls wait, for `patience` seconds; then they fail.

    Probes are up to `interval` seconds apart, the first ones less, and each may take `probe` seconds. Who is refused
    is told to come again after `retry_after` seconds. Who gives a try up after `unanswered` seconds has seen it fail.
    """

    failures: int = 5
    patience: float = 0.6
    first: float = 0.05
    interval: float = 0.25
    probe: float = 1.0
    retry_after: int = 1
    unanswered: float = 1.0


class CircuitBreaker:
    """One for each endpoint. Only lost connections and silence count: who refuses or throttles is there.

    Whoever asks the endpoint tells of answers (`answered`) and failures (`failed`), and while it is `away` comes in
    only through `wait`. `budget` is what its repeated tries are paid from. `probe` sends something small, within so
    many seconds, and tells whether it was answered.
    """

    def __init__(
        self,
        probe: Callable[[float], Awaitable[bool]],
        terms: BreakerConfig = BreakerConfig(),
        uniform: Callable[[], float] = random.random,
        budget: RetryBudget | None = None,
    ) -> None:
        self.budget = RetryBudget() if budget is None else budget
        self.answers = 0
        self.opened = 0
        self.away = False
        self._probe = probe
        self._terms = terms
        self._uniform = uniform
        self._failures = 0
        self._answers_before = 0
        self._closed_at = -math.inf
        self._probing: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        # Done once it is known whether who waits may go on.
        self._over: asyncio.Future[bool] | None = None

    @property
    def state(self) -> BreakerState:
        if not self.away:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._over is None else BreakerState.WAITING

    def answered(self) -> None:
        """A try was answered, whatever it was: while it is thought to be away that shows that it is not."""
        self.answers += 1
        if self.away:
            self.close()

    def failed(self, sent: float, *, silent: bool = False) -> None:
        """A try came to nothing for want of a connection. One that was `silent` took so long that it is enough alone.

        It was `sent` then, in the loop's time: one from before the endpoint was known to be back tells nothing new.
        To wait for nothing costs who else asks no more than a probe that is answered at once.
        """
        if self.away or sent < self._closed_at:
            return
        if self.answers != self._answers_before:
            self._answers_before, self._failures = self.answers, 0
        self._failures += self._terms.failures if silent else 1
        if self._failures >= self._terms.failures:
            self._begin()

    async def wait(self, deadline: float) -> bool:
        """While it is away: whether it is back, by the deadline in the loop's time."""
        if self._over is None:
            return not self.away
        over, seconds = self._over, deadline - asyncio.get_running_loop().time()
        await asyncio.wait([over], timeout=max(0.0, seconds))
        return over.done() and over.result()

    def refusal(self) -> Unavailable:
        """What callers are told while it is away."""
        return Unavailable(UNREACHABLE, retryAfter=self._terms.retry_after)

    def close(self) -> None:
        """It is known to be back: all goes on."""
        self._failures = 0
        if self.away:
            self._closed_at = asyncio.get_running_loop().time()
        self._end(back=True)

    def shut(self) -> None:
        """Nobody asks any more: who waits is told that it is away."""
        self._end(back=False)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self.away = True
        self._over = loop.create_future()
        self._patience = loop.call_later(self._terms.patience, self._open)
        self._probing = loop.create_task(self._look())

    def _open(self) -> None:
        """It stays away: who waits has waited enough."""
        self.opened += 1
        self._decide(back=False)

    def _end(self, *, back: bool) -> None:
        self.away = False
        self._decide(back=back)
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None

    def _decide(self, *, back: bool) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._over is not None:
            self._over.set_result(back)
            self._over = None

    async def _look(self) -> None:
        for pause in self._pauses():
            await asyncio.sleep(pause)
            try:
                if await self._probe(self._terms.probe):
                    break
            except Exception:
                logger.exception("A probe of the store failed; the next one follows.")
        self._probing = None
        self.close()

    def _pauses(self) -> Iterator[float]:
        """Jittered, so that many processes do not all ask at one moment."""
        pause = self._terms.first
        while True:
            yield pause * (0.5 + self._uniform() / 2)
            pause = min(self._terms.interval, 2 * pause)
