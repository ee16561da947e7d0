"""Pages of an area's sightings in the order of time, which the table's order of keys is not.

Other programs store times as whole seconds (`12:00:00Z`). These sort as text after the times of this gateway in the
same second (`12:00:00.000Z` to `12:00:00.999Z`), but precede them in time: `Z` is greater than `.`. So each second of
the table consists of two runs of items, each in the order of time, and the run that is read first in a second comes
last on the page. The items of a second are complete when the second was read to its end, or up to its second run.

After a cursor in the run that is read last, the page reads its second from its beginning, because the other run
follows on the page. After a cursor in the other run, it reads on from that item. Items of earlier pages are left out.
So a page rereads at most the second of its cursor. It takes one Query, unless the seconds at its ends have more than
`SPARE` sightings that it does not show.
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
    """Return a page of one area. `values` has the bounds of the sort key, `oldest` and `end`."""
    found = _SightingsRead(span)
    bounds, position = found.first_query(values)
    limit = span.size + 1 + SPARE
    while True:
        page = await store.query(pattern, bounds, start=position, limit=limit, backward=span.backward)
        found.add(page.raw)
        position = page.next_start
        if position is None or found.is_complete(position):
            return page_of(found.ordered(), span, 1)
        limit = min(4 * limit, MAX_LIMIT)


class _SightingsRead:
    """The items that were read for a page."""

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

    def _is_delayed(self, sort: str) -> bool:
        """Return whether an item belongs to the run that is read first in a second and comes last on the page."""
        return keys.is_whole_second(sort) is not self._backward

    def add(self, items: list[Raw]) -> None:
        if self._start is not None:
            is_beyond, start = (gt if self._backward else lt), keys.chronological(self._start["SK"])
            items = [item for item in items if is_beyond(keys.chronological(_sort(item)), start)]
        self._items += items

    def is_complete(self, last: Item) -> bool:
        """Return whether no unread item belongs on the page. `last` is the key that was read last."""
        second = keys.second_of(last["SK"])
        delayed = 0
        for item in reversed(self._items):
            sort = _sort(item)
            if keys.second_of(sort) != second:
                break
            delayed += self._is_delayed(sort)
        return len(self._items) > self._size and len(self._items) - delayed >= self._size

    def ordered(self) -> list[Raw]:
        if any(self._is_delayed(_sort(item)) for item in self._items):
            self._items.sort(key=lambda item: keys.chronological(_sort(item)), reverse=not self._backward)
        return self._items


def _sort(item: Raw) -> str:
    return str(item["SK"]["S"])
