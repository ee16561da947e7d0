"""The ids of an event: it is stored once, although its reports may use different ids (QUAKE-1).

USGS names an event by the id of the network whose report it prefers, and may later prefer another network. A report
lists all ids of its event. Each further id is stored as an alias item, which has the key of an event and the id under
which the event is stored.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.keyspace import earthquakes as keys
from datastore.session.store import Store
from datastore.session.writes import Action

ATTEMPTS = 5
CONTENTION = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


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
        return await _store_with_aliases(store, bounds, item, other_ids)
    await bounds.raise_for(store, item)
    written = await store.put(keys.INSERT_EVENT, item)
    return None if written.ok or (written.is_retry and written.item == item) else written.item


async def _store_with_aliases(store: Store, bounds: KnownBounds, item: Item, other_ids: Sequence[str]) -> Item | None:
    for attempts_left in reversed(range(ATTEMPTS)):
        ids = [item["eventId"], *other_ids]
        stored = await _stored(store, ids)
        free = [event_id for event_id in ids if event_id not in stored]
        if (known := _same_event(item["eventId"], stored)) is not None:
            for event_id in free:
                await store.put(keys.ADD_ALIAS, _alias(event_id, str(known.get("aliasOf") or known["eventId"])))
            return known
        await bounds.raise_for(store, item)
        items = [item, *(_alias(event_id, item["eventId"]) for event_id in free if event_id != item["eventId"])]
        try:
            actions = [Action("Put", item=new, condition=keys.INSERT_EVENT.condition) for new in items]
            await store.transact(keys.INSERT_WITH_ALIASES, actions)
            return None
        except TransactionCancelled as cancelled:
            if not attempts_left or not CONTENTION.intersection(cancelled.reasons):
                raise
    raise AssertionError("unreachable")


async def _stored(store: Store, ids: Sequence[str]) -> dict[str, Item]:
    """Return the items that are stored under these ids: events and aliases."""
    items: dict[str, Item] = {}
    for event_id, found in zip(ids, await store.find_all(keys.STORED_IDS, [*map(keys.event, ids)]), strict=True):
        if isinstance(found, Exception):
            raise found
        if found is not None:
            items[event_id] = found.item
    return items


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
    key = keys.event(event_id)
    return {"pk": key.partition, "sk": key.sort, "entity": "ALIAS", "eventId": event_id, "aliasOf": stored_id}
