"""Waiting as data."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter: up to `first` seconds, then twice that, never above `most`.

    `tries` counts the first try, so there are `tries - 1` delays.
    https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
    """

    initial: float = 0.025
    maximum: float = 1.0
    attempts: int = 8

    def delays(self, uniform: Callable[[], float] = random.random) -> Iterator[float]:
        for step in range(self.attempts - 1):
            yield uniform() * min(self.maximum, self.initial * 2**step)
