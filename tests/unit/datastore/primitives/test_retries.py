"""Tests of retries, and of the log of an outage."""

import asyncio
from itertools import repeat

import pytest

from datastore.primitives.retries import QUIET_SECONDS, REPEAT_SECONDS, OutageLog, retry


class FailingCall:
    """A call that raises each of the errors, and then returns its number."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def __call__(self) -> int:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return self.calls


def is_os_error(problem: Exception) -> bool:
    return isinstance(problem, OSError)


async def test_a_call_is_retried_until_it_succeeds() -> None:
    reports = list[str]()
    outage = OutageLog(lambda problem: reports.append(str(problem)), lambda: reports.append("ended"))

    assert await retry(FailingCall(OSError("a"), OSError("b")), repeat(0.0), is_os_error, outage) == 3

    assert reports == ["a", "ended"]
    assert await retry(FailingCall(), repeat(0.0), is_os_error, outage) == 1
    assert reports == ["a", "ended"]


async def test_other_failures_and_the_last_attempt_are_raised() -> None:
    call = FailingCall(OSError("a"), ValueError("b"))
    with pytest.raises(ValueError, match="b"):
        await retry(call, repeat(0.0), is_os_error)

    call = FailingCall(*[OSError(str(number)) for number in range(5)])
    with pytest.raises(OSError, match="2"):
        await retry(call, iter([0.0, 0.0]), is_os_error)
    assert call.calls == 3


async def test_an_outage_of_several_calls_ends_with_the_last_one() -> None:
    reports = list[str]()
    outage = OutageLog(lambda problem: reports.append(str(problem)), lambda: reports.append("ended"))
    released = asyncio.Event()

    async def fail_until_released() -> None:
        if not released.is_set():
            raise OSError("away")

    lasting = [asyncio.create_task(retry(fail_until_released, repeat(0.0), is_os_error, outage)) for _ in range(2)]
    await asyncio.sleep(0)
    await retry(FailingCall(OSError("short")), repeat(0.0), is_os_error, outage)
    lasting[0].cancel()
    await asyncio.wait(lasting[:1])
    assert (reports, outage.retried) == (["away"], 1)

    released.set()
    await lasting[1]
    assert (reports, outage.retried) == (["away", "ended"], 0)


def test_an_outage_is_reported_at_its_start_at_intervals_and_at_its_end() -> None:
    now, reports = 0.0, list[str]()
    outage = OutageLog(lambda problem: reports.append(str(problem)), lambda: reports.append("ended"), lambda: now)
    for number in range(3):
        outage.record_failure(ValueError(f"first {number}"))
    now += REPEAT_SECONDS
    outage.record_failure(ValueError("still"))
    outage.record_success()
    outage.record_success()
    assert reports == ["first 0", "still", "ended"]


def test_an_outage_that_returns_at_once_is_reported_when_it_lasts() -> None:
    now, reports = 0.0, list[str]()
    outage = OutageLog(lambda problem: reports.append(str(problem)), lambda: reports.append("ended"), lambda: now)
    for _ in range(100):
        outage.record_failure(ValueError("back"))
        outage.record_success()
    assert reports == ["back", "ended"]
    outage.record_failure(ValueError("lasts"))
    now += QUIET_SECONDS
    outage.record_failure(ValueError("lasts"))
    outage.record_success()
    assert reports == ["back", "ended", "lasts", "ended"]
