"""Batches that are cut off by another than `give_up`, as a shutdown ends tasks: nobody is left waiting for them."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from datastore.giving_up import Batches


class Doubled(Batches[int, int]):
    """Twice each number, once it may be told."""

    def __init__(self) -> None:
        super().__init__(max_batch_size=2)
        self.open = asyncio.Event()
        self.asked: list[int] = []

    async def batch_load_fn(self, keys: Sequence[int]) -> list[int]:
        self.asked += keys
        await self.open.wait()
        return [2 * key for key in keys]


def at_work(readers: Sequence[asyncio.Task[int]]) -> set[asyncio.Task[int]]:
    return asyncio.all_tasks() - {*readers, asyncio.current_task()}


def none_yet(numbers: Doubled) -> bool:
    return numbers.asked == []


def the_first_batch(numbers: Doubled) -> bool:
    return numbers.asked == [0, 1]


def all_of_them(numbers: Doubled) -> bool:
    return numbers.asked == [0, 1, 2]


@pytest.mark.parametrize("sent", [none_yet, the_first_batch, all_of_them])
async def test_who_waits_for_a_batch_that_is_cut_off_is_cut_off_too(sent: Callable[[Doubled], bool]) -> None:
    numbers = Doubled()
    readers = [asyncio.ensure_future(numbers.wait(key)) for key in range(3)]
    while not (sent(numbers) and at_work(readers)):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)

    for task in at_work(readers):
        task.cancel()
    async with asyncio.timeout(5):
        ended = await asyncio.gather(*readers, return_exceptions=True)

    assert [type(problem) for problem in ended] == [asyncio.CancelledError] * 3
    numbers.open.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*map(numbers.wait, range(4))) == [0, 2, 4, 6]
