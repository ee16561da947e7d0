"""Jobs that run again and again while the gateway serves."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from datastore.errors import DomainError

PAUSE_SECONDS = 10.0
# For jobs to give back what they hold, leases say.
STOP_SECONDS = 4.0

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


async def keep(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a job, and begin it again when it fails or ends. Failures are logged, with a traceback if unforeseen."""
    while True:
        try:
            await job()
        except DomainError as problem:
            logger.error("A job in the background failed; it begins again in %.0f s: %s", PAUSE_SECONDS, problem)
        except Exception:
            logger.exception("A job in the background failed; it begins again in %.0f s", PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


async def all_running(jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run the jobs beside each other until cancelled; one that fails is logged, and begun again."""
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(keep(job))


async def stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Those that do not end in time are left behind: the process is to end."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    over, stuck = await asyncio.wait(tasks, timeout=STOP_SECONDS)
    for task in over:
        if not task.cancelled() and task.exception() is not None:
            logger.error("What ran in the background failed while it ended", exc_info=task.exception())
    if stuck:
        logger.error("%d of what ran in the background do not end: %s", len(stuck), stuck)
