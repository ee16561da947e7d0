"""Deadlines with a shared timer have the semantics of `asyncio.timeout`."""

import asyncio

import pytest

from server.admission.deadlines import Deadlines, DeadlineScope
from tests.support.virtual_time import in_virtual_time


async def work_within(deadlines: Deadlines, seconds: float) -> str:
    try:
        with DeadlineScope(deadlines):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    return "done"


def test_each_deadline_has_its_own_time() -> None:
    async def work_of_several() -> None:
        deadlines, loop = Deadlines(10), asyncio.get_running_loop()
        first = asyncio.create_task(work_within(deadlines, 500))
        await asyncio.sleep(6)
        second = asyncio.create_task(work_within(deadlines, 500))
        assert await work_within(deadlines, 0) == "done"
        assert (await first, loop.time()) == ("late", 10)
        assert not second.done()
        assert (await second, loop.time()) == ("late", 16)
        # The timer is set again after a time without deadlines.
        await asyncio.sleep(4)
        assert (await work_within(deadlines, 500), loop.time()) == ("late", 30)
        assert (await work_within(deadlines, 9), loop.time()) == ("done", 39)

    in_virtual_time(work_of_several)


async def test_a_cancellation_is_no_timeout() -> None:
    task = asyncio.create_task(work_within(Deadlines(5), 5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancellation_at_the_moment_of_the_deadline_is_kept() -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(work_within(Deadlines(10), 500))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(10, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    in_virtual_time(cancelled)


async def test_errors_inside_the_block_are_no_timeout() -> None:
    deadlines = Deadlines(5)
    with pytest.raises(ValueError, match="of its own"), DeadlineScope(deadlines):
        raise ValueError("of its own")
    with DeadlineScope(deadlines):
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(5)
        except TimeoutError:
            pass
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
