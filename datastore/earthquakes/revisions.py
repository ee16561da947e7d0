"""Reports that USGS published after an event was stored (QUAKE-1, QUAKE-N1, QUAKE-N2).

The event stays as it was first stored. Each later report that differs is a revision item in the same partition. A copy
of the newest revision has its own key, so that one BatchGetItem reads the newest reports of a page of events.
"""

import asyncio
from collections.abc import Callable
from itertools import repeat

from datastore.dynamodb.codec import Item
from datastore.earthquakes.event_ids import ATTEMPTS
from datastore.keyspace import earthquakes as keys
from datastore.primitives.retries import retry
from datastore.session.store import Store
from datastore.session.writes import Action, is_contended

# The maximum of revisions in a list.
MAX_REVISIONS = 20
DELETED = "deleted"
# A report that differs in none of these adds no revision: USGS also updates an event when a person reports to have
# felt it.
COMPARED = ("eventTsMs", "mag", "place", "lat", "lon", "depth", "type", "status", "alert", "tsunami", "sig", "url")
# The attributes for the index, which revisions do not have.
EVENT_ONLY = frozenset({"dayBucket", "gsi1pk", "gsi1sk"})


async def revise(store: Store, known: Item, report: Item) -> bool:
    """Add a report of a stored event as a revision if it is newer and differs. Return whether it was added.

    `known` is the stored item, an event or an alias, and `report` the report as an event's item.

    Raises: `TransactionCancelled` if other processes added revisions of the event at each attempt.
    """
    updated = _updated(report)
    if updated <= _updated(known):  # an alias has no time: it counts as older
        return False

    def revised(newest: Item) -> Item | None:
        same = all(newest.get(name) == report.get(name) for name in COMPARED)
        return None if same or updated <= _updated(newest) else report

    return await _add(store, str(known.get("aliasOf") or known["eventId"]), revised)


async def withdraw(store: Store, event_id: str, deleted_at_ms: int, ingested_at_ms: int) -> bool:
    """Add a revision that marks the event as deleted by USGS. Return whether it was added.

    It is not added if the event is not stored, is already deleted, or has a newer report.
    """
    known = await store.get(keys.STORED_IDS, keys.event(event_id))
    if known is None:
        return False

    def deleted(newest: Item) -> Item | None:
        if newest.get("status") == DELETED or deleted_at_ms < _updated(newest):
            return None
        moment = max(deleted_at_ms, _updated(newest) + 1)
        return newest | {"status": DELETED, "updated": moment, "ingestedAt": ingested_at_ms}

    return await _add(store, str(known.get("aliasOf") or event_id), deleted)


async def _add(store: Store, event_id: str, revision_of: Callable[[Item], Item | None]) -> bool:
    """Add the revision that `revision_of` returns for the newest report, unless it returns None."""

    async def add() -> bool:
        reads = [store.get(keys.NEWEST, key) for key in (keys.latest(event_id), keys.event(event_id))]
        latest, event = await asyncio.gather(*reads)
        newest = latest or event
        revision = None if newest is None else revision_of(newest)
        if revision is None:
            return False
        await store.transact(keys.REVISE, _adding(event_id, revision))
        return True

    return await retry(add, repeat(0.0, ATTEMPTS - 1), is_contended)


def _adding(event_id: str, revision: Item) -> list[Action]:
    updated = _updated(revision)
    kept = {name: value for name, value in revision.items() if name not in EVENT_ONLY}
    added = kept | keys.revision.item(event_id, f"{updated:015d}") | {"entity": "REVISION"}
    latest = kept | keys.latest.item(event_id) | {"entity": "LATEST"}
    is_newer = "attribute_not_exists(pk) OR updated < :updated"
    return [
        Action("Put", item=added, condition="attribute_not_exists(pk)"),
        Action("Put", item=latest, condition=is_newer, values={"updated": updated}),
    ]


def _updated(item: Item) -> int:
    """Return when USGS last changed a report, in epoch milliseconds; 0 if unknown, as for other programs' items."""
    updated = item.get("updated")
    return updated if type(updated) is int else 0
