"""Tests of single-flight calls."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from datastore.errors import Unavailable
from datastore.primitives.single_flight import SingleFlight
from tests.support.until import until


class Calls:
    """Calls that wait until `finish` is set. `begun` are their numbers, `cancelled` those that were cancelled."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.finish = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        number = len(self.begun)
        self.begun.append(number)
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if self.error is not None:
            raise self.error
        return number


def joining(
    flights: SingleFlight[str, int], call: Callable[[], Coroutine[Any, Any, int]], key: str = "k"
) -> asyncio.Task[int]:
    return asyncio.create_task(flights.join(key, call))


async def test_concurrent_callers_of_a_key_share_a_call() -> None:
    flights, call = SingleFlight[str, int](), Calls()
    callers = [joining(flights, call), joining(flights, call), joining(flights, call, "other")]
    await until(lambda: len(call.begun) == 2)
    assert "k" in flights

    call.finish.set()

    assert await asyncio.gather(*callers) == [0, 0, 1]
    assert "k" not in flights
    assert await flights.join("k", call) == 2


async def test_callers_share_an_error_and_the_next_caller_starts_another_call() -> None:
    flights, call = SingleFlight[str, int](), Calls()
    callers = [joining(flights, call), joining(flights, call)]
    await until(lambda: bool(call.begun))
    call.error = OSError("broken")
    call.finish.set()

    assert await asyncio.gather(*callers, return_exceptions=True) == [call.error, call.error]
    call.error = None
    assert await flights.join("k", call) == 1


@pytest.mark.parametrize("cancel_unused", [False, True])
async def test_a_call_outlives_a_cancelled_caller(cancel_unused: bool) -> None:
    flights, call = SingleFlight[str, int](cancel_unused=cancel_unused), Calls()
    first, second = joining(flights, call), joining(flights, call)
    await until(lambda: bool(call.begun))

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    call.finish.set()

    assert await second == 0
    assert call.cancelled == []


async def test_a_call_without_callers_continues_and_serves_later_ones() -> None:
    flights, call = SingleFlight[str, int](), Calls()
    with pytest.raises(TimeoutError):
        await flights.join("k", call, 0)

    late = joining(flights, call)
    await until(lambda: bool(call.begun))
    call.finish.set()

    assert await late == 0
    assert call.begun == [0]


async def test_an_unused_call_may_be_cancelled_and_is_not_joined_any_more() -> None:
    flights, call = SingleFlight[str, int](cancel_unused=True), Calls()
    only = joining(flights, call)
    await until(lambda: bool(call.begun))

    only.cancel()
    await until(only.done)
    later = joining(flights, call)
    await until(lambda: len(call.begun) == 2)
    call.finish.set()

    assert await later == 1
    assert call.cancelled == [0]


async def test_a_forgotten_call_continues_for_its_callers_only() -> None:
    flights, call = SingleFlight[str, int](), Calls()
    before = joining(flights, call)
    await until(lambda: bool(call.begun))

    flights.forget("k")
    after = joining(flights, call)
    await until(lambda: len(call.begun) == 2)
    assert "k" in flights
    call.finish.set()

    assert await asyncio.gather(*[before, after]) == [0, 1]


async def test_closing_cancels_all_calls() -> None:
    flights, call = SingleFlight[str, int](), Calls()
    caller = joining(flights, call)
    await until(lambda: bool(call.begun))
    flights.forget("k")
    flights.start("k", call)
    await until(lambda: len(call.begun) == 2)

    await flights.aclose()

    assert sorted(call.cancelled) == [0, 1]
    with pytest.raises(Unavailable, match="is stopping"):
        await caller
