"""One timer for all sockets."""

import asyncio

import pytest

from datastore.primitives.timer_queue import MAX_CALLS_PER_TURN, TimerQueue
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time


def test_each_has_its_time_also_when_others_come_again() -> None:
    acted: list[tuple[str, float]] = []

    def act(member: str) -> None:
        acted.append((member, asyncio.get_running_loop().time()))
        if member == "first" and len(acted) < 4:
            rounds.add(member)
            rounds.drop("dropped")

    rounds = TimerQueue(50, act)

    async def work() -> None:
        rounds.add("first")
        await asyncio.sleep(20)
        rounds.add("second")
        rounds.add("dropped")
        await asyncio.sleep(1000)
        assert rounds._timer is None

    in_virtual_time(work)
    assert acted == [("first", 50), ("second", 70), ("first", 100), ("first", 150)]


async def test_many_due_timers_are_called_in_several_turns_also_when_one_fails() -> None:
    acted: list[int] = []
    in_one_turn: list[int] = []
    received: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: received.append(context["exception"]))

    def act(member: int) -> None:
        acted.append(member)
        if member == 0:
            loop.call_soon(lambda: in_one_turn.append(len(acted)))
        if member == 250:
            raise OSError("it is broken")

    rounds = TimerQueue(0.0, act)
    for member in range(3 * MAX_CALLS_PER_TURN):
        rounds.add(member)
    await until(lambda: acted == [*range(3 * MAX_CALLS_PER_TURN)])
    assert in_one_turn == [MAX_CALLS_PER_TURN]
    assert [str(problem) for problem in received] == ["it is broken"]


def test_dropping_all_leaves_no_timer() -> None:
    rounds = TimerQueue[str](10, pytest.fail)

    async def work() -> None:
        rounds.add("x")
        rounds.drop("x")
        await asyncio.sleep(20)
        rounds.add("y")
        rounds.drop("y")
        await asyncio.sleep(20)

    in_virtual_time(work)
    assert rounds._timer is None
