"""The graceful shutdown: the time for each step, and the delays after which clients reconnect."""

import asyncio
import random
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")

# The process is terminated this long after the signal, whatever hangs.
EXIT_SECONDS = 24.5
# The same for a worker, whose supervisor ends after it.
WORKER_SECONDS = 20.0
# The longest time for which a process goes on serving, so that load balancers notice that it is not ready.
MAX_GRACE_SECONDS = 10.0
# The time to answer the requests in progress, after the process has stopped listening.
ANSWER_SECONDS = 9.0
# It ends at the latest this long after the signal, however long the grace: a worker's cleanup takes some seconds.
LAST_ANSWER_SECONDS = 16.0
# The rate at which streams end, and the longest time for all: each of their clients starts again in another process.
ENDED_PER_SECOND, LONGEST_SPREAD_SECONDS = 250.0, 3.0
# The average rate at which clients reconnect, and the longest delay.
BACK_PER_SECOND, LONGEST_DELAY_SECONDS = 100.0, 10.0
# The shortest sleep while streams end.
STEP_SECONDS = 0.02


class Delays:
    """Random delays after which clients reconnect: the more streams end, the longer."""

    def __init__(self, streams: int, rng: random.Random) -> None:
        self._longest = min(LONGEST_DELAY_SECONDS, streams / BACK_PER_SECOND)
        self._rng = rng

    def next_ms(self) -> int:
        return round(self._rng.uniform(0.0, self._longest) * 1000)


async def end_gradually(streams: Collection[T], end: Callable[[T], None]) -> None:
    """Call `end` for each stream, spread over some seconds if there are many. A call may remove its stream."""
    loop = asyncio.get_running_loop()
    streams = tuple(streams)
    seconds = min(LONGEST_SPREAD_SECONDS, len(streams) / ENDED_PER_SECOND)
    began = loop.time()
    for number, stream in enumerate(streams):
        wait = began + seconds * number / len(streams) - loop.time()
        if wait > STEP_SECONDS:
            await asyncio.sleep(wait)
        end(stream)
