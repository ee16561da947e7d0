"""Jobs that run again and again while the gateway serves."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


async def every(seconds: float, job: Callable[[], Awaitable[object]]) -> None:
    """Run the job now and then each time so many seconds after it began; one that fails is logged, and runs again."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        try:
            await job()
        except Exception:
            logger.exception("A job failed")
        await asyncio.sleep(max(0.0, due - loop.time()))
