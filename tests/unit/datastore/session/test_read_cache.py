"""The cache of point reads that the requests of a process share."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.engine.ttl_sweeper import sweep
from datastore.errors import DomainError
from datastore.keyspace import PATTERNS
from datastore.keyspace.feeds.search import SEARCH_POSTS
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, LIVE_SCORE
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import SHARED_MS, AccessPattern, Who
from datastore.session.request_reads import ReadFreshness
from datastore.session.store import Store
from datastore.session.writes import Action
from tests.support.fault_proxy import (
    Fault,
    Proxy,
    Seen,
    hang,
    lose_answer,
    refuse,
    reset,
)
from tests.support.served import NOON, Clock
from tests.support.shared_point_reads import (
    HOT,
    LATEST,
    READ,
    WRITE,
    Open,
    RequestGate,
    client,
    elsewhere,
    key,
    open_store,
    value,
    valued_item,
)

__all__ = ["client", "elsewhere", "open_store"]

REMOVE = AccessPattern("T-5", "", BLIP, ("DeleteItem",), Who.ANY)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=3))


# --- Cached items -----------------------------------------------------------------------------------------------------


async def test_a_hot_item_is_read_four_times_a_second(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    for _ in range(40):
        assert await value(open_store(), HOT) == 1
        clock.forward(milliseconds=25)

    assert len(proxy.seen) == 4


async def test_a_pattern_may_have_a_shorter_lifetime(open_store: Open, elsewhere: Store, clock: Clock) -> None:
    short = replace(HOT, shared_ms=100)
    await elsewhere.put(WRITE, valued_item(1))
    assert await value(open_store(), HOT) == 1
    await elsewhere.put(WRITE, valued_item(2))
    clock.forward(milliseconds=99)
    assert await value(open_store(), short) == 1
    clock.forward(milliseconds=2)
    assert await value(open_store(), HOT) == 1
    assert await value(open_store(), short) == 2


async def test_the_lifetime_begins_when_the_read_was_sent(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    gate = RequestGate(proxy)
    first = asyncio.ensure_future(value(open_store(), HOT))
    await gate.holds()
    await elsewhere.put(WRITE, valued_item(2))
    clock.forward(milliseconds=250)
    gate.open()

    assert await first == 1
    assert await value(open_store(), HOT) == 2
    clock.forward(seconds=-60)
    await elsewhere.put(WRITE, valued_item(3))
    assert await value(open_store(), HOT) == 3  # setting the clock back does not extend the lifetime


@pytest.mark.parametrize(
    ("sharing", "pattern"),
    [(ReadFreshness.CACHED, READ), (ReadFreshness.CACHED, LATEST), (ReadFreshness.OWN, HOT)],
    ids=str,
)
async def test_requests_that_do_not_allow_it_receive_no_cached_item(
    open_store: Open, elsewhere: Store, sharing: ReadFreshness, pattern: AccessPattern
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    asker = open_store(sharing)
    assert await value(open_store(), HOT) == 1
    await elsewhere.put(WRITE, valued_item(2))

    assert await value(asker, HOT) == (2 if sharing is ReadFreshness.OWN else 1)
    assert await value(asker, pattern) == 2


async def test_missing_items_are_not_cached(open_store: Open, elsewhere: Store) -> None:
    assert await value(open_store(), HOT) is None
    await elsewhere.put(WRITE, valued_item(1))
    assert await value(open_store(), HOT) == 1


WRITES: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "put": lambda store: store.put(WRITE, valued_item(2)),
    "update": lambda store: store.update(WRITE, key(), update="SET #value = :two", two=2),
    "delete": lambda store: store.delete(REMOVE, key()),
    "batch": lambda store: store.write_all(BLIP, puts=[valued_item(2)]),
    "transaction": lambda store: store.transact(BLIP, [Action("Put", item=valued_item(2))]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_of_this_process_drops_the_cached_item(
    open_store: Open, elsewhere: Store, write: Callable[[Store], Awaitable[Any]]
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    assert await value(open_store(), HOT) == 1

    await write(open_store(ReadFreshness.OWN))

    assert await value(open_store(), HOT) == (None if write is WRITES["delete"] else 2)


async def test_expired_entries_are_dropped_by_the_sweep(
    open_store: Open, elsewhere: Store, client: Client, database: Database
) -> None:
    await elsewhere.put(WRITE, valued_item(1) | {"expiresAt": int(NOON.timestamp()) - 1})
    assert await value(open_store(), HOT) == 1

    assert await sweep(client, [BLIP], database.prefix, NOON) == 1

    assert await value(open_store(), HOT) is None


async def test_the_cache_is_bounded_by_the_read_units_of_its_items(
    proxy: Proxy, open_store: Open, elsewhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastore.dynamodb.read_cache.MAX_CACHED_UNITS", 2.0)
    big = valued_item(3, 3) | {"more": "x" * 8000}
    await elsewhere.write_all(BLIP, puts=[valued_item(1, 1), valued_item(2, 2), big])

    async def calls_for(*numbers: int) -> int:
        before = len(proxy.seen)
        for number in numbers:
            assert await value(open_store(), HOT, number) == number
        return len(proxy.seen) - before

    assert await calls_for(1, 2, 3) == 3
    assert await calls_for(1, 2, 3) == 0  # of 0.5, 0.5 and 1 read units
    assert await value(open_store(), HOT, 4) is None
    assert await calls_for(1, 2, 3) == 3  # another 0.5 exceeded the limit, and the cache was cleared
    await open_store().find_all(HOT, [key(1), key(3)])
    assert await calls_for(1, 3) == 0


@pytest.mark.parametrize("clock_goes", [0, 999])
async def test_a_read_just_after_a_write_of_this_process_is_not_cached(
    proxy: Proxy, open_store: Open, clock: Clock, clock_goes: int
) -> None:
    """An eventually consistent read may return the old item, which later requests must not receive."""
    await open_store(ReadFreshness.OWN).put(WRITE, valued_item(1))
    clock.forward(seconds=1)
    before = await stale(proxy, open_store)
    await open_store(ReadFreshness.OWN).put(WRITE, valued_item(2))
    clock.forward(milliseconds=clock_goes)
    proxy.faults.append(before)

    assert await value(open_store(), HOT) == 1
    assert await asyncio.gather(*[value(open_store(), HOT) for _ in range(5)]) == [2] * 5
    assert proxy.operations()[-2:] == ["GetItem", "GetItem"]  # one for all five: they share the read in flight

    clock.forward(milliseconds=1000 - clock_goes)
    calls_for = len(proxy.seen)
    assert [await value(open_store(), HOT) for _ in range(5)] == [2] * 5
    assert len(proxy.seen) == calls_for + 1


async def stale(proxy: Proxy, open_store: Open) -> Fault:
    """Return a fault that always answers a read with the present item."""
    answers: list[tuple[int, dict[str, str], bytes]] = []

    async def listen(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        answers.append(await proxy.ask(seen))
        return await answer(proxy, seen)

    async def answer(_proxy: Proxy, _seen: Seen) -> web.StreamResponse:
        status, headers, content = answers[0]
        return web.Response(status=status, headers=headers, body=content)

    proxy.faults.append(listen)
    await value(open_store(), READ)
    return answer


def test_only_public_data_is_cached() -> None:
    hot = [pattern for pattern in PATTERNS if pattern.shared_ms]
    assert {"FIX-1", "TM-1", "LG-1", "QUAKE-5", "FEED-001", "FEED-004", "DSC-1"} <= {pattern.id for pattern in hot}
    for pattern in hot:
        assert pattern.who is Who.ANY, pattern.id
        # The cursors of a search are encrypted; the posts that it reads are those of FEED-004.
        assert not pattern.personal or pattern is SEARCH_POSTS, pattern.id
        assert not pattern.consistent, pattern.id
        if pattern.table is ACTIVE_MATCHES and pattern is not LIVE_SCORE:  # the list of live matches: `remembered`
            assert pattern.shared_ms <= 1_000, pattern.id
            continue
        assert "GetItem" in pattern.operations, pattern.id
        assert pattern.shared_ms <= SHARED_MS, pattern.id  # the upper limit


# --- Random requests --------------------------------------------------------------------------------------------------


@dataclass
class Writes:
    """The writes of one item, one after another, each with a greater value."""

    sent: int = 0
    acknowledged: int = 0
    by_this_process: int = 0
    #: For each value, the time when it was replaced, as its writer knows it.
    replaced: dict[int, float] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RandomRequests:
    """Requests of one process and writers elsewhere, on three items. Each read is compared with the allowed values."""

    def __init__(self, seed: int, open_store: Open, elsewhere: Store, clock: Clock) -> None:
        self._random = random.Random(seed)
        self._open = open_store
        self._elsewhere = elsewhere
        self._clock = clock
        self._writes = [Writes() for _ in range(3)]
        self.brought = 0

    async def fault(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        """Answer late, or not at all."""
        rng = self._random.random()
        if rng < 0.05 and not seen.operation.startswith("Put"):
            return await hang(proxy, seen)
        if rng < 0.15:
            return await self._random.choice([reset, lose_answer, refuse(400, "ThrottlingException")])(proxy, seen)
        status, headers, content = await proxy.ask(seen)
        await asyncio.sleep(self._random.choice([0, 0.002, 0.01]))
        return web.Response(status=status, headers=headers, body=content)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(250):
                rng = self._random.random()
                number = self._random.randrange(3)
                if rng < 0.15:
                    tasks.create_task(self._write(number, own=rng < 0.08))
                elif rng < 0.3:
                    self._clock.forward(milliseconds=self._random.randrange(150))
                else:
                    tasks.create_task(self._read(number))
                await asyncio.sleep(self._random.choice([0, 0, 0.001, 0.004]))

    async def _write(self, number: int, *, own: bool) -> None:
        writes = self._writes[number]
        async with writes.lock:
            writes.sent += 1
            value = writes.sent
            store = self._open(ReadFreshness.OWN) if own else self._elsewhere
            for _ in range(20):
                try:
                    await store.put(WRITE, valued_item(value, number))
                    break
                except DomainError:
                    store = self._open(ReadFreshness.OWN)
            writes.replaced[writes.acknowledged] = self._clock().timestamp()
            writes.acknowledged = value
            if own:
                writes.by_this_process = value

    async def _read(self, number: int) -> None:
        writes = self._writes[number]
        pattern = self._random.choice([READ, HOT, HOT, LATEST])
        sharing = self._random.choice([ReadFreshness.CACHED, ReadFreshness.CACHED, ReadFreshness.OWN])
        store = self._open(sharing, seconds=self._random.choice([0.03, 0.3, 0.3]))
        began, own, latest = self._clock().timestamp(), writes.by_this_process, writes.acknowledged
        if self._random.random() < 0.1:
            asyncio.get_running_loop().call_later(self._random.random() / 100, store.close)
        try:
            found = await value(store, pattern, number) or 0
        except (DomainError, asyncio.CancelledError):
            return
        self.brought += 1
        assert found <= writes.sent
        assert found >= own
        if sharing is ReadFreshness.OWN or pattern is LATEST:
            assert found >= latest
        assert writes.replaced.get(found, began) >= began - 0.25


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(6))
async def test_a_read_is_always_as_recent_as_required(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock, seed: int
) -> None:
    world = RandomRequests(seed, open_store, elsewhere, clock)
    proxy.always = world.fault
    await world.run()
    assert world.brought > 60
