"""The ids of an event: it is stored once, although its reports may use different ids (QUAKE-1).

USGS names an event by the id of the network whose report it prefers, and may later prefer another network. A report
lists all ids of its event. Each further id is stored as an alias item, which has the key of an event and the id under
which the event is stored.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.keyspace import earthquakes as keys
from datastore.primitives.retries import retry
from datastore.session.store import Store
from datastore.session.writes import Action, is_contended

ATTEMPTS = 5


def is_alias(item: Mapping[str, Any]) -> bool:
    """Return whether the item at an event's key is an alias of an event that is stored under another id."""
    return "aliasOf" in item


async def store_once(store: Store, bounds: KnownBounds, item: Item, other_ids: Sequence[str] = ()) -> Item | None:
    """Store the event unless it is stored under any of its ids.

    Return None if it is new, else the stored item: an alias if the event is stored under another id.
    An event with one id costs one conditional write. An event with more ids costs a read of its ids, and a transaction
    if it is new.

    Raises: `TransactionCancelled` if other processes wrote the same ids at each attempt.
    """
    if other_ids:
        attempt = partial(_store_with_aliases, store, bounds, item, other_ids)
        return await retry(attempt, repeat(0.0, ATTEMPTS - 1), is_contended)
    await bounds.raise_for(store, item)
    written = await store.put(keys.INSERT_EVENT, item)
    return None if written.ok or (written.is_retry and written.item == item) else written.item


async def _store_with_aliases(store: Store, bounds: KnownBounds, item: Item, other_ids: Sequence[str]) -> Item | None:
    ids = [item["eventId"], *other_ids]
    found = await asyncio.gather(*[store.get(keys.STORED_IDS, keys.event(event_id)) for event_id in ids])
    stored = {event_id: known for event_id, known in zip(ids, found, strict=True) if known is not None}
    free = [event_id for event_id in ids if event_id not in stored]
    if (known := _same_event(item["eventId"], stored)) is not None:
        for event_id in free:
            await store.put(keys.ADD_ALIAS, _alias(event_id, str(known.get("aliasOf") or known["eventId"])))
        return known
    await bounds.raise_for(store, item)
    items = [item, *(_alias(event_id, item["eventId"]) for event_id in free if event_id != item["eventId"])]
    actions = [Action("Put", item=new, condition=keys.INSERT_EVENT.condition) for new in items]
    await store.transact(keys.INSERT_WITH_ALIASES, actions)
    return None


def _same_event(event_id: str, stored: Mapping[str, Item]) -> Item | None:
    """Return the item of the event that a report describes: its own, that of a further id, or its own alias.

    An alias of a further id does not count. Two events may list the same id of a third report: two events of Puerto
    Rico list the same id of the tsunami warning center.
    """
    own = stored.get(event_id)
    if own is not None and not is_alias(own):
        return own
    return next((item for item in stored.values() if not is_alias(item)), own)


def _alias(event_id: str, stored_id: str) -> Item:
    return keys.event.item(event_id) | {"entity": "ALIAS", "eventId": event_id, "aliasOf": stored_id}
