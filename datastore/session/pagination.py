"""Pages of a list over one or more partitions, each read by a Query: forward or backward, full also with a filter."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from functools import cache
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item
from datastore.errors import BadCursor
from datastore.model.access_patterns import AccessPattern
from datastore.session.store import Store


class SortOrder(StrEnum):
    """The order of a list by its sort key."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


# The maximum number of partitions that are read concurrently.
MAX_WAVE = 16
# A list counts as sparse if a page needs more partitions than this number. Empty partitions are skipped from then on.
SPARSE_AFTER = 4
# The number of partitions that the first call of `narrow` receives; each further call receives twice as many.
FIRST_CHUNK = 366
# The maximum `Limit` of a Query.
MAX_LIMIT = 2000
NOT_DEFERRED = nullcontext()

Values = Mapping[str, Any]
# Returns the items that belong in the list, in the same order, for conditions that no filter expression can state.
SelectItems = Callable[[list[Raw]], Awaitable[list[Raw]]]
# Returns the partitions that may hold items of the list, in the same order.
NarrowPartitions = Callable[[Sequence[Values]], Awaitable[Sequence[Values]]]


class Span(Struct, frozen=True):
    """The requested part of a list: `size` items after the position `start`, or before it if `backward`."""

    size: int
    backward: bool = False
    start: Item | None = None


class Page(Struct, eq=False):
    """Items of a list, in its order: as plain dicts, or in `raw`."""

    _items: list[Item] | None
    has_next: bool
    has_previous: bool
    #: The number of partitions that were read.
    partitions: int = 1
    #: The items as DynamoDB returned them, None for items from another source.
    raw: list[Raw] | None = None

    @property
    def items(self) -> list[Item]:
        """The items as plain dicts."""
        if self._items is None:
            self._items = [decode_item(raw) for raw in self.raw or ()]
        return self._items


async def read_page(
    store: Store,
    pattern: AccessPattern,
    partitions: Sequence[Values],
    span: Span,
    attributes: Sequence[str] | None = None,
    select: SelectItems | None = None,
    has_child_reads: bool = False,
    narrow: NarrowPartitions | None = None,
) -> Page:
    """Return a page of a list that consists of partitions, one after another, each given as the values of its Query.

    Partitions are read until `size` + 1 items are found or the last partition ends, so a page is short only at the end
    of the list. Partitions are read ahead concurrently, but at most twice as many as the page needs (see `_wave_size`).

    `has_child_reads` says that point reads follow, by `select` or for each item. Those of several lists are batched
    (see `Store.defer_dispatch`).

    `narrow` removes partitions without items of the list. It is called once a list proves to be sparse, for more
    partitions with each call.
    """
    reader = _KeysetReader(store, pattern, span.backward, attributes, select, has_child_reads)
    if len(partitions) == 1 and span.start is None:
        return page_of(await reader.read(partitions[0], span.size + 1, None), span, 1)
    ordered = list(reversed(partitions)) if span.backward else list(partitions)
    first, start = _position(pattern, ordered, span.start)
    required = span.size + 1
    found: list[Raw] = []
    at, largest = first, 0
    narrowing = _Narrowing(narrow, ordered, first)
    while len(found) < required and await narrowing.leaves_any(at):
        wave = ordered[at : min(at + _wave_size(required - len(found), largest, at - first), narrowing.until)]
        reads = [
            reader.read(values, required - len(found), start if at + offset == first else None)
            for offset, values in enumerate(wave)
        ]
        # Await a single read directly: a task would start a turn of the event loop later, when the point reads that
        # its dispatch hold is for may have been sent.
        batches = await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]
        for batch in batches:
            found += batch
        largest = max(largest, *map(len, batches))
        at += len(wave)
    return page_of(found, span, at - first)


@cache
def ordered(pattern: AccessPattern, order: SortOrder) -> AccessPattern:
    """Return the pattern with its list in the given order."""
    return replace(pattern, descending=order is SortOrder.DESCENDING)


def empty_page(span: Span) -> Page:
    """Return the page of an empty list."""
    return page_of([], span, 0)


def page_of(found: list[Raw], span: Span, partitions: int) -> Page:
    """Return the page of the items found, in reading order. One more than its size shows that the list continues."""
    more = len(found) > span.size
    raw = found[: span.size]
    if span.backward:
        return Page(None, span.start is not None, more, partitions, raw[::-1])
    return Page(None, more, span.start is not None, partitions, raw)


def _wave_size(missing: int, largest: int, read: int) -> int:
    """Return the number of partitions to read concurrently: enough if each is as full as the largest one so far.

    The number is at most that of the partitions read so far, because their sizes may mislead: a cursor or a window cuts
    the first one short. So at most twice as many partitions are read as the page needs.
    """
    if read == 0:
        return 1
    needed = -(-missing // largest) if largest else read
    return min(needed, read, MAX_WAVE)


def _position(pattern: AccessPattern, ordered: Sequence[Values], start: Item | None) -> tuple[int, Item | None]:
    """Return the position of the partition that holds the start key, and the key.

    Raises `BadCursor`: a signed cursor may name a partition that a moving range no longer includes.
    """
    if start is None:
        return 0, None
    attribute = pattern.table.index(pattern.index).partition if pattern.index else pattern.table.partition
    for number, values in enumerate(ordered):
        if values["partition"] == start[attribute]:
            return number, start
    raise BadCursor("This cursor lies outside the list.")


class _Narrowing:
    """A filter that removes partitions from `ordered`, in place. Those before `until` may be read."""

    def __init__(self, narrow: NarrowPartitions | None, ordered: list[Values], first: int) -> None:
        self._narrow = narrow
        self._ordered = ordered
        self._chunk = FIRST_CHUNK
        is_long = narrow is not None and len(ordered) - first > 2 * SPARSE_AFTER
        self.until = first + SPARSE_AFTER if is_long else len(ordered)

    async def leaves_any(self, at: int) -> bool:
        """Return whether a partition remains at this position or after it. Narrow more partitions first if needed."""
        while self._narrow is not None and at == self.until < len(self._ordered):
            chunk = slice(at, at + self._chunk)
            narrowed = await self._narrow(self._ordered[chunk])
            self._ordered[chunk] = narrowed
            self.until = at + len(narrowed)
            self._chunk *= 2
        return at < len(self._ordered)


class _KeysetReader(Struct, eq=False):
    """A reader of partitions that estimates each `Limit` from the share of items that passed the filter so far."""

    _store: Store
    _pattern: AccessPattern
    _backward: bool
    _attributes: Sequence[str] | None
    _select: SelectItems | None
    _has_child_reads: bool
    _scanned: int = 0
    _passed: int = 0

    async def read(self, values: Values, count: int, start: Item | None) -> list[Raw]:
        """Return up to `count` items of one partition, in reading order, after `start`."""
        found: list[Raw] = []
        limit = _limit(count, self._scanned, self._passed)
        while True:
            # Hold dispatch during the Query only: the point reads of `select` would wait for their own end.
            with self._store.defer_dispatch() if self._has_child_reads else NOT_DEFERRED:
                page = await self._store.query(
                    self._pattern,
                    values,
                    start=start,
                    limit=limit,
                    backward=self._backward,
                    attributes=self._attributes,
                )
            passed = await self._select(page.raw) if self._select else page.raw
            self._scanned += page.scanned
            self._passed += len(passed)
            found = found + passed if found else passed
            if len(found) >= count:
                return found[:count]
            start = page.next_start
            if start is None:
                return found
            # From the latest page alone: thousands of expired items may follow the last valid one.
            limit = _limit(count - len(found), page.scanned, len(passed))


def _limit(missing: int, scanned: int, passed: int) -> int:
    """Return the `Limit` of the next Query, from the share of the scanned items that passed the filter.

    It is four times the number of scanned items while none has passed. This balances round trips against unused reads.
    """
    suggested = -(-missing * scanned // passed) if passed else 4 * scanned
    return min(max(missing, suggested), MAX_LIMIT)
