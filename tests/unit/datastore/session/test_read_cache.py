"""Point reads that requests of a process share: equal ones in flight, and what a crowd looks at."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.read_cache import ReadCaches
from datastore.dynamodb.records import LazyItem
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.engine.ttl_sweeper import sweep
from datastore.errors import DomainError, Throttled, Timeout
from datastore.keyspace import PATTERNS
from datastore.keyspace.feeds.search import SEARCH_POSTS
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, LIVE_SCORE
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import CROWD_MS, AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.request_reads import ReadFreshness
from datastore.session.store import Store
from datastore.session.writes import Action
from tests.support.fault_proxy import (
    QUICK,
    Fault,
    Proxy,
    Seen,
    client_of,
    hang,
    leave_half,
    lose_answer,
    plain,
    refuse,
    reset,
)
from tests.support.served import NOON, Clock
from tests.support.until import until

READ = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)
HOT = replace(READ, id="T-2", shared_ms=250)
LATEST = replace(READ, id="T-3", consistent=True)
WRITE = AccessPattern("T-4", "", BLIP, ("PutItem",), Who.ANY)
REMOVE = AccessPattern("T-5", "", BLIP, ("DeleteItem",), Who.ANY)

Open = Callable[..., Store]


def key(number: int = 1) -> Key:
    return Key("P", f"S#{number}")


def item(value: int, number: int = 1) -> dict[str, Any]:
    return {"PK": "P", "SK": f"S#{number}", "value": value, "more": "x"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=3))


@pytest.fixture
async def client(proxy: Proxy, clock: Clock) -> AsyncIterator[Client]:
    async with client_of(proxy, read_caches=ReadCaches(lambda: clock().timestamp())) as client:
        yield client


@pytest.fixture
def open_store(client: Client, database: Database) -> Open:
    """Stores of requests of one process, which goes through the proxy."""

    def store(sharing: ReadFreshness = ReadFreshness.CACHED, seconds: float = 10) -> Store:
        opened = Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "token")
        opened.freshness = sharing
        return opened

    return store


@pytest.fixture
def elsewhere(database: Database) -> Store:
    """Another process, which writes past this one."""
    return Store(database.client, prefix=database.prefix, deadline=Deadline(60), token=lambda: "token")


async def value(store: Store, pattern: AccessPattern = READ, number: int = 1) -> int | None:
    found = await store.get(pattern, key(number))
    return None if found is None else int(found["value"])


class Gate:
    """Holds so many requests, each with what the engine answered when it came, until it is opened."""

    def __init__(self, proxy: Proxy, held: int = 1) -> None:
        self._open = asyncio.Event()
        self._waiting = 0
        proxy.faults.extend([self] * held)

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        self._waiting += 1
        await self._open.wait()
        return web.Response(status=status, headers=headers, body=content)

    async def holds(self, count: int = 1) -> None:
        await until(lambda: self._waiting == count)

    def open(self) -> None:
        self._open.set()


async def joined() -> None:
    """Until what was begun before has asked, and sent what nobody reads."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- Reads in flight --------------------------------------------------------------------------------------------------


async def test_equal_reads_in_flight_are_one_call_and_who_sent_it_pays(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, item(7))
    gate, stores = Gate(proxy), [open_store() for _ in range(50)]

    first = asyncio.ensure_future(value(stores[0]))
    await gate.holds()
    others = [asyncio.ensure_future(value(store)) for store in stores[1:]]
    two = asyncio.ensure_future(open_store().find_all(READ, [key(1), key(2)]))
    await until(lambda: len(proxy.seen) == 2)  # what nobody reads is sent at once
    gate.open()

    assert await asyncio.gather(first, *others) == [7] * 50
    assert [found and found.item["value"] for found in await two] == [7, None]  # type: ignore[union-attr]
    assert proxy.operations() == ["GetItem", "GetItem"]
    assert [len(store.meter.calls) for store in stores] == [1] + [0] * 49


async def test_a_write_is_seen_by_who_asks_after_it_whatever_is_in_flight(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, item(1))
    gate = Gate(proxy, held=2)
    before = [asyncio.ensure_future(value(open_store(), pattern)) for pattern in (HOT, LATEST)]
    await gate.holds(2)

    await open_store(ReadFreshness.OWN).put(WRITE, item(2))
    after = [asyncio.ensure_future(value(open_store(), pattern)) for pattern in (READ, HOT, LATEST)]

    assert await asyncio.gather(*after) == [2, 2, 2]
    gate.open()
    assert await asyncio.gather(*before) == [1, 1]
    assert await value(open_store(), HOT) == 2  # the older one was not kept


@pytest.mark.parametrize("sharing", [ReadFreshness.OWN, ReadFreshness.CACHED])
async def test_who_must_see_the_latest_joins_no_read_that_was_sent_before(
    proxy: Proxy, open_store: Open, elsewhere: Store, sharing: ReadFreshness
) -> None:
    """What others write this process does not hear of: a read of before may miss it."""
    await elsewhere.put(WRITE, item(1))
    pattern = LATEST if sharing is ReadFreshness.CACHED else READ
    gate = Gate(proxy)
    before = asyncio.ensure_future(value(open_store(sharing), pattern))
    await gate.holds()
    await elsewhere.put(WRITE, item(2))

    assert await value(open_store(sharing), pattern) == 2
    gate.open()
    assert await before == 1


async def test_who_must_see_the_latest_shares_what_is_not_sent_yet(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, item(1))

    assert await asyncio.gather(*[value(open_store(), LATEST) for _ in range(5)]) == [1] * 5
    assert proxy.operations() == ["GetItem"]


async def test_nobody_joins_a_read_that_has_hung_for_a_quarter_of_a_second(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, item(1))
    gate = Gate(proxy)
    first = asyncio.ensure_future(value(open_store()))
    await gate.holds()
    clock.forward(milliseconds=250)

    second = asyncio.ensure_future(value(open_store()))
    await until(lambda: len(proxy.seen) == 2)
    assert await second == 1
    gate.open()
    assert await first == 1


@pytest.mark.parametrize("end", ["closed", "late", "stopped"])
async def test_the_end_of_who_sent_a_read_is_not_that_of_those_who_wait_for_it(
    proxy: Proxy, open_store: Open, elsewhere: Store, end: str
) -> None:
    await elsewhere.put(WRITE, item(1))
    gate = Gate(proxy)
    leader = open_store(seconds=0.2 if end == "late" else 10)
    first = asyncio.ensure_future(value(leader))
    await gate.holds()
    stores = [open_store() for _ in range(3)]
    others = [asyncio.ensure_future(value(store)) for store in stores]
    await joined()
    assert len(proxy.seen) == 1

    if end == "closed":
        leader.close()
    elif end == "stopped":
        others.pop().cancel()  # nor is that of one who waits
        gate.open()

    assert await asyncio.gather(*others) == [1] * len(others)
    again = 0 if end == "stopped" else 1
    assert sum(len(store.meter.calls) for store in stores) == again
    assert proxy.operations() == ["GetItem"] * (1 + again)
    await asyncio.wait([first])


async def test_who_waits_for_another_waits_no_longer_than_their_own_deadline(proxy: Proxy, open_store: Open) -> None:
    gate = Gate(proxy)
    first = asyncio.ensure_future(value(open_store()))
    await gate.holds()

    with pytest.raises(Timeout):
        await value(open_store(seconds=0.05))

    gate.open()
    assert await first is None


async def test_what_others_have_brought_is_there_though_ones_own_read_is_late(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, item(1))
    gate = Gate(proxy)
    first = asyncio.create_task(value(open_store()))
    await gate.holds()
    proxy.faults.append(hang)
    both = asyncio.ensure_future(open_store(seconds=0.2).find_all(READ, [key(1), key(2)]))
    await until(lambda: len(proxy.seen) == 2)
    gate.open()
    await first

    brought, late = await both
    assert isinstance(brought, LazyItem)
    assert isinstance(late, Timeout)


@pytest.mark.parametrize("fault", ["fails", "is busy", "leaves some", "is away"])
async def test_who_had_no_time_for_another_try_tells_those_nothing_who_have(
    proxy: Proxy, database: Database, elsewhere: Store, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Backoff(initial=1e6, maximum=1e6, attempts=8)
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", slow)
    await elsewhere.put(WRITE, item(1))
    await elsewhere.put(WRITE, item(2, 2))
    answer: Fault = {
        "fails": plain(500),
        "is busy": refuse(400, "ThrottlingException"),
        "leaves some": leave_half,
        "is away": reset,
    }[fault]
    come = asyncio.Event()

    async def late(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await come.wait()
        return await answer(proxy, seen)

    terms = BreakerConfig(
        failures=1 if fault == "is away" else 100, wait_seconds=60, first_probe_seconds=0.6, probe_interval=0.6
    )
    client = client_of(proxy, backoff=QUICK if fault == "is away" else slow, breaker_config=terms)
    async with client:

        def store(seconds: float) -> Store:
            opened = Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "token")
            opened.freshness = ReadFreshness.CACHED
            return opened

        proxy.faults.append(late)
        keys = [key(1), key(2)] if fault == "leaves some" else [key(1)]
        first = asyncio.ensure_future(store(0.2).find_all(READ, keys))
        await until(lambda: len(proxy.seen) == 1)
        others = [asyncio.ensure_future(store(10).find_all(READ, keys)) for _ in range(3)]
        await joined()
        come.set()

        (failed,) = [one for one in await first if isinstance(one, DomainError)]
        told = {"THROTTLED"} if fault in ("is busy", "leaves some") else {"UNAVAILABLE"}
        # Its deadline may be what ends its wait for a store that is away.
        assert failed.code in (told | {"TIMEOUT"} if fault == "is away" else told)
        for found in await asyncio.gather(*others):
            assert all(isinstance(one, LazyItem) for one in found), found


async def test_a_failure_is_told_to_those_who_wait_and_to_nobody_after_them(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, item(1))
    proxy.always = refuse(400, "ThrottlingException")
    outcomes = await asyncio.gather(*[value(open_store(), HOT) for _ in range(5)], return_exceptions=True)
    tries = len(proxy.seen)
    proxy.always = None

    assert [type(outcome) for outcome in outcomes] == [Throttled] * 5
    assert tries == 4  # of one call
    assert await value(open_store(), HOT) == 1


async def test_parts_of_an_item_serve_those_who_want_no_more(proxy: Proxy, open_store: Open, elsewhere: Store) -> None:
    await elsewhere.write_all(BLIP, puts=[item(1), item(2, 2)])
    keys = [key(1), key(2)]
    gate = Gate(proxy, held=1)
    first = asyncio.ensure_future(open_store().find_all(READ, keys, ("value",)))
    await gate.holds()

    same = open_store()
    as_many = asyncio.ensure_future(same.find_all(READ, keys, ("value",)))
    await joined()
    whole = await open_store().find_all(READ, keys)
    gate.open()

    assert [found.item["more"] for found in whole if isinstance(found, LazyItem)] == ["x", "x"]
    for parts in (await first, await as_many):
        assert [sorted(found.item) for found in parts if isinstance(found, LazyItem)] == [["PK", "SK", "value"]] * 2
    assert same.meter.calls == []
    assert (await same.get(READ, key(1)) or {})["more"] == "x"  # who wants more then reads anew
    assert proxy.operations() == ["BatchGetItem", "BatchGetItem", "GetItem"]


# --- What is kept -----------------------------------------------------------------------------------------------------


async def test_a_hot_item_is_read_four_times_a_second(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, item(1))
    for _ in range(40):
        assert await value(open_store(), HOT) == 1
        clock.forward(milliseconds=25)

    assert len(proxy.seen) == 4


async def test_a_pattern_may_keep_for_less(open_store: Open, elsewhere: Store, clock: Clock) -> None:
    brief = replace(HOT, shared_ms=100)
    await elsewhere.put(WRITE, item(1))
    assert await value(open_store(), HOT) == 1
    await elsewhere.put(WRITE, item(2))
    clock.forward(milliseconds=99)
    assert await value(open_store(), brief) == 1
    clock.forward(milliseconds=2)
    assert await value(open_store(), HOT) == 1
    assert await value(open_store(), brief) == 2


async def test_what_is_kept_counts_from_when_it_was_asked_for(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, item(1))
    gate = Gate(proxy)
    first = asyncio.ensure_future(value(open_store(), HOT))
    await gate.holds()
    await elsewhere.put(WRITE, item(2))
    clock.forward(milliseconds=250)
    gate.open()

    assert await first == 1
    assert await value(open_store(), HOT) == 2
    clock.forward(seconds=-60)
    await elsewhere.put(WRITE, item(3))
    assert await value(open_store(), HOT) == 3  # a clock that was set back makes nothing last longer


@pytest.mark.parametrize(
    ("sharing", "pattern"),
    [(ReadFreshness.CACHED, READ), (ReadFreshness.CACHED, LATEST), (ReadFreshness.OWN, HOT)],
    ids=str,
)
async def test_nothing_kept_is_for_those_who_have_not_said_so(
    open_store: Open, elsewhere: Store, sharing: ReadFreshness, pattern: AccessPattern
) -> None:
    await elsewhere.put(WRITE, item(1))
    asker = open_store(sharing)
    assert await value(open_store(), HOT) == 1
    await elsewhere.put(WRITE, item(2))

    assert await value(asker, HOT) == (2 if sharing is ReadFreshness.OWN else 1)
    assert await value(asker, pattern) == 2


async def test_what_is_not_there_is_not_kept(open_store: Open, elsewhere: Store) -> None:
    assert await value(open_store(), HOT) is None
    await elsewhere.put(WRITE, item(1))
    assert await value(open_store(), HOT) == 1


WRITES: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "put": lambda store: store.put(WRITE, item(2)),
    "update": lambda store: store.update(WRITE, key(), update="SET #value = :two", two=2),
    "delete": lambda store: store.delete(REMOVE, key()),
    "batch": lambda store: store.write_all(BLIP, puts=[item(2)]),
    "transaction": lambda store: store.transact(BLIP, [Action("Put", item=item(2))]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_of_this_process_drops_what_is_kept(
    open_store: Open, elsewhere: Store, write: Callable[[Store], Awaitable[Any]]
) -> None:
    await elsewhere.put(WRITE, item(1))
    assert await value(open_store(), HOT) == 1

    await write(open_store(ReadFreshness.OWN))

    assert await value(open_store(), HOT) == (None if write is WRITES["delete"] else 2)


async def test_what_expires_is_dropped_as_it_is_swept(
    open_store: Open, elsewhere: Store, client: Client, database: Database
) -> None:
    await elsewhere.put(WRITE, item(1) | {"expiresAt": int(NOON.timestamp()) - 1})
    assert await value(open_store(), HOT) == 1

    assert await sweep(client, [BLIP], database.prefix, NOON) == 1

    assert await value(open_store(), HOT) is None


async def test_what_is_kept_is_bounded_by_what_it_took_to_read(
    proxy: Proxy, open_store: Open, elsewhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastore.dynamodb.read_cache.MAX_CACHED_UNITS", 2.0)
    big = item(3, 3) | {"more": "x" * 8000}
    await elsewhere.write_all(BLIP, puts=[item(1, 1), item(2, 2), big])

    async def asked(*numbers: int) -> int:
        before = len(proxy.seen)
        for number in numbers:
            assert await value(open_store(), HOT, number) == number
        return len(proxy.seen) - before

    assert await asked(1, 2, 3) == 3
    assert await asked(1, 2, 3) == 0  # of half a unit, half a unit, and one
    assert await value(open_store(), HOT, 4) is None
    assert await asked(1, 2, 3) == 3  # half a unit was too much, and all were forgotten
    await open_store().find_all(HOT, [key(1), key(3)])
    assert await asked(1, 3) == 0


@pytest.mark.parametrize("clock_goes", [0, 999])
async def test_what_is_read_just_after_a_write_of_this_process_is_not_kept(
    proxy: Proxy, open_store: Open, clock: Clock, clock_goes: int
) -> None:
    """An eventually consistent read may bring what was there before, and whoever asks then shall not see it again."""
    await open_store(ReadFreshness.OWN).put(WRITE, item(1))
    clock.forward(seconds=1)
    before = await stale(proxy, open_store)
    await open_store(ReadFreshness.OWN).put(WRITE, item(2))
    clock.forward(milliseconds=clock_goes)
    proxy.faults.append(before)

    assert await value(open_store(), HOT) == 1
    assert await asyncio.gather(*[value(open_store(), HOT) for _ in range(5)]) == [2] * 5
    assert proxy.operations()[-2:] == ["GetItem", "GetItem"]  # one for all five: they share what is in flight

    clock.forward(milliseconds=1000 - clock_goes)
    asked = len(proxy.seen)
    assert [await value(open_store(), HOT) for _ in range(5)] == [2] * 5
    assert len(proxy.seen) == asked + 1


async def stale(proxy: Proxy, open_store: Open) -> Fault:
    """Answers a read of the item as it stands now, whenever it is asked."""
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


def test_only_what_anybody_may_read_is_kept() -> None:
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
        assert pattern.shared_ms <= CROWD_MS, pattern.id  # nothing is kept for longer


# --- All of it at random ----------------------------------------------------------------------------------------------


@dataclass
class Writes:
    """Those of one item, one after another, each with a greater value: when each was sent, and acknowledged."""

    sent: int = 0
    acknowledged: int = 0
    by_this_process: int = 0
    # By the clock: when each value came to be no longer the latest, as far as its writer knows.
    replaced: dict[int, float] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class World:
    """Requests of one process and writers elsewhere, on three items; each read is held against what it may bring."""

    def __init__(self, seed: int, open_store: Open, elsewhere: Store, clock: Clock) -> None:
        self._random = random.Random(seed)
        self._open = open_store
        self._elsewhere = elsewhere
        self._clock = clock
        self._writes = [Writes() for _ in range(3)]
        self.brought = 0

    async def fault(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        """An answer of some time ago, or none."""
        chance = self._random.random()
        if chance < 0.05 and not seen.operation.startswith("Put"):
            return await hang(proxy, seen)
        if chance < 0.15:
            return await self._random.choice([reset, lose_answer, refuse(400, "ThrottlingException")])(proxy, seen)
        status, headers, content = await proxy.ask(seen)
        await asyncio.sleep(self._random.choice([0, 0.002, 0.01]))
        return web.Response(status=status, headers=headers, body=content)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(250):
                chance = self._random.random()
                number = self._random.randrange(3)
                if chance < 0.15:
                    tasks.create_task(self._write(number, own=chance < 0.08))
                elif chance < 0.3:
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
                    await store.put(WRITE, item(value, number))
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


@pytest.mark.parametrize("seed", range(6))
async def test_a_read_is_as_new_as_it_has_to_be_whatever_happens(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock, seed: int
) -> None:
    world = World(seed, open_store, elsewhere, clock)
    proxy.always = world.fault
    await world.run()
    assert world.brought > 60
