"""Periodic and supervised background jobs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from datastore.errors import DomainError

# The pause before a job is restarted.
PAUSE_SECONDS = 10.0
# The time for jobs to stop and to release their leases.
STOP_SECONDS = 4.0

logger = logging.getLogger(__name__)


async def every(seconds: float, job: Callable[[], Awaitable[object]]) -> None:
    """Run the job now, and then every `seconds`, counted from the start of each run. Failures are logged."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        try:
            await job()
        except Exception:
            logger.exception("A job failed")
        await asyncio.sleep(max(0.0, due - loop.time()))


async def supervise(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a job, and restart it when it fails or ends. Failures are logged, unexpected ones with a traceback."""
    while True:
        try:
            await job()
        except DomainError as problem:
            logger.error("A background job failed; it is restarted in %.0f s: %s", PAUSE_SECONDS, problem)
        except Exception:
            logger.exception("A background job failed; it is restarted in %.0f s", PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


async def supervise_all(jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run the jobs concurrently until cancelled, each with `supervise`."""
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(supervise(job))


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait up to `STOP_SECONDS`. Tasks that do not end by then are only logged."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    done, pending = await asyncio.wait(tasks, timeout=STOP_SECONDS)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            logger.error("A background task failed while it was stopped", exc_info=task.exception())
    if pending:
        logger.error("%d background tasks did not stop in time: %s", len(pending), pending)
