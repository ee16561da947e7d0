"""The ids of an event: it is stored once, although its reports may use different ids (QUAKE-1).

USGS names an event by the id of the network whose report it prefers, and may prefer another network's later. A report
lists all ids of its event. The further ids are alias items: the key of an event, and the id of the event they are for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import KnownBounds
from datastore.keyspace import earthquakes as keys
from datastore.session.store import Store
from datastore.session.writes import Action

TRIES = 5
CONTENTION = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


def is_alias(item: Mapping[str, Any]) -> bool:
    """Return whether the item at an event's key is an alias: a further id of an event that is stored under another."""
    return "aliasOf" in item


async def store_once(store: Store, bounds: KnownBounds, item: Item, other_ids: Sequence[str] = ()) -> Item | None:
    """Store the event unless it is stored under any of its ids.

    Return None if it is new, else the item that is stored: an alias if the event is stored under another id.
    An event with one id costs one conditional write. One with more costs a read of its ids, and a transaction if it is
    new. Raises `TransactionCancelled` if other processes wrote the same ids each time it was tried.
    """
    if other_ids:
        return await _store_with_aliases(store, bounds, item, other_ids)
    await bounds.raise_for(store, item)
    written = await store.put(keys.INSERT_EVENT, item)
    return None if written.ok or (written.is_retry and written.item == item) else written.item


async def _store_with_aliases(store: Store, bounds: KnownBounds, item: Item, other_ids: Sequence[str]) -> Item | None:
    for tries_left in reversed(range(TRIES)):
        ids = [item["eventId"], *other_ids]
        there = await _stored(store, ids)
        free = [event_id for event_id in ids if event_id not in there]
        if (known := _same_event(item["eventId"], there)) is not None:
            for event_id in free:
                await store.put(keys.ADD_ALIAS, _alias(event_id, str(known.get("aliasOf") or known["eventId"])))
            return known
        await bounds.raise_for(store, item)
        items = [item, *(_alias(event_id, item["eventId"]) for event_id in free if event_id != item["eventId"])]
        try:
            actions = [Action("Put", item=each, condition=keys.INSERT_EVENT.condition) for each in items]
            await store.transact(keys.INSERT_WITH_ALIASES, actions)
            return None
        except TransactionCancelled as cancelled:
            if not tries_left or not CONTENTION.intersection(cancelled.reasons):
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


def _same_event(event_id: str, there: Mapping[str, Item]) -> Item | None:
    """Return the item of the event that a report describes: its own, that of a further id, or its own alias.

    An alias of a further id does not count. Two events may list the same id of a third report, as two of Puerto Rico
    list one of the tsunami warning center.
    """
    own = there.get(event_id)
    if own is not None and not is_alias(own):
        return own
    return next((item for item in there.values() if not is_alias(item)), own)


def _alias(event_id: str, stored_id: str) -> Item:
    key = keys.event(event_id)
    return {"pk": key.partition, "sk": key.sort, "entity": "ALIAS", "eventId": event_id, "aliasOf": stored_id}
