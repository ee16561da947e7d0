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
    """After `failures` in a row without a response, calls wait for `wait_seconds`. Then it opens, and they fail.

    Probes begin `first_probe_seconds` apart, later up to `probe_interval`; each may take `probe_timeout` seconds.
    Clients may retry after `retry_after` seconds. An attempt abandoned after `slow_seconds` counts as a failure.
    """

    failures: int = 5
    wait_seconds: float = 0.6
    first_probe_seconds: float = 0.05
    probe_interval: float = 0.25
    probe_timeout: float = 1.0
    retry_after: int = 1
    slow_seconds: float = 1.0


class CircuitBreaker:
    """The circuit breaker of one endpoint. Only lost connections and timeouts count as failures, no error response.

    The client records responses (`record_answer`) and failures (`record_failure`). While the breaker is `tripped`, the
    client sends a call only after `wait` has returned true. `budget` is the endpoint's retry budget. `probe` sends a
    small request within the given seconds and returns whether the endpoint responded.
    """

    def __init__(
        self,
        probe: Callable[[float], Awaitable[bool]],
        config: BreakerConfig = BreakerConfig(),
        uniform: Callable[[], float] = random.random,
        budget: RetryBudget | None = None,
    ) -> None:
        self.budget = RetryBudget() if budget is None else budget
        self.answers = 0
        self.times_opened = 0
        self.tripped = False
        self._probe = probe
        self._config = config
        self._uniform = uniform
        self._failures = 0
        self._answers_at_failure = 0
        self._reset_at = -math.inf
        self._probe_task: asyncio.Task[None] | None = None
        self._open_timer: asyncio.TimerHandle | None = None
        # Done once it is known whether who waits may go on.
        self._recovery: asyncio.Future[bool] | None = None

    @property
    def state(self) -> BreakerState:
        if not self.tripped:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._recovery is None else BreakerState.WAITING

    def record_answer(self) -> None:
        """A try was answered, whatever it was: while it is thought to be away that shows that it is not."""
        self.answers += 1
        if self.tripped:
            self.reset()

    def record_failure(self, sent_at: float, *, timed_out: bool = False) -> None:
        """A try came to nothing for want of a connection. One that was `silent` took so long that it is enough alone.

        It was `sent` then, in the loop's time: one from before the endpoint was known to be back tells nothing new.
        To wait for nothing costs who else asks no more than a probe that is answered at once.
        """
        if self.tripped or sent_at < self._reset_at:
            return
        if self.answers != self._answers_at_failure:
            self._answers_at_failure, self._failures = self.answers, 0
        self._failures += self._config.failures if timed_out else 1
        if self._failures >= self._config.failures:
            self._trip()

    async def wait(self, deadline: float) -> bool:
        """While it is away: whether it is back, by the deadline in the loop's time."""
        if self._recovery is None:
            return not self.tripped
        over, seconds = self._recovery, deadline - asyncio.get_running_loop().time()
        await asyncio.wait([over], timeout=max(0.0, seconds))
        return over.done() and over.result()

    def error(self) -> Unavailable:
        """Return the error for callers while the breaker is open."""
        return Unavailable(UNREACHABLE, retryAfter=self._config.retry_after)

    def reset(self) -> None:
        """It is known to be back: all goes on."""
        self._failures = 0
        if self.tripped:
            self._reset_at = asyncio.get_running_loop().time()
        self._untrip(recovered=True)

    def stop(self) -> None:
        """Stop. Waiting callers receive the error of an open breaker."""
        self._untrip(recovered=False)

    def _trip(self) -> None:
        loop = asyncio.get_running_loop()
        self.tripped = True
        self._recovery = loop.create_future()
        self._open_timer = loop.call_later(self._config.wait_seconds, self._open)
        self._probe_task = loop.create_task(self._probe_until_answered())

    def _open(self) -> None:
        """It stays away: who waits has waited enough."""
        self.times_opened += 1
        self._release_waiters(recovered=False)

    def _untrip(self, *, recovered: bool) -> None:
        self.tripped = False
        self._release_waiters(recovered=recovered)
        if self._probe_task is not None:
            self._probe_task.cancel()
            self._probe_task = None

    def _release_waiters(self, *, recovered: bool) -> None:
        if self._open_timer is not None:
            self._open_timer.cancel()
            self._open_timer = None
        if self._recovery is not None:
            self._recovery.set_result(recovered)
            self._recovery = None

    async def _probe_until_answered(self) -> None:
        for pause in self._probe_delays():
            await asyncio.sleep(pause)
            try:
                if await self._probe(self._config.probe_timeout):
                    break
            except Exception:
                logger.exception("A probe of the store failed; the next one follows.")
        self._probe_task = None
        self.reset()

    def _probe_delays(self) -> Iterator[float]:
        """Jittered, so that many processes do not all ask at one moment."""
        pause = self._config.first_probe_seconds
        while True:
            yield pause * (0.5 + self._uniform() / 2)
            pause = min(self._config.probe_interval, 2 * pause)
