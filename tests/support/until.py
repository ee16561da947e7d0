"""Waiting for a condition that has no event to wait for."""

import asyncio
import time
from collections.abc import Awaitable, Callable

# Far more than any condition takes, also on a busy machine.
SECONDS = 40.0
INTERVAL_SECONDS = 0.005


async def until(holds: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until the condition holds. Raises `TimeoutError` when `seconds` have passed on the loop's clock."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(INTERVAL_SECONDS)


async def until_async(holds: Callable[[], Awaitable[object]], seconds: float = SECONDS) -> None:
    """Wait until an asynchronous condition holds. Raises as `until` does."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(INTERVAL_SECONDS)


def until_blocking(holds: Callable[[], object], seconds: float = SECONDS) -> None:
    """Block until the condition holds. Raises `TimeoutError` when `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The condition does not hold after {seconds:g} s.")
        time.sleep(INTERVAL_SECONDS)
