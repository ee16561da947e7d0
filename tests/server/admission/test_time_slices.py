"""Long work leaves turns of the event loop to other tasks."""

import asyncio
from contextlib import suppress

import pytest

from datastore.keyspace.sightings import BLIP
from server.admission.fairness import TimeSlices
from tests.support.served import Served
from tests.support.sighting_subscriptions import foreign_sighting, raw_put


class Working:
    """A clock that work advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_long_tasks_are_spread_over_turns_of_the_loop() -> None:
    clock = Working()
    slices = TimeSlices(0.02, clock)
    turns: list[int] = []
    done = 0

    async def work() -> None:
        nonlocal done
        if slices.is_used_up:
            await slices.wait_for_slice()
        with slices:
            clock.now += 0.015
        done += 1

    tasks = [asyncio.create_task(work()) for _ in range(10)]
    while not all(task.done() for task in tasks):
        before = done
        await asyncio.sleep(0)
        turns.append(done - before)

    assert max(turns) == 2
    assert done == 10


async def test_tasks_get_their_slices_in_the_order_in_which_they_waited() -> None:
    clock = Working()
    slices = TimeSlices(0.02, clock)
    order: list[int] = []

    async def work(number: int, seconds: float) -> None:
        await slices.wait_for_slice()
        with slices:
            clock.now += seconds
        order.append(number)

    await asyncio.gather(*[work(number, 0.005 if number < 6 else 0.05) for number in range(12)])

    assert order == [*range(12)]


async def test_the_time_of_failed_work_counts() -> None:
    clock = Working()
    slices = TimeSlices(0.02, clock)

    with suppress(ValueError), slices:
        clock.now += 0.05
        raise ValueError

    assert slices.is_used_up
    await slices.wait_for_slice()
    assert not slices.is_used_up


async def test_events_for_many_subscribers_are_executed_in_several_turns(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_in_this_turn = most_in_a_turn = 0
    loop = asyncio.get_running_loop()
    original = TimeSlices.__enter__

    def used(slices: TimeSlices) -> None:
        nonlocal made_in_this_turn
        made_in_this_turn += 1
        original(slices)

    def count() -> None:
        """Count at the beginning of each turn of the loop."""
        nonlocal made_in_this_turn, most_in_a_turn
        most_in_a_turn, made_in_this_turn = max(most_in_a_turn, made_in_this_turn), 0
        loop.call_soon(count)

    listeners = [await served.listen(f"subscription {{sightingReported {{c{number}: area}}}}") for number in range(8)]
    await served.settle(BLIP)
    monkeypatch.setattr(served.gateway.server.runner.slices, "_seconds", 1e-9)  # each event uses up its turn
    monkeypatch.setattr(TimeSlices, "__enter__", used)
    loop.call_soon(count)
    raw_put(served, foreign_sighting("0"))
    events = [await listener.message() for listener in listeners]

    assert {event["type"] for event in events} == {"next"}
    assert most_in_a_turn == 1
