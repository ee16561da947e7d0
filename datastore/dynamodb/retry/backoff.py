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

    first: float = 0.025
    most: float = 1.0
    tries: int = 8

    def delays(self, uniform: Callable[[], float] = random.random) -> Iterator[float]:
        for step in range(self.tries - 1):
            yield uniform() * min(self.most, self.first * 2**step)
