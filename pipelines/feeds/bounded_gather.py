"""A gather with bounded concurrency."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from datastore.tasks import gather_all

CONCURRENCY = 8


async def bounded_gather(jobs: Iterable[Callable[[], Awaitable[object]]], concurrency: int = CONCURRENCY) -> None:
    """Run all jobs, at most `concurrency` at a time. If some fail, raise the first failure when all have ended."""
    slots = asyncio.Semaphore(concurrency)

    async def run(job: Callable[[], Awaitable[object]]) -> None:
        async with slots:
            await job()

    await gather_all([run(job) for job in jobs])
