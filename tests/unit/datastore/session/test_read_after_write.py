"""A request reads its own writes without a call; after a refused write it reads the item again."""

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
from tests.support.served import NOON, call_name

READ = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)
READ_NOW = AccessPattern("T-2", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY, consistent=True)
PUT = AccessPattern("T-3", "", BLIP, ("PutItem",), Who.ANY, condition="attribute_not_exists(PK)")
UPDATE = AccessPattern("T-4", "", BLIP, ("UpdateItem",), Who.ANY, update="SET #count = :count")
DELETE = AccessPattern("T-5", "", BLIP, ("DeleteItem",), Who.ANY)
DELETE_IF = AccessPattern("T-6", "", BLIP, ("DeleteItem",), Who.ANY, condition="#count = :count")
KEY = Key("P", "S")
# The item as it is written, and as a read returns it.
GIVEN: Item = {"PK": "P", "SK": "S", "count": 1.0, "names": ("a", "b")}
KEPT: Item = {"PK": "P", "SK": "S", "count": 1, "names": ["a", "b"]}


@pytest.fixture
def open_store(database: Database) -> Callable[[], Store]:
    return lambda: Store(
        database.client, prefix=database.prefix, deadline=Deadline(10), token=lambda: str(uuid4()), now=lambda: NOON
    )


@contextmanager
def point_read_names(database: Database) -> Iterator[list[str]]:
    """Collect the names of the point reads made in the context."""
    calls: list[str] = []
    stop = database.client.add_call_listener(
        lambda call: calls.append(call_name(call)) if "Get" in call.operation else None
    )
    yield calls
    stop()


async def both(store: Store) -> list[Any]:
    """Read the key eventually consistently and consistently."""
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
async def test_a_written_item_is_not_read_again(
    database: Database,
    open_store: Callable[[], Store],
    write: Callable[[Store], Any],
    read_before: bool,
) -> None:
    before = None if write in (put_given, put_together) else await put_given(open_store())
    store = open_store()
    if read_before:
        assert await both(store) == [before, before]

    written = await write(store)

    with point_read_names(database) as calls:
        assert await both(store) == [written, written]
    assert calls == []
    assert await both(open_store()) == [written, written]


async def test_a_refused_write_is_followed_by_a_read(database: Database, open_store: Callable[[], Store]) -> None:
    store = open_store()
    assert await both(store) == [None, None]
    await put_given(open_store())

    refused = [await store.put(PUT, GIVEN | {"count": 2})]
    with point_read_names(database) as calls:
        assert await both(store) == [KEPT, KEPT]
    refused.append(await store.delete(DELETE_IF, KEY, count=2))
    with point_read_names(database) as again:
        assert await both(store) == [KEPT, KEPT]
    with pytest.raises(TransactionCancelled):
        await store.transact(BLIP, [Action("Put", item=GIVEN | {"count": 2}, condition=PUT.condition)])
    with point_read_names(database) as at_last:
        assert await both(store) == [KEPT, KEPT]

    assert [(written.ok, written.item) for written in refused] == [(False, KEPT)] * 2
    assert calls == again == at_last == ["GetItem blip"] * 2


async def test_items_that_a_transaction_updated_or_checked_are_read_again(
    database: Database, open_store: Callable[[], Store]
) -> None:
    await put_given(open_store())
    store = open_store()
    assert await both(store) == [KEPT, KEPT]

    await store.transact(BLIP, [Action("Update", key=KEY, update=UPDATE.update, values={"count": 7})])

    with point_read_names(database) as calls:
        assert await both(store) == [KEPT | {"count": 7}] * 2
    assert calls == ["GetItem blip"] * 2
