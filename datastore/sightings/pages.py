"""Pages of an area's sightings by their moments, in which the table's order of keys is not that of time.

Other programs store moments as whole seconds (`12:00:00Z`). As text these sort after this gateway's of the same second
(`12:00:00.000Z` to `12:00:00.999Z`), which they precede in time: Z is a greater character than the point. So within
each second the table holds two runs of items, each in its order, and a page takes the one that the table has last
first. What a page takes of a second it knows once that second was read to the end, or as far as its second run.

A cursor in the run that the table has last leads on from the beginning of its second, since the other run is still to
come; a cursor in the other one leads on from its item. Items that earlier pages had are left out. So a page reads again
only what the second of its cursor holds, and is one Query, unless the seconds that it begins and ends in hold more than
`SPARE` sightings of the area that it does not show.
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

# How many more items a page reads: the rest of the second that it ends in, and those that earlier pages had of the one
# that it begins in.
SPARE = 6


async def read_by_moment(store: Store, pattern: AccessPattern, values: Mapping[str, Any], span: Span) -> Page:
    """A page of one area. `values` has the bounds of the sort key: `oldest` and `end`."""
    found = _SightingsRead(span)
    bounds, position = found.beginning(values)
    limit = span.size + 1 + SPARE
    while True:
        page = await store.query(pattern, bounds, start=position, limit=limit, backward=span.backward)
        found.add(page.raw)
        position = page.next_start
        if position is None or found.suffice(position):
            return page_of(found.in_order(), span, 1)
        limit = min(4 * limit, MAX_LIMIT)


class _SightingsRead:
    """Items as they are read, and which of them a page may have."""

    def __init__(self, span: Span) -> None:
        self._size = span.size
        self._backward = span.backward
        self._start = span.start
        self._items: list[Raw] = []

    def beginning(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Item | None]:
        """The values of the first Query, and the key to start after."""
        if self._start is None or self._waits(self._start["SK"]):
            return values, self._start
        second = keys.second_of(self._start["SK"])
        if self._backward:
            return {**values, "oldest": max(values["oldest"], second)}, None
        return {**values, "end": second + LAST_CHARACTER}, None

    def _waits(self, sort: str) -> bool:
        """Whether an item is of the run that the table has first of a second, and a page last."""
        return keys.is_whole_second(sort) is not self._backward

    def add(self, items: list[Raw]) -> None:
        if self._start is not None:
            is_beyond, start = (gt if self._backward else lt), keys.chronological(self._start["SK"])
            items = [item for item in items if is_beyond(keys.chronological(_sort(item)), start)]
        self._items += items

    def suffice(self, last: Item) -> bool:
        """Whether no item that was not read yet belongs on the page, or before one that does; `last` was read last."""
        second = keys.second_of(last["SK"])
        waiting = 0
        for item in reversed(self._items):
            sort = _sort(item)
            if keys.second_of(sort) != second:
                break
            waiting += self._waits(sort)
        return len(self._items) > self._size and len(self._items) - waiting >= self._size

    def in_order(self) -> list[Raw]:
        if any(self._waits(_sort(item)) for item in self._items):
            self._items.sort(key=lambda item: keys.chronological(_sort(item)), reverse=not self._backward)
        return self._items


def _sort(item: Raw) -> str:
    return str(item["SK"]["S"])
