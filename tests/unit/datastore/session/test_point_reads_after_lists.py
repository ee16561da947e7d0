"""Point reads wait for the lists of their request, so that one batch serves all."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled, Timeout
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.fault_proxy import Proxy, Seen, forward, hang
from tests.support.point_reads import code_or_item, keys_asked, numbered_item, put_numbers, read_many
from tests.support.served import NOON


@pytest.fixture
def open_store(client: Client, database: Database) -> Callable[..., Store]:
    """Return a function that opens a store whose requests go through the proxy."""

    def store(seconds: float = 10) -> Store:
        return Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "", now=lambda: NOON)

    return store


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=6))


# --- Waiting for lists ------------------------------------------------------------------------------------------------


async def read_after_list(store: Store, came: asyncio.Event, numbers: Sequence[int]) -> list[Any]:
    """Wait for a list, whose arrival is `came`, and read the items that it names."""
    with store.defer_dispatch():
        await came.wait()
    return await read_many(store, numbers)


async def turn_loop(count: int = 60) -> None:
    """Run `count` turns of the event loop. The default is more than a batch waits after its lists have arrived."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_reads_wait_for_the_last_list_and_are_sent_with_the_reads_of_all_lists(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(6))
    store = open_store()
    one, other = asyncio.Event(), asyncio.Event()
    reads = asyncio.gather(
        read_many(store, [0, 1]),
        read_after_list(store, one, [1, 2, 3]),
        read_after_list(store, other, [4, 5]),
        read_many(store, [0, 5]),
    )

    other.set()
    await turn_loop()
    assert proxy.seen == []
    one.set()

    answers = [[numbered_item(number) for number in numbers] for numbers in ([0, 1], [1, 2, 3], [4, 5], [0, 5])]
    assert list(await reads) == answers
    assert [sorted(keys_asked(seen, database)) for seen in proxy.seen] == [[f"S#{number}" for number in range(6)]]


async def test_lists_that_arrive_at_nearly_the_same_time_share_a_batch(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(2))
    store = open_store()

    async def after(waited: int, number: int) -> list[Any]:
        with store.defer_dispatch():
            await turn_loop(waited)
        await turn_loop(3)
        return await read_many(store, [number])

    # The first read is requested while a list is pending. When it would be sent, no list is pending, and the second
    # read has not been requested yet.
    answers = await asyncio.gather(after(1, 0), after(4, 1))

    assert list(answers) == [[numbered_item(0)], [numbered_item(1)]]
    assert proxy.operations() == ["BatchGetItem"]


async def test_a_list_that_leads_to_lists_holds_the_batch_until_they_have_arrived(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(3))
    store = open_store()
    outer, inner = asyncio.Event(), asyncio.Event()

    async def nested() -> list[Any]:
        with store.defer_dispatch():
            await outer.wait()
        return [*await asyncio.gather(read_many(store, [1]), read_after_list(store, inner, [2]))]

    reads = asyncio.gather(read_many(store, [0]), nested())
    outer.set()
    await turn_loop()
    assert proxy.seen == []
    inner.set()

    assert list(await reads) == [[numbered_item(0)], [[numbered_item(1)], [numbered_item(2)]]]
    assert proxy.operations() == ["BatchGetItem"]


async def test_a_list_that_leads_to_no_reads_delays_no_batch(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [0])
    store = open_store()
    came = asyncio.Event()
    reads = asyncio.gather(read_many(store, [0]), read_after_list(store, came, []))

    came.set()

    assert list(await reads) == [[numbered_item(0)], []]
    assert proxy.operations() == ["GetItem"]


async def test_consistent_reads_wait_for_no_list(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [0])
    store = open_store()

    with store.defer_dispatch():
        assert await read_many(store, [0], consistent=True) == [numbered_item(0)]


async def test_a_list_that_fails_lets_the_reads_go(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(4))
    store = open_store()
    came = asyncio.Event()

    async def failing() -> None:
        with store.defer_dispatch():
            await came.wait()
            raise Throttled("no")

    reads = asyncio.gather(
        read_many(store, [0, 1]), failing(), read_after_list(store, came, [2, 3]), return_exceptions=True
    )
    await turn_loop()
    came.set()

    first, failure, second = await reads
    assert (first, second) == ([numbered_item(0), numbered_item(1)], [numbered_item(2), numbered_item(3)])
    assert isinstance(failure, Throttled)
    assert proxy.operations() == ["BatchGetItem"]


async def test_more_than_a_hundred_keys_that_waited_are_sent_in_concurrent_calls(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(0, 230, 2))
    store = open_store()
    came, gathered = asyncio.Event(), asyncio.Event()

    async def together(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if len(proxy.seen) == 3:
            gathered.set()
        await gathered.wait()
        return await forward(proxy, seen)

    proxy.always = together
    reads = asyncio.gather(read_many(store, range(120)), read_after_list(store, came, range(110, 230)))
    await turn_loop()
    assert proxy.seen == []
    came.set()

    first, second = await reads
    assert first == [None if number % 2 else numbered_item(number) for number in range(120)]
    assert second == [None if number % 2 else numbered_item(number) for number in range(110, 230)]
    assert sorted(len(keys_asked(seen, database)) for seen in proxy.seen) == [30, 100, 100]


async def test_a_request_that_is_cancelled_while_reads_wait_leaves_nothing_held(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(3))
    store = open_store()
    request = asyncio.gather(read_many(store, [0, 1]), read_after_list(store, asyncio.Event(), [2]))
    await turn_loop()

    request.cancel()
    await asyncio.gather(request, return_exceptions=True)

    async with asyncio.timeout(50):
        assert await read_many(store, [0, 1, 2]) == [numbered_item(0), numbered_item(1), numbered_item(2)]
    assert proxy.operations() == ["BatchGetItem"]


async def test_reads_that_wait_end_with_the_deadline_of_the_list(
    proxy: Proxy, open_store: Callable[..., Store]
) -> None:
    store = open_store(0.3)
    proxy.always = hang
    pattern = AccessPattern("T-5", "", BLIP, ("Query",), Who.ANY, key="PK = :partition")

    async def hanging() -> Any:
        with store.defer_dispatch():
            return await store.query(pattern, {"partition": "P#1"})

    answers, page = await asyncio.gather(read_many(store, [0, 1]), hanging(), return_exceptions=True)

    assert not isinstance(answers, BaseException)
    assert [code_or_item(answer) for answer in (*answers, page)] == [Timeout.code] * 3
    assert proxy.operations() == ["Query"]
