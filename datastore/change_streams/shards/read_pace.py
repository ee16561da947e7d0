"""The rate at which a process reads the shards of streams, adapted to throttling.

AWS throttles GetRecords per shard and does not report other readers. A process therefore shares a shard with unknown
readers by additive increase and multiplicative decrease (AIMD), as TCP shares a link. The increase is bounded, so that
few calls of many readers are throttled: together they read a shard no more often than two readers do.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from datastore.errors import Throttled

T = TypeVar("T")

# A shard serves five reads a second. A reader that was throttled shares it with at least one other.
FIRST_INTERVAL_SECONDS = 0.4
# With 30 readers of a shard at this interval, at most a tenth of the calls are throttled. More readers cannot slow down
# any further.
MAX_INTERVAL_SECONDS = 20.0
# The reads a second that a throttled reader adds to its rate each second, and the maximum growth with one read.
RATE_INCREASE = 0.02
MAX_GROWTH = 0.04
JITTER = 0.25
WARN_INTERVAL_SECONDS = 600.0
# The concurrent GetRecords calls of a process. They share the pool's 128 connections with clients' reads
# (datastore/dynamodb/http1/types.py).
MAX_CONCURRENCY = 32

logger = logging.getLogger(__name__)


class ReadPace:
    """The interval between two reads of one shard, in seconds; never below `shortest`."""

    def __init__(self, shortest: float, uniform: Callable[[], float] = random.random) -> None:
        self.interval = self._shortest = shortest
        self._uniform = uniform

    @property
    def is_slowed(self) -> bool:
        return self.interval > self._shortest

    def throttled(self) -> float:
        """Halve the rate. Return the seconds to wait before the retry."""
        self.interval = min(MAX_INTERVAL_SECONDS, max(FIRST_INTERVAL_SECONDS, 2 * self.interval))
        return self.pause()

    def answered(self) -> None:
        """Raise the rate in proportion to the time since the previous read, within a bound."""
        if self.is_slowed:
            growth = min(RATE_INCREASE * self.interval**2, MAX_GROWTH)
            self.interval = max(self._shortest, self.interval / (1 + growth))

    def pause(self) -> float:
        """Return the seconds from one read to the next.

        Jitter also applies at full rate: a reader at even intervals would always find its reads admitted, and leave
        others the rest of the limit.
        """
        return self.interval * (1 + JITTER * (2 * self._uniform() - 1))


class ReadPaceMetrics(Protocol):
    """The protocol of the process's metrics."""

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None: ...

    def count(self, name: str, help_: str, read: Callable[[], float]) -> None: ...


class StreamReads:
    """The shards that this process reads for subscribers, and how often GetRecords was throttled for them."""

    def __init__(self) -> None:
        self.throttled = 0
        self._turns = asyncio.Semaphore(MAX_CONCURRENCY)
        self._paces: set[ReadPace] = set()
        self._warned_at: dict[str, float] = {}

    @property
    def shards(self) -> int:
        """The number of shards that are read at present."""
        return len(self._paces)

    @property
    def longest_interval(self) -> float:
        """The longest interval between two reads of a shard, in seconds; 0 if none is read."""
        return max([pace.interval for pace in self._paces], default=0.0)

    def show_in(self, figures: ReadPaceMetrics) -> None:
        """Add the metrics. Shards read, summed over all processes, divided by open shards: the readers of a shard."""
        figures.gauge(
            "gateway_stream_shards_read",
            "Shards of streams that this process reads for subscribers.",
            lambda: self.shards,
        )
        figures.gauge(
            "gateway_stream_read_interval_seconds",
            "Longest interval between two reads of a shard; it grows while GetRecords is throttled.",
            lambda: self.longest_interval,
        )
        figures.count(
            "gateway_stream_reads_throttled",
            "GetRecords calls for subscribers that were throttled.",
            lambda: self.throttled,
        )

    @contextmanager
    def shard(self, shortest: float) -> Iterator[ReadPace]:
        """Count a shard as read, and return a pace for the reads of this shard alone."""
        pace = ReadPace(shortest)
        self._paces.add(pace)
        try:
            yield pace
        finally:
            self._paces.discard(pace)

    async def read(self, full_name: str, pace: ReadPace, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `read`. Retry it at a lower rate while it raises `Throttled`.

        `full_name` is the name of the table with its prefix, for the log.
        """
        while True:
            try:
                async with self._turns:
                    answer = await read()
            except Throttled:
                self.throttled += 1
                pause = pace.throttled()
                self._warn(full_name, pace)
                await asyncio.sleep(pause)
            else:
                pace.answered()
                return answer

    def _warn(self, full_name: str, pace: ReadPace) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned_at.get(full_name, -math.inf) < WARN_INTERVAL_SECONDS:
            return
        self._warned_at[full_name] = now
        logger.warning(
            "GetRecords is throttled on the stream of %s: more than two processes may be reading its shards. "
            "Changes arrive late, none is lost; a shard is now read every %.1f s. Set GATEWAY_BUS, or restore its "
            "Redis, so that one process reads each stream; or run fewer processes: 30 at most share a shard.",
            full_name,
            pace.interval,
        )
