"""The queues between whoever publishes and its subscribers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from datastore.errors import SlowSubscriber
from datastore.hub import Hub, Policy, Subscription


def same(number: int) -> int:
    return number


async def drain(events: AsyncIterator[int], number: int) -> list[int]:
    async with asyncio.timeout(2):
        return [await anext(events) for _ in range(number)]


async def test_a_subscriber_gets_its_topic_in_order() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same) as events:
        for number in range(3):
            hub.publish("a", number)
            hub.publish("b", 99)
        assert await drain(events, 3) == [0, 1, 2]


async def test_select_maps_and_skips() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", lambda number: f"<{number}>" if number % 2 else None) as events:
        for number in range(4):
            hub.publish("a", number)
        assert [await anext(events), await anext(events)] == ["<1>", "<3>"]


async def test_a_waiting_subscriber_is_woken() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same) as events:
        waiting = asyncio.create_task(drain(events, 1))
        await asyncio.sleep(0)
        hub.publish("a", 7)
        assert await waiting == [7]


async def test_a_slow_subscriber_is_disconnected_and_others_are_not() -> None:
    hub: Hub[int] = Hub()
    slow = hub.subscribe("a", same, capacity=3)
    wide = hub.subscribe("a", same, capacity=10)
    for number in range(6):
        hub.publish("a", number)
    with pytest.raises(SlowSubscriber, match="4 changes behind") as caught:
        await anext(slow)
    assert caught.value.extensions["behind"] == 4
    assert await drain(wide, 6) == list(range(6))
    assert hub.count("a") == 1


async def test_exactly_full_is_not_slow() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same, capacity=3) as events:
        for number in range(3):
            hub.publish("a", number)
        assert await drain(events, 3) == [0, 1, 2]


async def test_latest_keeps_the_newest_of_each_key() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same, capacity=2, policy=Policy.LATEST, key=lambda number: number % 2) as events:
        for number in range(100):
            hub.publish("a", number)
        assert await drain(events, 2) == [98, 99]
        assert events.conflated == 98


async def test_latest_without_a_key_keeps_one() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same, capacity=1, policy=Policy.LATEST) as events:
        for number in range(10):
            hub.publish("a", number)
        assert await drain(events, 1) == [9]


async def test_latest_is_bounded_by_its_keys() -> None:
    hub: Hub[int] = Hub()
    events = hub.subscribe("a", same, capacity=5, policy=Policy.LATEST, key=same)
    for number in range(6):
        hub.publish("a", number)
    with pytest.raises(SlowSubscriber):
        await anext(events)


@pytest.mark.parametrize("policy", Policy)
async def test_a_select_that_raises_ends_only_its_subscriber(policy: Policy) -> None:
    hub: Hub[int] = Hub()
    broken: Subscription[float] = hub.subscribe("a", lambda number: 1 / number, policy=policy)
    sound = hub.subscribe("a", same)
    for number in (1, 0, 2):
        hub.publish("a", number)
    assert await anext(broken) == 1
    with pytest.raises(ZeroDivisionError):
        await anext(broken)
    assert await drain(sound, 3) == [1, 0, 2]
    assert hub.count("a") == 1


async def test_a_key_that_raises_ends_only_its_subscriber() -> None:
    hub: Hub[int] = Hub()
    broken = hub.subscribe("a", same, policy=Policy.LATEST, key=lambda number: 1 // number)
    hub.publish("a", 0)
    with pytest.raises(ZeroDivisionError):
        await anext(broken)


async def test_end_delivers_what_waits_first() -> None:
    hub: Hub[int] = Hub()
    plain, told = hub.subscribe("a", same), hub.subscribe("a", same)
    hub.publish("a", 1)
    plain.end()
    hub.end("a", LookupError("lost"))
    assert [event async for event in plain] == [1]
    assert await anext(told) == 1
    for _ in range(2):
        with pytest.raises(LookupError):
            await anext(told)


async def test_whoever_leaves_is_forgotten_at_once() -> None:
    hub: Hub[int] = Hub()
    entered = asyncio.Event()

    async def follow() -> None:
        async with hub.subscribe("a", same) as events:
            entered.set()
            async for _ in events:
                pass

    task = asyncio.create_task(follow())
    await entered.wait()
    assert hub.count("a") == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hub.count("a") == 0
    assert not hub._topics


async def test_a_timeout_of_one_step_loses_nothing() -> None:
    hub: Hub[int] = Hub()
    async with hub.subscribe("a", same) as events:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.001)
        hub.publish("a", 1)
        assert await drain(events, 1) == [1]


async def test_a_subscriber_may_leave_while_it_is_being_published_to() -> None:
    hub: Hub[int] = Hub()
    others: list[Subscription[int]] = []

    def leave(number: int) -> int:
        others.pop().end()
        return number

    first = hub.subscribe("a", leave)
    others.append(hub.subscribe("a", same))
    hub.publish("a", 1)
    assert await drain(first, 1) == [1]
    assert hub.count("a") == 1
