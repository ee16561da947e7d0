"""The queues between a publisher and its subscribers."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from datastore.change_streams.broadcast import Broadcaster, BroadcastSubscription
from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget, OverflowPolicy, QueueLimits


def same(number: int) -> int:
    return number


async def drain(events: AsyncIterator[int], number: int) -> list[int]:
    async with asyncio.timeout(50):
        return [await anext(events) for _ in range(number)]


async def test_a_subscriber_gets_the_records_in_order() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(same) as events:
        for number in range(3):
            hub.publish(number)
        assert await drain(events, 3) == [0, 1, 2]


async def test_select_maps_and_skips() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(lambda number: f"<{number}>" if number % 2 else None) as events:
        for number in range(4):
            hub.publish(number)
        assert [await anext(events), await anext(events)] == ["<1>", "<3>"]


async def test_a_waiting_subscriber_is_woken() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(same) as events:
        waiting = asyncio.create_task(drain(events, 1))
        await asyncio.sleep(0)
        hub.publish(7)
        assert await waiting == [7]


async def test_a_slow_subscriber_is_disconnected_and_others_are_not() -> None:
    hub: Broadcaster[int] = Broadcaster()
    slow = hub.subscribe(same, limits=QueueLimits(max_events=3))
    wide = hub.subscribe(same, limits=QueueLimits(max_events=10))
    for number in range(6):
        hub.publish(number)
    with pytest.raises(SlowSubscriber, match="4 changes behind") as caught:
        await anext(slow)
    assert caught.value.extensions["behind"] == 4
    assert await drain(wide, 6) == list(range(6))
    assert hub.subscriber_count == 1


async def test_exactly_full_is_not_slow() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(same, limits=QueueLimits(max_events=3)) as events:
        for number in range(3):
            hub.publish(number)
        assert await drain(events, 3) == [0, 1, 2]


async def test_latest_keeps_the_newest_of_each_key() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(
        same, limits=QueueLimits(OverflowPolicy.LATEST, 2), key=lambda number: number % 2
    ) as events:
        for number in range(100):
            hub.publish(number)
        assert await drain(events, 2) == [98, 99]
        assert events.dropped == 49


async def test_latest_without_a_key_keeps_one() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(same, limits=QueueLimits(OverflowPolicy.LATEST, 1)) as events:
        for number in range(10):
            hub.publish(number)
        assert await drain(events, 1) == [9]


async def test_latest_is_bounded_by_its_keys() -> None:
    hub: Broadcaster[int] = Broadcaster()
    events = hub.subscribe(same, limits=QueueLimits(OverflowPolicy.LATEST, 5), key=same)
    for number in range(6):
        hub.publish(number)
    with pytest.raises(SlowSubscriber):
        await anext(events)


@pytest.mark.parametrize("policy", OverflowPolicy)
async def test_a_select_that_raises_ends_only_its_subscriber(policy: OverflowPolicy) -> None:
    hub: Broadcaster[int] = Broadcaster()
    broken: BroadcastSubscription[float] = hub.subscribe(lambda number: 1 / number, limits=QueueLimits(policy))
    sound = hub.subscribe(same)
    for number in (1, 0, 2):
        hub.publish(number)
    assert await anext(broken) == 1
    with pytest.raises(ZeroDivisionError):
        await anext(broken)
    assert await drain(sound, 3) == [1, 0, 2]
    assert hub.subscriber_count == 1


async def test_a_key_that_raises_ends_only_its_subscriber() -> None:
    hub: Broadcaster[int] = Broadcaster()
    broken = hub.subscribe(same, limits=QueueLimits(OverflowPolicy.LATEST), key=lambda number: 1 // number)
    hub.publish(0)
    with pytest.raises(ZeroDivisionError):
        await anext(broken)


async def test_end_delivers_waiting_events_first() -> None:
    hub: Broadcaster[int] = Broadcaster()
    plain, drained = hub.subscribe(same), hub.subscribe(same)
    hub.publish(1)
    plain.end()
    hub.end(LookupError("lost"))
    assert [event async for event in plain] == [1]
    assert await anext(drained) == 1
    for _ in range(2):
        with pytest.raises(LookupError):
            await anext(drained)


async def test_a_subscriber_that_leaves_is_forgotten_at_once() -> None:
    hub: Broadcaster[int] = Broadcaster()
    entered = asyncio.Event()

    async def follow() -> None:
        async with hub.subscribe(same) as events:
            entered.set()
            async for _ in events:
                pass

    task = asyncio.create_task(follow())
    await entered.wait()
    assert hub.subscriber_count == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hub.subscriber_count == 0


async def test_a_timeout_of_one_step_loses_nothing() -> None:
    hub: Broadcaster[int] = Broadcaster()
    async with hub.subscribe(same) as events:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.001)
        hub.publish(1)
        assert await drain(events, 1) == [1]


async def test_a_subscriber_may_leave_while_an_event_is_published_to_it() -> None:
    hub: Broadcaster[int] = Broadcaster()
    others: list[BroadcastSubscription[int]] = []

    def leave(number: int) -> int:
        others.pop().end()
        return number

    first = hub.subscribe(leave)
    others.append(hub.subscribe(same))
    hub.publish(1)
    assert await drain(first, 1) == [1]
    assert hub.subscriber_count == 1


class BacklogModel:
    """A model of the backlog with lists: waiting events, the events that each replaced, and the dropped events."""

    def __init__(self, limits: QueueLimits, most_bytes: int) -> None:
        self.limits = limits
        self.most_bytes = most_bytes
        self.line: list[tuple[int, int, int, int]] = []  # number, key, size, left out
        self.dropped = self.dropped_last = 0

    def has_room(self, line: list[tuple[int, int, int, int]], size: int, others: int) -> bool:
        used = sum(event[2] for event in line) + others
        return len(line) < self.limits.max_events and (not used or used + size <= self.most_bytes)

    def add(self, number: int, key: int, size: int, others: int) -> bool:
        left_out, line = 0, list(self.line)
        if self.limits.policy is OverflowPolicy.LATEST:
            left_out = sum(1 + event[3] for event in line if event[1] == key)
            line = [event for event in line if event[1] != key]
        if self.limits.policy is OverflowPolicy.BUFFER:
            if not self.has_room([], size, others):
                self.dropped_last += 1
                return True
            while line and not self.has_room(line, size, others):
                self.dropped += 1 + line[0][3]
                del line[0]
            left_out, self.dropped_last = self.dropped_last, 0
        if not self.has_room(line, size, others):
            return False
        self.line = [*line, (number, key, size, left_out)]
        return True

    def take(self) -> tuple[int, int]:
        number, _, _, left_out = self.line.pop(0)
        dropped, self.dropped = self.dropped, 0
        return number, left_out + dropped


def test_waiting_events_are_not_dropped_for_an_event_that_does_not_fit_anyway() -> None:
    room = ByteBudget(100)
    backlog = BoundedQueue[str](QueueLimits(OverflowPolicy.BUFFER, 10), room)
    for name in "ab":
        assert backlog.add(name, size=10) == []
    room.used += 75  # of another subscription of the same listener
    assert backlog.add("c", size=30) == ["c"]
    assert [backlog.take(), backlog.take()] == [("a", 0), ("b", 0)]
    assert not backlog.is_drained
    assert backlog.add("d", size=10) == []
    assert backlog.take() == ("d", 1)
    assert backlog.is_drained


@pytest.mark.parametrize("policy", OverflowPolicy)
@pytest.mark.parametrize("seed", range(40))
def test_a_backlog_reports_exactly_the_events_that_it_left_out(policy: OverflowPolicy, seed: int) -> None:
    rng = random.Random(seed)
    limits, most_bytes = QueueLimits(policy, rng.randint(1, 6)), rng.choice([50, 200, 10_000])
    room = ByteBudget(most_bytes)
    backlog, model = BoundedQueue[int](limits, room), BacklogModel(limits, most_bytes)
    added = gone = reported = taken = refused = others = 0
    for number in range(300):
        if rng.random() < 0.1:
            room.used -= others
            others = rng.choice([0, 0, 30])
            room.used += others
        if rng.random() < 0.6:
            key, size = rng.randint(1, 8), rng.randint(1, 60)
            if model.add(number, key, size, others):
                gone += len(backlog.add(number, key, size=size))
                added += 1
            else:
                with pytest.raises(SlowSubscriber):
                    backlog.add(number, key, size=size)
                refused += 1
        elif model.line:
            found = backlog.take()
            assert found == model.take()
            reported += found[1]
            taken += 1
        assert len(backlog) == len(model.line)
        assert room.used == others + sum(event[2] for event in model.line)
    waiting = sum(event[3] for event in model.line) + model.dropped + model.dropped_last
    assert gone == reported + waiting
    assert added == taken + gone + len(backlog)
    assert gone == 0 if policy is OverflowPolicy.CLOSE else gone > 0
    assert refused == 0 if policy is OverflowPolicy.BUFFER else True
    assert [number for number, *_ in model.line] == [backlog.take()[0] for _ in range(len(backlog))]
