"""What a request has written it is told of again without another read; what was refused is read anew."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from datastore.database import Database
from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.store import Store
from datastore.session.writes import Action
from tests.support.served import call_name

READ = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)
READ_NOW = AccessPattern("T-2", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY, consistent=True)
PUT = AccessPattern("T-3", "", BLIP, ("PutItem",), Who.ANY, condition="attribute_not_exists(PK)")
UPDATE = AccessPattern("T-4", "", BLIP, ("UpdateItem",), Who.ANY, update="SET #count = :count")
DELETE = AccessPattern("T-5", "", BLIP, ("DeleteItem",), Who.ANY)
DELETE_IF = AccessPattern("T-6", "", BLIP, ("DeleteItem",), Who.ANY, condition="#count = :count")
KEY = Key("P", "S")
# As it is given, and as a read has it.
GIVEN: Item = {"PK": "P", "SK": "S", "count": 1.0, "names": ("a", "b")}
KEPT: Item = {"PK": "P", "SK": "S", "count": 1, "names": ["a", "b"]}


@pytest.fixture
def open_store(database: Database) -> Callable[[], Store]:
    return lambda: Store(database.client, prefix=database.prefix, deadline=Deadline(10), token=lambda: str(uuid4()))


@contextmanager
def point_read_names(database: Database) -> Iterator[list[str]]:
    """The point reads that are made meanwhile."""
    made: list[str] = []
    stop = database.client.add_call_listener(
        lambda call: made.append(call_name(call)) if "Get" in call.operation else None
    )
    yield made
    stop()


async def both(store: Store) -> list[Any]:
    """What is read at the key, eventually consistently and consistently."""
    return [await store.get(READ, KEY), await store.get(READ_NOW, KEY)]


async def put_given(store: Store) -> Item | None:
    assert (await store.put(PUT, GIVEN)).ok
    return KEPT


async def update_item(store: Store) -> Item | None:
    assert (await store.update(UPDATE, KEY, count=7)).ok
    return KEPT | {"count": 7}


async def delete_item(store: Store) -> Item | None:
    assert (await store.delete(DELETE, KEY)).ok
    return None


async def put_together(store: Store) -> Item | None:
    await store.transact(BLIP, [Action("Put", item=GIVEN), Action("Delete", key=Key("P", "other"))])
    return KEPT


async def delete_together(store: Store) -> Item | None:
    await store.transact(BLIP, [Action("Delete", key=KEY)])
    return None


@pytest.mark.parametrize("write", [put_given, update_item, delete_item, put_together, delete_together])
@pytest.mark.parametrize("read_before", [False, True])
async def test_what_was_written_is_not_read_again(
    database: Database,
    open_store: Callable[[], Store],
    write: Callable[[Store], Any],
    read_before: bool,
) -> None:
    there = None if write in (put_given, put_together) else await put_given(open_store())
    store = open_store()
    if read_before:
        assert await both(store) == [there, there]

    written = await write(store)

    with point_read_names(database) as made:
        assert await both(store) == [written, written]
    assert made == []
    assert await both(open_store()) == [written, written]


async def test_a_write_that_was_refused_is_followed_by_a_read(
    database: Database, open_store: Callable[[], Store]
) -> None:
    store = open_store()
    assert await both(store) == [None, None]
    await put_given(open_store())

    refused = [await store.put(PUT, GIVEN | {"count": 2})]
    with point_read_names(database) as made:
        assert await both(store) == [KEPT, KEPT]
    refused.append(await store.delete(DELETE_IF, KEY, count=2))
    with point_read_names(database) as again:
        assert await both(store) == [KEPT, KEPT]
    with pytest.raises(TransactionCancelled):
        await store.transact(BLIP, [Action("Put", item=GIVEN | {"count": 2}, condition=PUT.condition)])
    with point_read_names(database) as at_last:
        assert await both(store) == [KEPT, KEPT]

    assert [(written.ok, written.item) for written in refused] == [(False, KEPT)] * 2
    assert made == again == at_last == ["GetItem blip"] * 2


async def test_what_a_transaction_updated_or_checked_is_read_again(
    database: Database, open_store: Callable[[], Store]
) -> None:
    await put_given(open_store())
    store = open_store()
    assert await both(store) == [KEPT, KEPT]

    await store.transact(BLIP, [Action("Update", key=KEY, update=UPDATE.update, values={"count": 7})])

    with point_read_names(database) as made:
        assert await both(store) == [KEPT | {"count": 7}] * 2
    assert made == ["GetItem blip"] * 2
