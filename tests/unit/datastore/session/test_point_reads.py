"""Point reads of one request: they share few calls, and each has its own response."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import LazyItem
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout, Unavailable
from datastore.items.attributes import number as number_attribute
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.dataloader_faults import withhold
from tests.support.fault_proxy import Fault, Proxy, Seen, forward, hang, plain_error, refuse, reset
from tests.support.point_reads import BLIPS, blip, code_or_item, keys_asked, numbered_item, put_numbers, read_many
from tests.support.served import NOON
from tests.support.until import until

EVENTS = AccessPattern("T-2", "", EARTHQUAKES, ("GetItem", "BatchGetItem"), Who.ANY)

WRITE = AccessPattern("T-3", "", BLIP, ("PutItem",), Who.ANY)


@pytest.fixture
def open_store(client: Client, database: Database) -> Callable[..., Store]:
    """Return a function that opens a store whose requests go through the proxy."""

    def store(seconds: float = 10) -> Store:
        return Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "", now=lambda: NOON)

    return store


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=6))


# --- The requests -----------------------------------------------------------------------------------------------------


async def test_more_than_a_hundred_keys_are_sent_in_concurrent_calls(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(0, 250, 2))
    gathered = asyncio.Event()

    async def together(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if len(proxy.seen) == 3:
            gathered.set()
        await gathered.wait()
        return await forward(proxy, seen)

    proxy.always = together

    answers = await read_many(open_store(), range(250))

    assert answers == [None if number % 2 else numbered_item(number) for number in range(250)]
    assert sorted((seen.operation, len(keys_asked(seen, database))) for seen in proxy.seen) == [
        ("BatchGetItem", 50),
        ("BatchGetItem", 100),
        ("BatchGetItem", 100),
    ]


async def test_keys_of_several_tables_share_a_call(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1, 2])
    await put_numbers(database, [1], EARTHQUAKES)
    store = open_store()

    answers = await asyncio.gather(
        store.get(BLIPS, blip(1)), store.get(EVENTS, blip(1)), store.get(BLIPS, blip(2)), store.get(EVENTS, blip(2))
    )

    assert list(answers) == [numbered_item(1), numbered_item(1, EARTHQUAKES), numbered_item(2), None]
    assert proxy.operations() == ["BatchGetItem"]
    assert keys_asked(proxy.seen[0], database) == keys_asked(proxy.seen[0], database, EARTHQUAKES) == ["S#1", "S#2"]
    assert store.meter.calls[0].tables == (f"{database.prefix}blip", f"{database.prefix}earthquake-events")
    assert store.meter.units == 2.0


async def test_a_key_is_requested_once_however_often_it_is_read(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1, 2])
    store = open_store()

    first = await read_many(store, [1, 2, 1, 1, 2])
    second = await read_many(store, [2, 1])

    assert first == [numbered_item(1), numbered_item(2), numbered_item(1), numbered_item(1), numbered_item(2)]
    assert second == [numbered_item(2), numbered_item(1)]
    assert [keys_asked(seen, database) for seen in proxy.seen] == [["S#1", "S#2"]]


async def test_a_single_key_is_a_get_item(proxy: Proxy, database: Database, open_store: Callable[..., Store]) -> None:
    await put_numbers(database, [1])
    store = open_store()

    assert await read_many(store, [1, 1]) == [numbered_item(1), numbered_item(1)]
    assert await read_many(store, [2]) == [None]
    assert await read_many(store, [1, 2]) == [numbered_item(1), None]
    assert proxy.operations() == ["GetItem", "GetItem"]


async def test_consistent_reads_are_sent_separately(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1, 2])
    store = open_store()

    answers = await asyncio.gather(
        read_many(store, [1, 2]), read_many(store, [1, 2], consistent=True), read_many(store, [3], consistent=True)
    )

    assert list(answers) == [[numbered_item(1), numbered_item(2)], [numbered_item(1), numbered_item(2)], [None]]
    name = f"{database.prefix}blip"
    asked = [(keys_asked(seen, database), seen.body["RequestItems"][name].get("ConsistentRead")) for seen in proxy.seen]
    assert sorted(asked, key=str) == [(["S#1", "S#2", "S#3"], True), (["S#1", "S#2"], None)]


async def test_a_single_consistent_read_says_so(proxy: Proxy, open_store: Callable[..., Store]) -> None:
    await open_store().get(replace(BLIPS, consistent=True), blip(1))

    assert [(seen.operation, seen.body["ConsistentRead"]) for seen in proxy.seen] == [("GetItem", True)]


async def test_the_items_of_a_request_are_its_own_copies(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1])
    one, other = open_store(), open_store()

    assert [await read_many(one, [1]), await read_many(other, [1])] == [[numbered_item(1)], [numbered_item(1)]]
    assert proxy.operations() == ["GetItem", "GetItem"]
    assert [len(store.meter.calls) for store in (one, other)] == [1, 1]

    await one.put(WRITE, numbered_item(1) | {"number": 100})

    assert await read_many(one, [1]) == [numbered_item(1) | {"number": 100}]
    assert await read_many(other, [1]) == [numbered_item(1)]
    assert await read_many(open_store(), [1]) == [numbered_item(1) | {"number": 100}]


# --- Unprocessed keys -------------------------------------------------------------------------------------------------


async def test_unprocessed_keys_are_requested_until_they_are_returned(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(10))
    proxy.faults.extend([_late("6789"), _late("789"), _late("89")])
    store = open_store()

    answers = await read_many(store, range(10), consistent=True)

    assert answers == [numbered_item(number) for number in range(10)]
    asked = [[sort[-1] for sort in keys_asked(seen, database)] for seen in proxy.seen]
    assert asked == [list("0123456789"), list("6789"), list("789"), list("89")]
    name = f"{database.prefix}blip"
    assert {seen.body["RequestItems"][name]["ConsistentRead"] for seen in proxy.seen} == {True}
    assert len(store.meter.calls) == 4


def _late(digits: str) -> Fault:
    return withhold(BLIP, lambda sort: sort[-1] in digits)


async def test_keys_that_stay_unprocessed_are_throttled_and_the_others_are_served(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(6))
    proxy.always = _late("24")
    store = open_store()

    answers = await read_many(store, range(6))

    assert [code_or_item(answer) for answer in answers] == [
        numbered_item(0),
        numbered_item(1),
        "THROTTLED",
        numbered_item(3),
        "THROTTLED",
        numbered_item(5),
    ]
    assert len(proxy.seen) == 6

    proxy.always = None

    assert await read_many(store, range(6)) == [numbered_item(number) for number in range(6)]
    assert keys_asked(proxy.seen[-1], database) == ["S#2", "S#4"]


async def test_waiting_for_unprocessed_keys_ends_with_the_deadline(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, client: Client, database: Database
) -> None:
    now, pause = 0.0, asyncio.sleep

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await pause(0)

    # Without chance: the last wait would begin 80 s in.
    monkeypatch.setattr("datastore.session.point_reads.random.random", lambda: 1.0)
    monkeypatch.setattr("datastore.session.point_reads.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=20, maximum=20, attempts=1000))
    await put_numbers(database, range(3))
    proxy.always = _late("2")
    store = Store(
        client, prefix=database.prefix, deadline=Deadline(98, now, lambda: now), token=lambda: "", now=lambda: NOON
    )

    answers = await read_many(store, range(3))

    assert [code_or_item(answer) for answer in answers] == [numbered_item(0), numbered_item(1), "THROTTLED"]
    assert now == 80
    assert len(proxy.seen) == 5


@pytest.mark.parametrize(("fault", "error"), [(reset, Unavailable), (refuse(400, "ThrottlingException"), Throttled)])
async def test_the_items_of_earlier_rounds_are_served_when_a_later_round_fails(
    proxy: Proxy,
    database: Database,
    open_store: Callable[..., Store],
    fault: Fault,
    error: type[DomainError],
) -> None:
    await put_numbers(database, range(4))
    proxy.faults.append(_late("23"))
    proxy.always = fault
    store = open_store()

    answers = await read_many(store, range(4))

    assert [code_or_item(answer) for answer in answers] == [numbered_item(0), numbered_item(1), error.code, error.code]


async def test_the_items_of_earlier_rounds_are_served_when_a_later_round_hangs(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, range(3))
    proxy.faults.append(_late("2"))
    proxy.always = hang

    answers = await read_many(open_store(0.8), range(3))

    assert [code_or_item(answer) for answer in answers] == [numbered_item(0), numbered_item(1), Timeout.code]


async def test_large_results_are_read_in_rounds(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)
    for number in range(48):
        await store.put(WRITE, numbered_item(number) | {"text": "x" * 390_000})

    answers = await read_many(open_store(20), range(48))

    assert [answer["number"] for answer in answers] == list(range(48))
    assert len(proxy.seen) > 1


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [[1], [1, 2]], ids=["one", "many"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [(plain_error(503), Unavailable), (refuse(400, "ThrottlingException"), Throttled)],
    ids=["unavailable", "throttled"],
)
async def test_a_failure_is_not_remembered(
    proxy: Proxy,
    database: Database,
    open_store: Callable[..., Store],
    numbers: list[int],
    fault: Fault,
    error: type[DomainError],
) -> None:
    await put_numbers(database, numbers)
    proxy.always = fault
    store = open_store()

    assert [code_or_item(answer) for answer in await read_many(store, numbers)] == [error.code] * len(numbers)

    proxy.always = None

    assert await read_many(store, numbers) == [numbered_item(number) for number in numbers]


async def test_a_refused_batch_is_not_remembered(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1, 2])
    proxy.faults.append(refuse(400, "AccessDeniedException"))
    store = open_store()

    refused = await read_many(store, [1, 2])

    assert [type(answer) for answer in refused] == [RequestRefused, RequestRefused]
    assert await read_many(store, [1, 2]) == [numbered_item(1), numbered_item(2)]


async def test_a_bad_key_fails_alone(proxy: Proxy, database: Database, open_store: Callable[..., Store]) -> None:
    await put_numbers(database, [1, 2])
    store = open_store()
    bad = [Key("", "x"), Key("x", ""), Key("p" * 2049, "x"), Key("x", "s" * 1025), Key("\ud800", "x")]

    answers = await asyncio.gather(*[store.get(BLIPS, key) for key in (blip(1), *bad, blip(2))], return_exceptions=True)

    assert answers[0] == numbered_item(1)
    assert [type(answer) for answer in answers[1:-1]] == [BadUserInput] * 5
    assert answers[-1] == numbered_item(2)
    assert [keys_asked(seen, database) for seen in proxy.seen] == [["S#1", "S#2"]]


async def test_a_cancelled_reader_does_not_cancel_the_read_of_the_others(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1, 2])
    store = open_store()
    gone = asyncio.Event()

    async def wait_until_gone(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await gone.wait()
        return await forward(proxy, seen)

    proxy.always = wait_until_gone
    readers = [asyncio.create_task(store.get(BLIPS, blip(number))) for number in (1, 1, 2)]
    await until(lambda: len(proxy.seen) == 1)
    readers[0].cancel()
    gone.set()

    answers = await asyncio.gather(*readers, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [numbered_item(1), numbered_item(2)]
    assert await read_many(store, [1, 2]) == [numbered_item(1), numbered_item(2)]
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("fault", [refuse(400, "ThrottlingException"), refuse(400, "AccessDeniedException")])
async def test_each_of_many_concurrent_reads_has_its_own_response(
    proxy: Proxy, database: Database, open_store: Callable[..., Store], fault: Fault
) -> None:
    await put_numbers(database, [1, 3])
    store = open_store()
    keys = [blip(1), Key("", "x"), blip(2), blip(3), blip(1)]

    found = await store.find_all(BLIPS, keys)

    shown = [one.item if isinstance(one, LazyItem) else type(one) for one in found]
    assert shown == [numbered_item(1), BadUserInput, type(None), numbered_item(3), numbered_item(1)]
    assert [keys_asked(seen, database) for seen in proxy.seen] == [["S#1", "S#2", "S#3"]]

    proxy.always = fault
    failing = open_store()

    failed = await failing.find_all(BLIPS, keys)

    assert [isinstance(one, Exception) for one in failed] == [True] * 5
    proxy.always = None
    again = await failing.find_all(BLIPS, [blip(3)])
    assert [one.item for one in again if isinstance(one, LazyItem)] == [numbered_item(3)]


# --- Parts of items ---------------------------------------------------------------------------------------------------

PART = ("number", "missing")


def asked_of(seen: Seen, database: Database) -> list[tuple[list[str], list[str] | None]]:
    """Return the sort keys of a BatchGetItem, and the attributes unless it requests whole items."""
    entry = seen.body["RequestItems"][database.prefix + BLIP.name]
    shown = entry.get("ProjectionExpression")
    names = entry.get("ExpressionAttributeNames", {})
    return [(keys_asked(seen, database), shown and [names[name] for name in shown.split(", ")])]


async def fill_with_more(database: Database, numbers: Sequence[int]) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)
    await store.write_all(BLIP, puts=[numbered_item(number) | {"more": "x"} for number in numbers])


async def read_parts(store: Store, numbers: Sequence[int], part: tuple[str, ...] = PART) -> list[Any]:
    found = await store.find_all(BLIPS, [blip(number) for number in numbers], part)
    return [one.item if isinstance(one, LazyItem) else one for one in found]


async def test_attributes_that_are_not_needed_are_not_read(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await fill_with_more(database, [1, 2])
    store = open_store()
    proxy.faults.append(_late("2"))

    first = await read_parts(store, [1, 2, 3])
    again = await read_parts(store, [3, 2])

    assert (first, again) == ([numbered_item(1), numbered_item(2), None], [None, numbered_item(2)])
    shown = [BLIP.partition, BLIP.sort, *PART]
    assert [asked_of(seen, database) for seen in proxy.seen] == [[(["S#1", "S#2", "S#3"], shown)], [(["S#2"], shown)]]


async def test_items_read_in_part_are_read_whole_when_more_attributes_are_needed(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await fill_with_more(database, [1, 2, 4])
    store = open_store()
    whole = [numbered_item(number) | {"more": "x"} for number in (1, 2)]

    parts = await read_parts(store, [1, 2, 3, 4])
    more = await read_many(store, [1, 2, 3])
    again = await read_parts(store, [1, 2], ("more",))

    assert parts == [numbered_item(1), numbered_item(2), None, numbered_item(4)]
    assert more == [*whole, None]
    assert again == whole
    shown = [BLIP.partition, BLIP.sort, *PART]
    asked = [asked_of(seen, database) for seen in proxy.seen]
    assert asked == [[(["S#1", "S#2", "S#3", "S#4"], shown)], [(["S#1", "S#2"], None)]]


@pytest.mark.parametrize("other", [None, ("more",)], ids=["whole", "another part"])
async def test_items_of_which_readers_need_different_attributes_are_read_once_and_whole(
    proxy: Proxy, database: Database, open_store: Callable[..., Store], other: tuple[str, ...] | None
) -> None:
    await fill_with_more(database, [1, 2])
    store = open_store()
    whole = [numbered_item(number) | {"more": "x"} for number in (1, 2)]

    both = await asyncio.gather(
        read_parts(store, [1, 2]), read_parts(store, [2], other) if other else read_many(store, [2])
    )

    assert list(both) == [whole, whole[1:]]
    assert await read_many(store, [1, 2]) == whole
    assert [asked_of(seen, database) for seen in proxy.seen] == [[(["S#1", "S#2"], None)]]


async def test_a_written_item_is_whole_though_it_was_read_in_part(
    proxy: Proxy, database: Database, open_store: Callable[..., Store]
) -> None:
    await fill_with_more(database, [1, 2])
    store = open_store()
    await read_parts(store, [1, 2])

    await store.put(WRITE, numbered_item(1) | {"more": "y"})

    assert await read_many(store, [1]) == [numbered_item(1) | {"more": "y"}]
    assert proxy.operations() == ["BatchGetItem", "PutItem"]


async def test_a_record_is_built_once_however_many_read_it(
    database: Database, open_store: Callable[..., Store]
) -> None:
    await put_numbers(database, [1])
    built: list[Any] = []

    def build(number: int) -> list[int]:
        built.append(number)
        return [number]

    decoder = RecordDecoder(build, number=number_attribute("number"))
    store = open_store()

    found = await asyncio.gather(*[store.find(BLIPS, blip(1)) for _ in range(3)])
    records = [one.record(decoder) for one in found if one is not None]

    assert (built, records) == ([1], [[1]] * 3)
