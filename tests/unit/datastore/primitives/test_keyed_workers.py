"""Work for several, side by side."""

import asyncio
from collections.abc import Hashable

import pytest

from datastore.errors import SlowSubscriber
from datastore.primitives.keyed_workers import KeyedWorkers
from datastore.queues import OverflowPolicy, QueueLimits

CLOSE = QueueLimits()


class Doing:
    """Workers whose work is a key and a number, which ends when the test releases the key."""

    def __init__(self, limits: QueueLimits = CLOSE, busy: int = 2) -> None:
        self.done: list[tuple[str, int]] = []
        self.dropped = 0
        self.may_go: dict[str, asyncio.Event] = {}
        self.lanes = KeyedWorkers[str, tuple[str, int]](limits, busy, self._do)

    async def _do(self, key: str, work: tuple[str, int], dropped: int) -> None:
        await self.may_go.setdefault(key, asyncio.Event()).wait()
        self.done.append(work)
        self.dropped += dropped

    def go(self, key: str) -> None:
        self.may_go.setdefault(key, asyncio.Event()).set()

    def put(self, tasks: asyncio.TaskGroup, key: str, *numbers: int, of: Hashable = None) -> None:
        for number in numbers:
            self.lanes.put(tasks, key, (key, number), of)


async def test_each_lane_keeps_its_order_and_waits_for_no_other() -> None:
    doing = Doing()
    doing.go("b")
    async with asyncio.TaskGroup() as tasks:
        doing.put(tasks, "a", 1, 2)
        doing.put(tasks, "b", 1, 2)
        while "b" in doing.lanes.pending:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        assert doing.done == [("b", 1), ("b", 2)]
        assert len(doing.lanes.pending) == 1
        doing.go("a")
    assert doing.done[2:] == [("a", 1), ("a", 2)]
    assert len(doing.lanes.pending) == 0


async def test_there_is_room_while_few_are_busy() -> None:
    doing = Doing(busy=2)
    async with asyncio.TaskGroup() as tasks:
        for key in ("a", "b"):
            doing.put(tasks, key, 1)
        await doing.lanes.wait_for_capacity()
        doing.put(tasks, "c", 1)
        waiting = tasks.create_task(doing.lanes.wait_for_capacity())
        await asyncio.sleep(0)
        assert not waiting.done()
        doing.go("b")
        await waiting
        assert doing.done == [("b", 1)]
        doing.go("a")
        doing.go("c")


async def test_too_much_work_for_a_key_drops_its_queue() -> None:
    doing = Doing(QueueLimits(max_events=2))
    async with asyncio.TaskGroup() as tasks:
        doing.put(tasks, "a", 1)
        await asyncio.sleep(0)  # it is being done
        doing.put(tasks, "a", 2, 3)
        with pytest.raises(SlowSubscriber):
            doing.put(tasks, "a", 4)
        doing.go("a")
    assert doing.done == [("a", 1)]


async def test_of_what_waits_the_latest_may_do() -> None:
    doing = Doing(QueueLimits(OverflowPolicy.LATEST))
    async with asyncio.TaskGroup() as tasks:
        doing.put(tasks, "a", 1)
        await asyncio.sleep(0)
        doing.put(tasks, "a", 2, 3, of="one")
        doing.put(tasks, "a", 4, of="another")
        doing.go("a")
    assert doing.done == [("a", 1), ("a", 3), ("a", 4)]
    assert doing.dropped == 1


async def test_work_that_is_not_run_is_discarded() -> None:
    discarded = list[int]()

    async def never(_: str, __: int, ___: int) -> None:
        await asyncio.Event().wait()

    workers = KeyedWorkers[str, int](QueueLimits(max_events=2), 2, never, discarded.append)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            workers.put(tasks, "running", 1, None)
            await asyncio.sleep(0)
            workers.put(tasks, "running", 2, None)
            workers.put(tasks, "not started", 3, None)
            raise RuntimeError("It is over.")

    with pytest.raises(ExceptionGroup):
        await run()
    assert sorted(discarded) == [2, 3]
