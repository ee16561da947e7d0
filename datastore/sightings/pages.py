"""Pages of an area's sightings in the order of time, which the table's order of keys is not.

Other programs store times as whole seconds (`12:00:00Z`). These sort as text after the times of this gateway in the
same second (`12:00:00.000Z` to `12:00:00.999Z`), but precede them in time: `Z` is greater than `.`. So each second of
the table consists of *fraction items* and *whole-second items*. Of these two, the items that a Query returns first come
last on the page; they are called *delayed*. Read from the oldest:

    in the table   12:00:00.100Z   12:00:00.900Z   12:00:00Z
    on the page    12:00:00Z   12:00:00.100Z   12:00:00.900Z      (the fraction items are delayed)

A second is complete on the page when all its items were read, or when enough items were read without its delayed ones.

After a cursor on an item that is not delayed, the page rereads the cursor's second from the start, because delayed
items follow on the page. After a cursor on a delayed item, it reads on from that item. Items of earlier pages are left
out. So a page rereads at most the second of its cursor. It takes one Query, unless the first and the last second of the
page hold more than `SPARE` sightings outside the page.
"""

from collections.abc import Mapping
from operator import gt, lt
from typing import Any

from datastore.dynamodb.codec import Item, Raw
from datastore.keyspace import sightings as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamp_forms import LAST_CHARACTER
from datastore.session.pagination import MAX_LIMIT, Page, Span, page_of
from datastore.session.store import Store

# The number of further items that a page reads: the rest of its last second, and the items of its first second that
# earlier pages showed.
SPARE = 6


async def read_by_moment(store: Store, pattern: AccessPattern, values: Mapping[str, Any], span: Span) -> Page:
    """Return the page `span` of one area. `values` has the area and the bounds of the
    sort key, `oldest` and `end`.
    """
    found = _SightingsRead(span)
    bounds, position = found.first_query(values)
    limit = span.size + 1 + SPARE
    while True:
        page = await store.query(pattern, bounds, start=position, limit=limit, backward=span.backward)
        found.add(page.raw)
        position = page.next_start
        if position is None or found.is_complete(position):
            return page_of(found.ordered(), span, partitions=1)
        limit = min(4 * limit, MAX_LIMIT)


class _SightingsRead:
    """The items read for a page so far, the first Query, and whether the items suffice."""

    def __init__(self, span: Span) -> None:
        self._size = span.size
        self._backward = span.backward
        self._start = span.start
        self._items: list[Raw] = []

    def first_query(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Item | None]:
        """Return the values of the first Query, and its start key."""
        if self._start is None or self._is_delayed(self._start["SK"]):
            return values, self._start
        second = keys.second_of(self._start["SK"])
        if self._backward:
            return {**values, "oldest": max(values["oldest"], second)}, None
        return {**values, "end": second + LAST_CHARACTER}, None

    def _is_delayed(self, sort_key: str) -> bool:
        """Return whether a Query returns the item first in its second although it comes last on the page."""
        return keys.is_whole_second(sort_key) is not self._backward

    def add(self, items: list[Raw]) -> None:
        """Add the items of a Query, except those up to the cursor."""
        if self._start is not None:
            is_beyond, start = (gt if self._backward else lt), keys.chronological(self._start["SK"])
            items = [item for item in items if is_beyond(keys.chronological(_sort_key(item)), start)]
        self._items += items

    def is_complete(self, last: Item) -> bool:
        """Return whether no unread item belongs on the page. `last` is the key that was read last."""
        second = keys.second_of(last["SK"])
        delayed = 0
        for item in reversed(self._items):
            sort_key = _sort_key(item)
            if keys.second_of(sort_key) != second:
                break
            delayed += self._is_delayed(sort_key)
        # Enough items, even without the delayed ones of the unfinished second.
        return len(self._items) > self._size and len(self._items) - delayed >= self._size

    def ordered(self) -> list[Raw]:
        """Return the items in the order of the page."""
        if any(self._is_delayed(_sort_key(item)) for item in self._items):
            self._items.sort(key=lambda item: keys.chronological(_sort_key(item)), reverse=not self._backward)
        return self._items


def _sort_key(item: Raw) -> str:
    return str(item["SK"]["S"])
