"""Helpers for asyncio tasks: concurrent work, jobs that run until cancelled, and the end of tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from datastore.errors import DomainError

T = TypeVar("T")

# The jobs of `bounded_gather` that run at the same time, by default.
CONCURRENCY = 8
# The pause before a job is restarted.
PAUSE_SECONDS = 10.0
# The time for jobs to stop and to release their leases.
STOP_SECONDS = 4.0

logger = logging.getLogger(__name__)


async def gather_all(pieces: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results, in order. When all pieces have ended, raise the first failure.

    A caller that receives a failure may read again: no write of another piece follows. Cancelling the caller cancels
    all pieces and waits for them.
    """
    outcomes = await asyncio.gather(*pieces, return_exceptions=True)
    answers: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers


async def bounded_gather(jobs: Iterable[Callable[[], Awaitable[T]]], concurrency: int = CONCURRENCY) -> list[T]:
    """Run all jobs like `gather_all`, at most `concurrency` at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await job()

    return await gather_all([run(job) for job in jobs])


async def every(seconds: float, job: Callable[[], Awaitable[object]]) -> None:
    """Run the job now, and then every `seconds`, counted from the start of each run.

    Failures are logged, unexpected ones with a traceback.
    """
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        try:
            await job()
        except DomainError as problem:
            logger.warning("A periodic job failed; it is repeated in %.0f s: %s", seconds, problem)
        except Exception:
            logger.exception("A periodic job failed; it is repeated in %.0f s", seconds)
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


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. A caller that is cancelled waits for the end of the work before it ends itself."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def cancel(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel the tasks, and wait for their end. None is skipped. Results and errors are ignored."""
    pending = [task for task in tasks if task is not None]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait up to `STOP_SECONDS`. Tasks that fail, or do not end by then, are logged."""
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
