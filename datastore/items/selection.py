"""The selection of the items of one kind from the pages of a list, which may contain other kinds and partial items."""

import asyncio
from collections.abc import Awaitable, Callable

from datastore.dynamodb.codec import Raw
from datastore.dynamodb.records import LazyItem
from datastore.items.keys import ItemKey
from datastore.model.composite_keys import Key
from datastore.session.pagination import SelectItems


def items_of_kind(form: ItemKey[...], read: Callable[[Key], Awaitable[LazyItem | None]] | None = None) -> SelectItems:
    """Return the function that selects the items whose keys have this form.

    `read` reads an item by its key, for an index that contains a part of its attributes. Items that no longer exist are
    left out.
    """
    partition, sort = form.attributes

    async def select(items: list[Raw]) -> list[Raw]:
        keys = [Key(item[partition]["S"], item[sort]["S"] if sort else "") for item in items]
        own = [(item, key) for item, key in zip(items, keys, strict=True) if form.is_form_of(key)]
        if read is None:
            return [item for item, _ in own]
        found = await asyncio.gather(*[read(key) for _, key in own])
        # The cursor needs the keys of the index, which the item may have lost meanwhile.
        return [{**item, **whole.raw} for (item, _), whole in zip(own, found, strict=True) if whole is not None]

    return select
