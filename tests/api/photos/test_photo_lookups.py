"""Items of the photo library found by their partition alone, and responses when some items cannot be read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.keyspace.photos import persons as keys
from datastore.keyspace.photos import photos as photo_keys
from datastore.keyspace.photos.table import SPARKS
from datastore.photos.lookups import CONCURRENCY, Lookups
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.dataloader_faults import withhold
from tests.support.fault_proxy import Proxy, Seen, client_of, forward, refuse
from tests.support.photo_items import face, person, photo, put_library_items, tagged
from tests.support.served import NOON, Served


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    """Options with which the gateway's calls go through the proxy."""
    return replace(store_options, store=proxy.url)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.session.point_reads.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=3))


@pytest.fixture
async def lookups(served: Served, proxy: Proxy, store_options: StoreOptions) -> AsyncIterator[Lookups]:
    """Yield the lookups of one request, with few retries."""
    async with client_of(proxy) as client:
        yield Lookups(
            Store(client, prefix=store_options.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON)
        )


def queries(proxy: Proxy, of: str = "PERSON#") -> list[str]:
    """Return the queried partitions."""
    partitions = [seen.body["ExpressionAttributeValues"][":partition"]["S"] for seen in proxy.seen if is_query(seen)]
    return sorted(partition for partition in partitions if partition.startswith(of))


def is_query(seen: Seen) -> bool:
    return seen.operation == "Query" and seen.body["TableName"].endswith(SPARKS.name)


def only_queries(fault: Callable[[Proxy, Seen], Any], partition: str = "") -> Callable[[Proxy, Seen], Any]:
    """Return the fault for Queries of this partition, or of any."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        values = seen.body.get("ExpressionAttributeValues", {})
        met = is_query(seen) and partition in ("", values.get(":partition", {}).get("S"))
        return await (fault if met else forward)(proxy, seen)

    return answer


async def find_names(lookups: Lookups, *ids: str) -> list[Any]:
    """Return for each id the name of the person, None, or the exception."""
    finding = [lookups.find(keys.PERSON, keys.person.partition_of(id), keys.person.prefix) for id in ids]
    found = await asyncio.gather(*finding, return_exceptions=True)
    return [item["name"] if isinstance(item, dict) else item for item in found]


async def test_each_partition_is_queried_once_in_a_request(served: Served, proxy: Proxy, lookups: Lookups) -> None:
    await put_library_items(served, person("p1"), person("p2"))

    assert await find_names(lookups, "p1", "p2", "p1", "none") == ["P1", "P2", "P1", None]
    assert await find_names(lookups, "none", "p2") == [None, "P2"]
    assert queries(proxy) == ["PERSON#none", "PERSON#p1", "PERSON#p2"]


async def test_the_number_of_concurrent_queries_is_limited(served: Served, proxy: Proxy, lookups: Lookups) -> None:
    ids = [f"p{number:02}" for number in range(2 * CONCURRENCY + 3)]
    await put_library_items(served, *map(person, ids))
    inside, most = 0, 0
    full = asyncio.Event()

    async def together(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == CONCURRENCY:
            full.set()
        # Delay the first responses until the maximal number of queries is in flight.
        await full.wait()
        answer = await forward(proxy, seen)
        inside -= 1
        return answer

    proxy.always = only_queries(together)

    # Also if two callers start them one after the other.
    found = await asyncio.gather(find_names(lookups, *ids[:10]), _later(find_names, lookups, *ids[10:]))

    assert found[0] + found[1] == [id.title() for id in ids]
    assert most == CONCURRENCY


async def _later(find: Callable[..., Any], *arguments: Any) -> list[Any]:
    await asyncio.sleep(0)
    return list(await find(*arguments))


async def test_a_failed_lookup_does_not_affect_others_and_is_repeated_on_the_next_request(
    served: Served, proxy: Proxy, lookups: Lookups
) -> None:
    await put_library_items(served, person("p1"), person("p2"))
    busy = refuse(400, "ProvisionedThroughputExceededException")
    proxy.always = only_queries(busy, "PERSON#p1")

    throttled, fine = await find_names(lookups, "p1", "p2")
    proxy.always = None

    assert isinstance(throttled, Throttled)
    assert fine == "P2"
    assert await find_names(lookups, "p1", "p2") == ["P1", "P2"]
    assert queries(proxy).count("PERSON#p2") == 1


async def test_a_caller_that_leaves_does_not_cancel_the_query_of_the_others(
    served: Served, proxy: Proxy, lookups: Lookups
) -> None:
    await put_library_items(served, photo("a"))
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        began.set()
        await go_on.wait()
        return await forward(proxy, seen)

    proxy.always = only_queries(wait)
    place = photo_keys.PHOTO, photo_keys.photo.partition_of("a"), photo_keys.photo_taken.prefix
    readers = [asyncio.create_task(lookups.find(*place)) for _ in range(2)]
    await began.wait()
    readers[0].cancel()
    go_on.set()

    gone, stayed = await asyncio.gather(*readers, return_exceptions=True)

    assert isinstance(gone, asyncio.CancelledError)
    assert isinstance(stayed, dict)
    assert stayed["imageId"] == "a"
    assert queries(proxy, "IMAGE#") == ["IMAGE#a"]


# Through the API.

PHOTO = '{ photo(id: "a") { imageId persons { name } faces { faceId person { name } } } }'


async def put_tagged_photo(served: Served) -> None:
    people = [person(id) for id in ("p1", "p2", "p3")]
    faces = [face(f"f{number}", "a", f"p{number}") for number in (1, 2, 3)]
    await put_library_items(served, *people, *faces, tagged(photo("a"), faces, *people))


async def test_unprocessed_persons_and_faces_are_errors_in_their_place(served: Served, proxy: Proxy) -> None:
    await put_tagged_photo(served)
    busy = withhold(SPARKS, lambda sort: sort == "PERSON#P2")

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (busy if seen.operation == "BatchGetItem" else forward)(proxy, seen)

    proxy.always = answer

    shown = await served.ask(PHOTO)

    # The person of the face is read again: as a single key, which is no BatchGetItem.
    faces = [{"faceId": f"f{number}", "person": {"name": f"P{number}"}} for number in (1, 2, 3)]
    persons = [{"name": "P1"}, None, {"name": "P3"}]
    assert shown.data["photo"] == {"imageId": "a", "persons": persons, "faces": faces}
    assert [(error["path"], error["extensions"]["code"]) for error in shown.errors or ()] == [
        (["photo", "persons", 1], "THROTTLED")
    ]


async def test_a_failed_batch_leaves_the_photo(served: Served, proxy: Proxy) -> None:
    await put_tagged_photo(served)
    broken = refuse(400, "AccessDeniedException")

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (broken if seen.operation == "BatchGetItem" else forward)(proxy, seen)

    proxy.always = answer

    shown = await served.ask(PHOTO)

    assert shown.data["photo"] == {"imageId": "a", "persons": [None] * 3, "faces": [None] * 3}
    assert {error["extensions"]["code"] for error in shown.errors or ()} == {"INTERNAL"}
    assert len(shown.errors or ()) == 6
