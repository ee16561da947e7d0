"""The delays between the attempts of a call."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """

    #: The upper bound of the first delay in seconds. It doubles with each delay.
    initial: float = 0.025
    #: The upper bound of all delays, in seconds.
    maximum: float = 1.0
    #: The number of attempts with the first one, so that there are `attempts - 1` delays.
    attempts: int = 8

    def delays(self, uniform: Callable[[], float] = random.random) -> Iterator[float]:
        for step in range(self.attempts - 1):
            yield uniform() * min(self.maximum, self.initial * 2**step)

    def endless_delays(self, uniform: Callable[[], float] = random.random) -> Iterator[float]:
        """Yield delays without end, for a call that is retried until it succeeds."""
        bound = self.initial
        while True:
            yield uniform() * min(self.maximum, bound)
            bound = min(self.maximum, 2 * bound)
