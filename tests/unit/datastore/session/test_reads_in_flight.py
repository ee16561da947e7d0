"""Point reads in flight that requests of a process share: owners, waiters, and their failures."""

import asyncio

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.records import LazyItem
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.errors import DomainError, Throttled, Timeout
from datastore.keyspace.sightings import BLIP
from datastore.session.metering import Deadline
from datastore.session.request_reads import ReadFreshness
from datastore.session.store import Store
from tests.support.fault_proxy import (
    QUICK,
    Fault,
    Proxy,
    Seen,
    client_of,
    hang,
    leave_half,
    plain_error,
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
from tests.support.until import until

__all__ = ["client", "elsewhere", "open_store"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=3))


async def joined() -> None:
    """Wait until earlier tasks have requested their reads and sent those that no other read joined."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- Reads in flight --------------------------------------------------------------------------------------------------


async def test_equal_reads_in_flight_are_one_call_that_the_owner_pays(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, valued_item(7))
    gate, stores = RequestGate(proxy), [open_store() for _ in range(50)]

    first = asyncio.ensure_future(value(stores[0]))
    await gate.holds()
    others = [asyncio.ensure_future(value(store)) for store in stores[1:]]
    two = asyncio.ensure_future(open_store().find_all(READ, [key(1), key(2)]))
    await until(lambda: len(proxy.seen) == 2)  # a key without a read in flight is sent at once
    gate.open()

    assert await asyncio.gather(first, *others) == [7] * 50
    assert [found and found.item["value"] for found in await two] == [7, None]  # type: ignore[union-attr]
    assert proxy.operations() == ["GetItem", "GetItem"]
    assert [len(store.meter.calls) for store in stores] == [1] + [0] * 49


async def test_a_read_after_a_write_sees_it_whatever_is_in_flight(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    gate = RequestGate(proxy, held=2)
    before = [asyncio.ensure_future(value(open_store(), pattern)) for pattern in (HOT, LATEST)]
    await gate.holds(2)

    await open_store(ReadFreshness.OWN).put(WRITE, valued_item(2))
    after = [asyncio.ensure_future(value(open_store(), pattern)) for pattern in (READ, HOT, LATEST)]

    assert await asyncio.gather(*after) == [2, 2, 2]
    gate.open()
    assert await asyncio.gather(*before) == [1, 1]
    assert await value(open_store(), HOT) == 2  # the older value was not cached


@pytest.mark.parametrize("sharing", [ReadFreshness.OWN, ReadFreshness.CACHED])
async def test_a_read_of_the_latest_value_joins_no_read_that_was_sent_before(
    proxy: Proxy, open_store: Open, elsewhere: Store, sharing: ReadFreshness
) -> None:
    """The process does not learn of the writes of others, so an earlier read may miss them."""
    await elsewhere.put(WRITE, valued_item(1))
    pattern = LATEST if sharing is ReadFreshness.CACHED else READ
    gate = RequestGate(proxy)
    before = asyncio.ensure_future(value(open_store(sharing), pattern))
    await gate.holds()
    await elsewhere.put(WRITE, valued_item(2))

    assert await value(open_store(sharing), pattern) == 2
    gate.open()
    assert await before == 1


async def test_reads_of_the_latest_value_share_a_read_that_is_not_sent_yet(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, valued_item(1))

    assert await asyncio.gather(*[value(open_store(), LATEST) for _ in range(5)]) == [1] * 5
    assert proxy.operations() == ["GetItem"]


async def test_no_request_joins_a_read_that_has_hung_for_a_quarter_of_a_second(
    proxy: Proxy, open_store: Open, elsewhere: Store, clock: Clock
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    gate = RequestGate(proxy)
    first = asyncio.ensure_future(value(open_store()))
    await gate.holds()
    clock.forward(milliseconds=250)

    second = asyncio.ensure_future(value(open_store()))
    await until(lambda: len(proxy.seen) == 2)
    assert await second == 1
    gate.open()
    assert await first == 1


@pytest.mark.proof
@pytest.mark.parametrize("end", ["closed", "late", "stopped"])
async def test_the_end_of_the_owner_does_not_end_the_waiters(
    proxy: Proxy, open_store: Open, elsewhere: Store, end: str
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    gate = RequestGate(proxy)
    leader = open_store(seconds=2.5 if end == "late" else 10)
    first = asyncio.ensure_future(value(leader))
    await gate.holds()
    stores = [open_store() for _ in range(3)]
    others = [asyncio.ensure_future(value(store)) for store in stores]
    await joined()
    assert len(proxy.seen) == 1

    if end == "closed":
        leader.close()
    elif end == "stopped":
        others.pop().cancel()  # cancelling a waiter does not end the read either
        gate.open()

    assert await asyncio.gather(*others) == [1] * len(others)
    again = 0 if end == "stopped" else 1
    assert sum(len(store.meter.calls) for store in stores) == again
    assert proxy.operations() == ["GetItem"] * (1 + again)
    await asyncio.wait([first])


async def test_a_waiter_waits_no_longer_than_its_own_deadline(proxy: Proxy, open_store: Open) -> None:
    gate = RequestGate(proxy)
    first = asyncio.ensure_future(value(open_store()))
    await gate.holds()

    with pytest.raises(Timeout):
        await value(open_store(seconds=0.05))

    gate.open()
    assert await first is None


@pytest.mark.proof
async def test_items_read_by_others_are_returned_although_the_own_read_is_late(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    gate = RequestGate(proxy)
    first = asyncio.create_task(value(open_store()))
    await gate.holds()
    proxy.faults.append(hang)
    both = asyncio.ensure_future(open_store(seconds=2.5).find_all(READ, [key(1), key(2)]))
    await until(lambda: len(proxy.seen) == 2)
    gate.open()
    await first

    brought, late = await both
    assert isinstance(brought, LazyItem)
    assert isinstance(late, Timeout)


@pytest.mark.proof
@pytest.mark.parametrize("fault", ["fails", "is busy", "leaves some", "is away"])
async def test_an_owner_without_time_for_a_retry_does_not_fail_waiters_that_have_it(
    proxy: Proxy, database: Database, elsewhere: Store, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Backoff(initial=1e6, maximum=1e6, attempts=8)
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", slow)
    await elsewhere.put(WRITE, valued_item(1))
    await elsewhere.put(WRITE, valued_item(2, 2))
    answer: Fault = {
        "fails": plain_error(500),
        "is busy": refuse(400, "ThrottlingException"),
        "leaves some": leave_half,
        "is away": reset,
    }[fault]
    answering = asyncio.Event()

    async def late(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await answering.wait()
        return await answer(proxy, seen)

    breaker_config = BreakerConfig(
        failures=1 if fault == "is away" else 100, wait_seconds=60, first_probe_seconds=5, probe_interval=5
    )
    client = client_of(proxy, backoff=QUICK if fault == "is away" else slow, breaker_config=breaker_config)
    async with client:

        def store(seconds: float) -> Store:
            opened = Store(
                client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "token", now=lambda: NOON
            )
            opened.freshness = ReadFreshness.CACHED
            return opened

        proxy.faults.append(late)
        keys = [key(1), key(2)] if fault == "leaves some" else [key(1)]
        first = asyncio.ensure_future(store(2.5).find_all(READ, keys))
        await until(lambda: len(proxy.seen) == 1)
        others = [asyncio.ensure_future(store(60).find_all(READ, keys)) for _ in range(3)]
        await joined()
        answering.set()

        (failed,) = [result for result in await first if isinstance(result, DomainError)]
        expected = {"THROTTLED"} if fault in ("is busy", "leaves some") else {"UNAVAILABLE"}
        # The deadline may end the wait for a store that is away.
        assert failed.code in (expected | {"TIMEOUT"} if fault == "is away" else expected)
        for found in await asyncio.gather(*others):
            assert all(isinstance(result, LazyItem) for result in found), found


async def test_a_failure_is_passed_to_the_waiters_and_not_cached(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.put(WRITE, valued_item(1))
    proxy.always = refuse(400, "ThrottlingException")
    outcomes = await asyncio.gather(*[value(open_store(), HOT) for _ in range(5)], return_exceptions=True)
    tries = len(proxy.seen)
    proxy.always = None

    assert [type(outcome) for outcome in outcomes] == [Throttled] * 5
    assert tries == 4  # of one call
    assert await value(open_store(), HOT) == 1


async def test_parts_of_an_item_serve_requests_that_need_no_more(
    proxy: Proxy, open_store: Open, elsewhere: Store
) -> None:
    await elsewhere.write_all(BLIP, puts=[valued_item(1), valued_item(2, 2)])
    keys = [key(1), key(2)]
    gate = RequestGate(proxy, held=1)
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
    assert (await same.get(READ, key(1)) or {})["more"] == "x"  # a request that needs more reads again
    assert proxy.operations() == ["BatchGetItem", "BatchGetItem", "GetItem"]
