"""Failed background jobs are restarted and their errors are logged."""

import asyncio
import logging

import pytest

from datastore.errors import Unavailable
from pipelines.consumer import periodic as jobs


@pytest.mark.parametrize(("problem", "traced"), [(Unavailable("Search is away."), False), (KeyError("PK"), True)])
async def test_a_failed_job_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: Exception, traced: bool
) -> None:
    """A temporary failure, such as a full disk, is logged in one line."""
    monkeypatch.setattr(jobs, "PAUSE_SECONDS", 0.0)
    begun, again = 0, asyncio.Event()

    async def job() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise problem
        again.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(jobs.supervise(job))
    async with asyncio.timeout(50):
        await again.wait()
    task.cancel()

    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert (record.exc_info is not None) == traced
    assert traced or "Search is away." in record.getMessage()
