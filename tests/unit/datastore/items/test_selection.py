"""The selection of the items of one kind in a list that contains several kinds, or a part of their attributes."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from datastore.dynamodb.codec import encode_item
from datastore.dynamodb.records import LazyItem
from datastore.items import attributes as stored
from datastore.items.keys import KeyParts, item_key
from datastore.items.selection import items_of_kind
from datastore.items.stored_item import StoredItem
from datastore.model.access_patterns import Table
from datastore.model.composite_keys import Key

ORDERS = Table("orders", "PK", "SK")


@item_key(ORDERS)
def order_key(user_id: str, order_id: str) -> KeyParts:
    return ("USER", user_id), ("ORDER", order_id)


class Order(StoredItem, key=order_key):
    """An order with details of any type."""

    user_id: str = stored.part()
    order_id: str = stored.part()
    details: Any = stored.document("details", default=None)


def raw(sort: str, **attributes: Any) -> Mapping[str, Any]:
    return encode_item({"PK": "USER#1", "SK": sort, **attributes})


@pytest.mark.parametrize(
    ("key", "is_order"),
    [
        (Key("USER#1", "ORDER#2"), True),
        (Key("USER#1", "ORDER#2%23b"), True),
        (Key("USER#1", "ORDER#2#ITEM#3"), False),
        (Key("USER#1", "ORDER"), False),
        (Key("USER#1", "NOTE#2"), False),
        (Key("SHOP#1", "ORDER#2"), False),
        (Key("USER#1#2", "ORDER#2"), False),
    ],
)
def test_a_key_has_a_form_if_all_its_parts_have(key: Key, is_order: bool) -> None:
    assert order_key.is_form_of(key) is is_order


async def test_items_of_other_kinds_are_left_out() -> None:
    items = [raw("ORDER#1"), raw("ORDER#1#ITEM#1"), raw("ORDER#2")]

    assert await items_of_kind(order_key)(items) == [items[0], items[2]]


async def test_partial_items_are_read_by_their_keys() -> None:
    table = {Key("USER#1", "ORDER#1"): raw("ORDER#1", details="all")}

    async def read(key: Key) -> LazyItem | None:
        return LazyItem(table[key]) if key in table else None

    selected = await items_of_kind(order_key, read)([raw("ORDER#1", index="a"), raw("ORDER#2", index="a")])

    assert selected == [raw("ORDER#1", details="all", index="a")]


def test_a_document_is_decoded_as_json_has_it() -> None:
    details = {
        "set": {"b", "a"},
        "bytes": b"xx",
        "list": [1, None, 1.5, True],
        "exact": Decimal("1.00000000000000000001"),
    }

    order = Order.decoder.raw(raw("ORDER#1", details=details))

    assert order.details == {
        "set": ["a", "b"],
        "bytes": "eHg=",
        "list": [1, None, 1.5, True],
        "exact": "1.00000000000000000001",
    }
    assert Order.decoder.raw(raw("ORDER#1")).details is None
