"""Batches that are cancelled other than by `give_up`, as by a shutdown: no caller is left waiting."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from datastore.session.dataloader import CancellableDataLoader


class Doubled(CancellableDataLoader[int, int]):
    """A loader that doubles each number, after `open` is set."""

    def __init__(self) -> None:
        super().__init__(max_batch_size=2)
        self.open = asyncio.Event()
        self.asked: list[int] = []

    async def batch_load_fn(self, keys: Sequence[int]) -> list[int]:
        self.asked += keys
        await self.open.wait()
        return [2 * key for key in keys]


class Halved(CancellableDataLoader[int, int]):
    """A loader that halves each number. Odd numbers fail in the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[int]] = []

    async def batch_load_fn(self, keys: Sequence[int]) -> list[Any]:
        self.asked.append(list(keys))
        await asyncio.sleep(0)
        return [ValueError(key) if key % 2 and len(self.asked) == 1 else key // 2 for key in keys]


def at_work(readers: Sequence[asyncio.Task[int]]) -> set[asyncio.Task[int]]:
    return asyncio.all_tasks() - {*readers, asyncio.current_task()}


def no_batch(numbers: Doubled) -> bool:
    return numbers.asked == []


def first_batch(numbers: Doubled) -> bool:
    return numbers.asked == [0, 1]


def all_batches(numbers: Doubled) -> bool:
    return numbers.asked == [0, 1, 2]


@pytest.mark.parametrize("sent", [no_batch, first_batch, all_batches])
async def test_the_callers_of_a_cancelled_batch_are_cancelled(sent: Callable[[Doubled], bool]) -> None:
    numbers = Doubled()
    readers = [asyncio.ensure_future(numbers.fetch(key)) for key in range(3)]
    while not (sent(numbers) and at_work(readers)):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)

    for task in at_work(readers):
        task.cancel()
    async with asyncio.timeout(50):
        ended = await asyncio.gather(*readers, return_exceptions=True)

    assert [type(problem) for problem in ended] == [asyncio.CancelledError] * 3
    numbers.open.set()
    async with asyncio.timeout(50):
        assert await asyncio.gather(*map(numbers.fetch, range(4))) == [0, 2, 4, 6]


async def test_each_caller_receives_its_own_failure_which_is_forgotten() -> None:
    numbers = Halved()

    outcomes = await asyncio.gather(*map(numbers.fetch, (4, 5, 7, 5)), return_exceptions=True)
    again = await numbers.load_many([4, 5, 6])

    assert [outcomes[0], *map(repr, outcomes[1:])] == [2, "ValueError(5)", "ValueError(7)", "ValueError(5)"]
    assert again == [2, 2, 3]
    assert numbers.asked == [[4, 5, 7], [5, 6]]


async def test_priming_clearing_and_cancelling_work_as_in_any_dataloader() -> None:
    numbers = Halved()
    numbers.prime(8, 40).prime(8, 41)

    early = numbers.load(2)
    numbers.load(4).cancel()

    assert (await numbers.load(8), await early) == (40, 1)
    assert await numbers.clear(8).load(8) == 4
    numbers.clear_all()
    assert await numbers.load_many([2, 8]) == [1, 4]
    assert numbers.asked == [[2, 4], [8], [2, 8]]


async def test_a_batch_with_a_wrong_number_of_values_fails_and_is_forgotten() -> None:
    class Short(Halved):
        async def batch_load_fn(self, keys: Sequence[int]) -> list[Any]:
            return (await super().batch_load_fn(keys))[: 1 if len(self.asked) == 1 else None]

    numbers = Short()

    outcomes = await asyncio.gather(*map(numbers.fetch, (2, 4)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes][1] is ValueError
    assert await numbers.load_many([2, 4]) == [1, 2]
    assert numbers.asked == [[2, 4], [2, 4]]
