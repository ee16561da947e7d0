"""The graceful shutdown: the messages that clients receive, and the time for each step."""

import asyncio
import random
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")

# From the signal to the end of the process, whatever hangs.
EXIT_SECONDS = 24.5
# That of a worker, after which its supervisor ends.
WORKER_SECONDS = 20.0
# How long a process may go on as before where load balancers are to notice that it is not ready.
MOST_GRACE_SECONDS = 10.0
# For what was asked to be answered, once nothing new is taken.
ANSWER_SECONDS = 9.0
# After that none is waited for, however long the grace was: what a worker has yet to put away takes some seconds.
LAST_ANSWER_SECONDS = 16.0
# Streams that end per second. Each of their clients connects to another process and starts again there.
ENDED_PER_SECOND, LONGEST_SPREAD_SECONDS = 250.0, 3.0
BACK_PER_SECOND, LONGEST_DELAY_SECONDS = 100.0, 10.0
# The loop is slept on no more often than this while streams end.
STEP_SECONDS = 0.02


class Delays:
    """When clients come again: each at a moment of its own, the more of them there are the later.

    `chance` is drawn from for each.
    """

    def __init__(self, streams: int, chance: random.Random) -> None:
        self._most = min(LONGEST_DELAY_SECONDS, streams / BACK_PER_SECOND)
        self._chance = chance

    def next_ms(self) -> int:
        return round(self._chance.uniform(0.0, self._most) * 1000)


async def one_after_another(ending: Collection[T], end: Callable[[T], None]) -> None:
    """End each of them, many of them spread over some seconds. Those who end may leave the collection."""
    loop = asyncio.get_running_loop()
    ending = tuple(ending)
    seconds = min(LONGEST_SPREAD_SECONDS, len(ending) / ENDED_PER_SECOND)
    began = loop.time()
    for number, one in enumerate(ending):
        wait = began + seconds * number / len(ending) - loop.time()
        if wait > STEP_SECONDS:
            await asyncio.sleep(wait)
        end(one)
