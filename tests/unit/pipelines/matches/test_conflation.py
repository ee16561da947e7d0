"""Conflation of match updates for slow clients: intervals, urgent events, and completeness."""

import asyncio
import gc
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from datastore.change_streams.subscriptions.event_source import live_deliveries
from datastore.errors import SlowSubscriber
from datastore.matches.cricket import MatchPhase
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import LiveScore, LiveStatePart
from resolvers.matches.conflation import conflated
from resolvers.matches.match_update import CONFLATABLE, MatchUpdate
from tests.support.deliveries import events_in

LIVE = LiveScore("1st Innings", MatchPhase.LIVE)
INTERVAL = 0.4
LONG = 60.0


def update(version: int, *kinds: CricketEventKind, match_id: str = "m1", snapshot: bool = False) -> MatchUpdate:
    """Return a version with an event of each kind."""
    events = tuple(CricketEvent(f"{match_id}:{version}:{kind.value}", kind, kind.value) for kind in kinds)
    return MatchUpdate(match_id, "IPL", version, LIVE, snapshot, (LiveStatePart.SCORE,), events)


class SnapshotSource:
    """A source of the updates that a test puts in. `closed` is set when its reader closes it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Sequence[MatchUpdate] | Exception | None] = asyncio.Queue()
        self.closed = False

    def put(self, *updates: MatchUpdate) -> None:
        self._queue.put_nowait(updates)

    def end(self, problem: Exception | None = None) -> None:
        self._queue.put_nowait(problem)

    async def updates(self) -> AsyncGenerator[Sequence[MatchUpdate], None]:
        try:
            while (batch := await self._queue.get()) is not None:
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            self.closed = True


@pytest.fixture(autouse=True)
async def tidy() -> AsyncIterator[None]:
    """Check that no task and no unretrieved exception remains."""
    loop = asyncio.get_running_loop()
    wrong: list[dict[str, Any]] = []
    loop.set_debug(True)
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    before = asyncio.all_tasks()
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}
    assert wrong == []


def versions(batch: Sequence[MatchUpdate]) -> list[tuple[str, int, int]]:
    """Return the match, the version, and the number of conflated versions of each update."""
    return [(item.match_id, item.version, item.conflated) for item in batch]


async def next_batch_soon(batches: AsyncGenerator[Sequence[MatchUpdate], None]) -> Sequence[MatchUpdate]:
    """Return the next batch, which must not wait for a long interval."""
    async with asyncio.timeout(LONG / 10):
        return await anext(batches)


async def test_the_first_batch_is_delivered_at_once_even_if_empty() -> None:
    for first in ((), (update(3, snapshot=True),)):
        source = SnapshotSource()
        source.put(*first)
        async with aclosing(events_in(conflated(live_deliveries(source.updates()), LONG))) as batches:
            assert await next_batch_soon(batches) == list(first)


async def test_without_an_interval_every_batch_passes_as_it_is() -> None:
    source = SnapshotSource()
    expected = [(update(1, snapshot=True), update(9, match_id="m2", snapshot=True)), (update(2),), (update(3),)]
    for batch in expected:
        source.put(*batch)
    source.end()

    assert [batch async for batch in events_in(conflated(live_deliveries(source.updates()), 0))] == [
        list(batch) for batch in expected
    ]
    assert source.closed


async def test_waiting_updates_are_conflated_into_one_after_the_interval() -> None:
    loop = asyncio.get_running_loop()
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), INTERVAL))) as batches:
        since = loop.time()
        await next_batch_soon(batches)
        for version in (2, 3, 4):
            source.put(update(version, CricketEventKind.FOUR if version == 3 else CricketEventKind.MAIDEN))

        (item,) = await anext(batches)

        assert loop.time() - since >= INTERVAL
        assert (item.version, item.conflated, item.is_snapshot) == (4, 2, False)
        assert [event.kind for event in item.events] == [
            CricketEventKind.MAIDEN,
            CricketEventKind.FOUR,
            CricketEventKind.MAIDEN,
        ]
        assert item.changed == (LiveStatePart.SCORE,)


async def test_after_a_quiet_interval_an_update_is_delivered_at_once() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), 0.02))) as batches:
        await next_batch_soon(batches)
        await asyncio.sleep(0.03)
        source.put(update(2))

        assert versions(await next_batch_soon(batches)) == [("m1", 2, 0)]


@pytest.mark.parametrize("kind", [kind for kind in CricketEventKind if kind not in CONFLATABLE])
async def test_an_urgent_event_is_delivered_at_once_with_the_waiting_updates(kind: CricketEventKind) -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), LONG))) as batches:
        await next_batch_soon(batches)
        source.put(update(2, CricketEventKind.SIX))
        source.put(update(3))
        source.put(update(4, kind))

        (item,) = await next_batch_soon(batches)

        assert (item.version, item.conflated) == (4, 2)
        assert [event.kind for event in item.events] == [CricketEventKind.SIX, kind]


async def test_an_urgent_event_of_a_match_does_not_release_another_match() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True), update(1, match_id="m2", snapshot=True))
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), INTERVAL))) as batches:
        await next_batch_soon(batches)
        source.put(update(2, match_id="m2"))
        source.put(update(2, CricketEventKind.WICKET))
        source.put(update(3, match_id="m2"))

        assert versions(await next_batch_soon(batches)) == [("m1", 2, 0)]
        assert versions(await anext(batches)) == [("m2", 3, 1)]


async def test_waiting_matches_are_delivered_together() -> None:
    source = SnapshotSource()
    source.put(*[update(1, match_id=f"m{number}", snapshot=True) for number in range(5)])
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), INTERVAL))) as batches:
        await next_batch_soon(batches)
        for version in (2, 3):
            for number in range(5):
                source.put(update(version, match_id=f"m{number}"))

        assert versions(await anext(batches)) == [(f"m{number}", 3, 1) for number in range(5)]


async def test_a_snapshot_replaces_the_waiting_update_and_keeps_its_events() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    async with aclosing(events_in(conflated(live_deliveries(source.updates()), LONG))) as batches:
        await next_batch_soon(batches)
        source.put(update(2, CricketEventKind.FOUR))
        source.put(update(9, snapshot=True))

        (item,) = await next_batch_soon(batches)

        assert (item.version, item.is_snapshot, item.conflated) == (9, True, 0)
        assert [event.event_id for event in item.events] == ["m1:2:four"]


async def test_waiting_updates_are_delivered_before_the_end() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    source.put(update(2))
    source.put(update(3))
    source.end()

    batches = [versions(batch) async for batch in events_in(conflated(live_deliveries(source.updates()), LONG))]

    assert batches == [[("m1", 1, 0)], [("m1", 3, 1)]]
    assert source.closed


async def test_waiting_updates_are_delivered_before_a_failure() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    source.put(update(2, CricketEventKind.FOUR))
    source.end(SlowSubscriber("too slow", behind=1001))
    batches = events_in(conflated(live_deliveries(source.updates()), LONG))

    await anext(batches)
    assert versions(await anext(batches)) == [("m1", 2, 0)]
    with pytest.raises(SlowSubscriber, match="too slow"):
        await anext(batches)
    with pytest.raises(StopAsyncIteration):
        await anext(batches)
    assert source.closed


async def test_a_failure_before_the_first_batch_is_raised() -> None:
    source = SnapshotSource()
    source.end(LookupError("no such match"))

    with pytest.raises(LookupError, match="no such match"):
        await anext(events_in(conflated(live_deliveries(source.updates()), LONG)))
    assert source.closed


@pytest.mark.parametrize("waiting", [True, False], ids=["with updates that wait", "with none"])
async def test_closing_during_an_interval_closes_the_source(waiting: bool) -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    batches = events_in(conflated(live_deliveries(source.updates()), LONG))
    await next_batch_soon(batches)
    if waiting:
        source.put(update(2))

    reader = asyncio.create_task(anext(batches))
    await asyncio.sleep(0.01)
    reader.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reader
    assert source.closed


async def test_closing_between_two_batches_closes_the_source() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    batches = events_in(conflated(live_deliveries(source.updates()), LONG))
    await next_batch_soon(batches)

    await batches.aclose()

    assert source.closed


async def test_closing_before_a_failure_is_raised_leaves_no_exception() -> None:
    source = SnapshotSource()
    source.put(update(1, snapshot=True))
    batches = events_in(conflated(live_deliveries(source.updates()), 0))
    await anext(batches)
    source.end(SlowSubscriber("too slow", behind=1001))
    await asyncio.sleep(0.01)

    await batches.aclose()

    assert source.closed


async def test_random_updates_lose_no_event_and_versions_are_contiguous() -> None:
    rng = random.Random(7)
    kinds = list(CricketEventKind)
    source = SnapshotSource()
    source.put(*[update(1, match_id=f"m{number}", snapshot=True) for number in range(3)])
    expected: dict[str, list[str]] = {f"m{number}": [] for number in range(3)}
    latest = dict.fromkeys(expected, 1)

    async def play() -> None:
        for _ in range(300):
            match_id = rng.choice(list(expected))
            latest[match_id] += 1
            item = update(latest[match_id], *rng.sample(kinds, rng.choice((0, 0, 0, 1, 2))), match_id=match_id)
            expected[match_id] += [event.event_id for event in item.events]
            source.put(item)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.01)
        source.end()

    playing = asyncio.create_task(play())
    received: dict[str, list[str]] = {match_id: [] for match_id in expected}
    seen = dict.fromkeys(expected, 0)
    sizes = 0
    async for batch in events_in(conflated(live_deliveries(source.updates()), 0.01)):
        assert len({item.match_id for item in batch}) == len(batch)
        for item in batch:
            assert item.version == seen[item.match_id] + 1 + item.conflated
            seen[item.match_id] = item.version
            received[item.match_id] += [event.event_id for event in item.events]
            sizes += 1
    await playing

    assert received == expected
    assert seen == latest
    assert sizes < 303
