"""Measured loops and statistics."""

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")
Call = Callable[[], Awaitable[object]]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the event loop that `gateway.py serve` uses."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def closed_loop(call: Call, total: int, concurrency: int) -> list[float]:
    """Make `total` calls, at most `concurrency` at a time. Return the latency of each in seconds."""
    latencies: list[float] = []
    pending = iter(range(total))

    async def work() -> None:
        for _ in pending:
            began = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*[work() for _ in range(concurrency)])
    return latencies


async def cpu_per_call(call: Call, total: int, concurrency: int) -> float:
    """Return the CPU milliseconds per call of this process, with all its threads."""
    gc.collect()
    began = time.process_time()
    await closed_loop(call, total, concurrency)
    return (time.process_time() - began) * 1000 / total


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def median_ratio(values: Sequence[float], to: Sequence[float]) -> float:
    """Return the median of the ratios of each round: a slowdown of a whole round does not affect its ratio."""
    return median(value / base for value, base in zip(values, to, strict=True))
