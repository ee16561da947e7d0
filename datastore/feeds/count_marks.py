"""Marks of counted changes: which state of a like, comment or follow the counts contain.

The transaction that counts a change of an item puts a mark (`exactly_once`). Its key names the item and the position of
the change, and it states whether the item existed after the change. The latest mark of an item therefore states whether
the counts contain the item. It costs nothing: exactly-once counting needs a mark for each change anyway.

Marks expire after 20 days, and earlier releases left marks without a statement. An item without a mark is counted if
its `marked_until` has passed, or if it has none. Before such an item is deleted, a mark is put in its place. A later
item with the same key would not show that there was an earlier one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.change import Change, position_of
from datastore.change_streams.exactly_once import MARK_LIFETIME, Effect, Write
from datastore.dynamodb.codec import Item
from datastore.items.repository import Repository
from datastore.keyspace.feeds import pipeline as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.model.timestamps import from_iso, iso, to_seconds

HANDLER = "counters"
# A valid mark was put so recently that DynamoDB deletes neither it nor a later one. An item requires its mark for a
# shorter time, because the clocks of gateways and streams differ.
VALIDITY = MARK_LIFETIME - timedelta(days=1)
REQUIRED = VALIDITY - timedelta(days=1)
# If the stream of the table is replaced, such as by a restore, the numbers of its changes begin again. A mark that is
# later by this time is of the newer stream, whatever its position; a clock that was set back changes less.
NEWER_STREAM = timedelta(hours=1)
READ = 20  # these marks take one read unit


@dataclass(frozen=True, slots=True)
class CountMark:
    """The latest mark of an item."""

    position: str
    changed_at: datetime
    #: Whether the counts contain the item.
    is_counted: bool


def marked_until(written_at: datetime) -> datetime:
    """Return the time until which an item that is written now is counted only if it has a mark."""
    return written_at + REQUIRED


def needs_mark(until: datetime | None, now: datetime) -> bool:
    """Return whether an item with this `marked_until` is not counted yet if it has no mark."""
    return until is not None and until > now


def counted_change(change: Change, writes: Sequence[Write]) -> Effect:
    """Return the effect that counts a change of an item."""
    exists = change.new is not None and "deleted_at" not in change.new
    name = effects.name_of(HANDLER, FEED.name, key_of(FEED, change.keys))
    return Effect(name, tuple(writes), position_of(change.sequence), _outcome(exists, change.time))


class CountMarks(Repository):
    """The marks of likes, comments and follows."""

    async def latest(self, item: Key) -> CountMark | None:
        """FEED-N7: return the latest valid mark of an item, or None."""
        values = keys.change_effect.values_of(effects.name_of(HANDLER, FEED.name, item))
        page = await self._store.query(keys.LATEST_COUNTED, values, limit=READ)
        latest: CountMark | None = None
        for mark in map(_mark_of, page.items):
            if latest is None or mark.changed_at > latest.changed_at + NEWER_STREAM:
                latest = mark
        return latest if latest is not None and latest.changed_at > self._now - VALIDITY else None

    async def put(self, item: Key) -> None:
        """FEED-N7: mark an item that is counted without a mark, before it is deleted. Do nothing if it has a mark."""
        if await self.latest(item) is None:
            # The first position: marks of later changes are later ones. Invalid marks are far older.
            key = keys.change_effect.item(effects.name_of(HANDLER, FEED.name, item), position_of(""))
            gone = to_seconds(self._now + MARK_LIFETIME)
            await self._store.put(keys.MARK_COUNTED, {**key, **_outcome(True, self._now), "expiresAt": gone})


def _mark_of(item: Item) -> CountMark:
    _, position = keys.change_effect.parts(Key(item["PK"], item["SK"]))
    return CountMark(position, from_iso(item["changed_at"]), item["is_counted"])


def _outcome(is_counted: bool, changed_at: datetime) -> dict[str, bool | str]:
    return {"is_counted": is_counted, "changed_at": iso(changed_at)}
