"""Tests of the helpers for tasks."""

import asyncio
import logging

import pytest

from datastore.errors import Unavailable
from datastore.primitives import tasks
from datastore.primitives.tasks import bounded_gather, cancel, every, gather_all, run_to_end, supervise
from tests.support.virtual_time import in_virtual_time


@pytest.mark.parametrize(("problem", "traced"), [(Unavailable("Search is away."), False), (KeyError("PK"), True)])
async def test_a_failed_job_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: Exception, traced: bool
) -> None:
    # A temporary failure, such as a full disk, is logged in one line.
    monkeypatch.setattr(tasks, "PAUSE_SECONDS", 0.0)
    begun, again = 0, asyncio.Event()

    async def job() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise problem
        again.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise(job))
    async with asyncio.timeout(50):
        await again.wait()
    task.cancel()

    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert (record.exc_info is not None) == traced
    assert traced or "Search is away." in record.getMessage()


async def test_all_pieces_have_ended_when_the_first_failure_is_raised() -> None:
    ended = list[int]()

    async def piece(number: int, error: Exception | None = None) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        ended.append(number)
        if error is not None:
            raise error
        return number

    assert await gather_all([piece(3), piece(1)]) == [3, 1]
    with pytest.raises(OSError, match="first"):
        await gather_all([piece(2, OSError("first")), piece(1, OSError("second")), piece(5)])
    assert ended[2:] == [1, 2, 5]


async def test_a_bounded_number_of_jobs_runs_at_once() -> None:
    running, most = 0, 0

    async def job() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await bounded_gather([job] * 10, 3)
    assert (most, running) == (3, 0)


def test_a_periodic_job_keeps_its_interval_and_survives_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    begun = list[float]()

    async def job() -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(4)
        if len(begun) == 1:
            raise OSError("broken")
        if len(begun) == 2:
            await asyncio.sleep(20)

    async def run_for_a_while() -> None:
        task = asyncio.create_task(every(10, job))
        await asyncio.sleep(50)
        await cancel(task)

    in_virtual_time(run_for_a_while)
    assert begun == [0, 10, 34, 44]
    assert caplog.text.count("OSError: broken") == 1


def test_an_outage_of_the_store_is_a_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        raise Unavailable("The store cannot be reached.")

    async def run_once() -> None:
        task = asyncio.create_task(every(10, job))
        await asyncio.sleep(5)
        await cancel(task)

    in_virtual_time(run_once)
    message = "A periodic job failed; it is repeated in 10 s: The store cannot be reached."
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [(message, None)]


async def test_a_cancelled_caller_waits_for_the_end_of_the_work() -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    ended = False

    async def work() -> str:
        nonlocal ended
        begun.set()
        await release.wait()
        ended = True
        return "done"

    caller = asyncio.create_task(run_to_end(work()))
    await begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended
    assert await run_to_end(work()) == "done"


async def test_cancelled_tasks_have_ended() -> None:
    async def end_late(error: Exception | None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            if error is not None:
                raise error

    late = [asyncio.create_task(end_late(error)) for error in (None, OSError("ignored"))]
    await asyncio.sleep(0)
    await cancel(None, *late)

    assert all(task.done() for task in late)
    await cancel()
