"""The circuit breaker of an endpoint: while the endpoint does not respond, only one probe at a time is sent."""

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
    """The state of a circuit breaker."""

    #: Calls are sent.
    CLOSED = 0
    #: Calls wait for a moment, because the endpoint may respond again soon.
    WAITING = 1
    #: Calls fail at once.
    OPEN = 2


@dataclass(frozen=True, slots=True)
class BreakerConfig:
    """The settings of a circuit breaker. All times are in seconds."""

    #: The number of failures in a row after which calls wait.
    failures: int = 5
    #: The time that calls wait. After it the breaker opens, and calls fail.
    wait_seconds: float = 0.6
    #: The delay before the first probe. It doubles up to `probe_interval`.
    first_probe_seconds: float = 0.05
    probe_interval: float = 0.25
    #: The time that a probe may take.
    probe_timeout: float = 1.0
    #: The time after which clients may retry.
    retry_after: int = 1
    #: An attempt that was abandoned after this time counts as a failure.
    slow_seconds: float = 1.0


class CircuitBreaker:
    """The circuit breaker of one endpoint. Lost connections and timeouts count as failures, error responses do not.

    The client records responses (`record_answer`) and failures (`record_failure`). While the breaker is `tripped`, the
    client sends a call only after `wait` has returned true. `budget` is the endpoint's retry budget. `probe` sends a
    small request within the given seconds and returns whether the endpoint responded.
    """

    def __init__(
        self,
        probe: Callable[[float], Awaitable[bool]],
        config: BreakerConfig = BreakerConfig(),
        budget: RetryBudget | None = None,
    ) -> None:
        self.budget = RetryBudget() if budget is None else budget
        self.answers = 0
        self.times_opened = 0
        self.tripped = False
        self._probe = probe
        self._config = config
        self._failures = 0
        self._answers_at_failure = 0
        self._reset_at = -math.inf
        self._probe_task: asyncio.Task[None] | None = None
        self._open_timer: asyncio.TimerHandle | None = None
        # The result that waiting calls receive: whether they may be sent.
        self._recovery: asyncio.Future[bool] | None = None

    @property
    def state(self) -> BreakerState:
        if not self.tripped:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._recovery is None else BreakerState.WAITING

    def record_answer(self) -> None:
        """Record a response of any status. It closes a tripped breaker: the endpoint responds again."""
        self.answers += 1
        if self.tripped:
            self.reset()

    def record_failure(self, sent_at: float, *, timed_out: bool = False) -> None:
        """Record an attempt without a response. An attempt that `timed_out` trips the breaker alone.

        `sent_at` is the time of sending by the event loop's clock. An attempt from before the latest reset is ignored,
        because the endpoint has responded since. Tripping by mistake is cheap: the first probe closes the breaker.
        """
        if self.tripped or sent_at < self._reset_at:
            return
        if self.answers != self._answers_at_failure:
            self._answers_at_failure, self._failures = self.answers, 0
        self._failures += self._config.failures if timed_out else 1
        if self._failures >= self._config.failures:
            self._trip()

    async def wait(self, deadline: float) -> bool:
        """Wait while the breaker is in state WAITING. Return whether the call may be sent.

        `deadline` is by the event loop's clock.
        """
        if self._recovery is None:
            return not self.tripped
        recovery, seconds = self._recovery, deadline - asyncio.get_running_loop().time()
        await asyncio.wait([recovery], timeout=max(0.0, seconds))
        return recovery.done() and recovery.result()

    def error(self) -> Unavailable:
        """Return the error of a call that waited until the breaker opened or its own deadline passed."""
        problem = Unavailable(UNREACHABLE, retryAfter=self._config.retry_after)
        problem.out_of_time = self.state is BreakerState.WAITING
        return problem

    def reset(self) -> None:
        """Close the breaker, because the endpoint responds again. Waiting calls are sent."""
        self._failures = 0
        if self.tripped:
            self._reset_at = asyncio.get_running_loop().time()
        self._untrip(recovered=True)

    def stop(self) -> None:
        """Stop probing. Waiting calls receive the error of an open breaker."""
        self._untrip(recovered=False)

    def _trip(self) -> None:
        loop = asyncio.get_running_loop()
        self.tripped = True
        self._recovery = loop.create_future()
        self._open_timer = loop.call_later(self._config.wait_seconds, self._open)
        self._probe_task = loop.create_task(self._probe_until_answered())

    def _open(self) -> None:
        """Change from WAITING to OPEN: waiting calls fail."""
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
        """Yield the delays of probes, with jitter, so that many processes do not probe at one moment."""
        pause = self._config.first_probe_seconds
        while True:
            yield pause * random.uniform(0.5, 1)
            pause = min(self._config.probe_interval, 2 * pause)
