"""Connections over a Query: forward or backward, filtered and still full, over one partition or many in a row."""

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
    """Which end of a list comes first, by its sort key."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


MAX_WAVE = 16
# After this number of partitions a list counts as sparse: from then on empty partitions are skipped.
SPARSE_AFTER = 4
FIRST_CHUNK = 366
MAX_LIMIT = 2000
NOT_DEFERRED = nullcontext()

Values = Mapping[str, Any]
# Of the items that were read those that belong in the list, in the same order: what no filter expression can tell.
SelectItems = Callable[[list[Raw]], Awaitable[list[Raw]]]
# Returns those of the partitions that may hold items of the list, in the same order.
NarrowPartitions = Callable[[Sequence[Values]], Awaitable[Sequence[Values]]]


class Span(Struct, frozen=True):
    """Which part of a list is wanted: `size` items after (or before, when `backward`) the position `start`."""

    size: int
    backward: bool = False
    start: Item | None = None


class Page:
    """Items in the list's order, of which `raw` is what DynamoDB answered, None where they were made otherwise.

    `partitions` counts the partitions that were read for it.
    """

    __slots__ = ("_items", "has_next", "has_previous", "partitions", "raw")

    def __init__(
        self,
        items: list[Item] | None,
        has_next: bool,
        has_previous: bool,
        partitions: int = 1,
        raw: list[Raw] | None = None,
    ) -> None:
        self._items = items
        self.has_next = has_next
        self.has_previous = has_previous
        self.partitions = partitions
        self.raw = raw

    @property
    def items(self) -> list[Item]:
        """The items as plain dicts."""
        if self._items is None:
            self._items = [decode_item(raw) for raw in self.raw or ()]
        return self._items

    def __repr__(self) -> str:
        return f"Page({self.items!r}, {self.has_next}, {self.has_previous}, {self.partitions})"


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
    """A page of the list that the partitions make one after another, each given as the values of its Query.

    Reads until `size` items and one more are found or the last partition is done, so a page is short only at the
    end. Partitions are read ahead side by side, but at most twice as many as the page takes (see `_width`).

    `leads_on`: point reads follow, by `keep` or for each item. Those of several lists go out together (see
    `Store.leading_on`).

    `narrow` leaves out partitions without items of the list. It is called once a list proves to be sparse, for more
    partitions with each call.
    """
    reader = _KeysetReader(store, pattern, span.backward, attributes, select, has_child_reads)
    if len(partitions) == 1 and span.start is None:
        return page_of(await reader.read(partitions[0], span.size + 1, None), span, 1)
    ordered = list(reversed(partitions)) if span.backward else list(partitions)
    first, start = _position(pattern, ordered, span.start)
    wanted = span.size + 1
    found: list[Raw] = []
    at, fullest = first, 0
    narrowing = _Narrowing(narrow, ordered, first)
    while len(found) < wanted and await narrowing.leaves_any(at):
        wave = ordered[at : min(at + _wave_size(wanted - len(found), fullest, at - first), narrowing.until)]
        reads = [
            reader.read(values, wanted - len(found), start if at + offset == first else None)
            for offset, values in enumerate(wave)
        ]
        # A single one begins at once, not in a task of its own: what it is to hold up may be on its way by then.
        batches = await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]
        for batch in batches:
            found += batch
        fullest = max(fullest, *map(len, batches))
        at += len(wave)
    return page_of(found, span, at - first)


@cache
def ordered(pattern: AccessPattern, order: SortOrder) -> AccessPattern:
    """The pattern with its list in that order."""
    return replace(pattern, descending=order is SortOrder.DESCENDING)


def empty_page(span: Span) -> Page:
    """What `read_page` answers where there is nothing."""
    return page_of([], span, 0)


def page_of(found: list[Raw], span: Span, partitions: int) -> Page:
    """The page, of the items in the order of reading, of which one more may have been found than it takes."""
    more = len(found) > span.size
    raw = found[: span.size]
    if span.backward:
        return Page(None, span.start is not None, more, partitions, raw[::-1])
    return Page(None, more, span.start is not None, partitions, raw)


def _wave_size(missing: int, fullest: int, read: int) -> int:
    """How many partitions to read at once: as many as it takes if none is fuller than the fullest so far.

    But no more than were read already: what they hold may say little (a cursor or a window cuts the first one short),
    and so at most twice as many are read as it takes in the end.
    """
    if read == 0:
        return 1
    needed = -(-missing // fullest) if fullest else read
    return min(needed, read, MAX_WAVE)


def _position(pattern: AccessPattern, ordered: Sequence[Values], start: Item | None) -> tuple[int, Item | None]:
    """The partition a start key lies in. A cursor is signed, but a range that moved may not hold its partition."""
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
        """Return whether a partition is left at this position or after it; narrow further if needed."""
        while self._narrow is not None and at == self.until < len(self._ordered):
            chunk = slice(at, at + self._chunk)
            narrowed = await self._narrow(self._ordered[chunk])
            self._ordered[chunk] = narrowed
            self.until = at + len(narrowed)
            self._chunk *= 2
        return at < len(self._ordered)


class _KeysetReader:
    """Reads partitions until enough items passed the filter, and learns from each page how many pass."""

    def __init__(
        self,
        store: Store,
        pattern: AccessPattern,
        backward: bool,
        attributes: Sequence[str] | None,
        select: SelectItems | None,
        has_child_reads: bool,
    ) -> None:
        self._store = store
        self._pattern = pattern
        self._backward = backward
        self._attributes = attributes
        self._select = select
        self._has_child_reads = has_child_reads
        self._scanned = 0
        self._passed = 0

    async def read(self, values: Values, count: int, start: Item | None) -> list[Raw]:
        """Up to `wanted` items of one partition, in reading order, after `start`."""
        found: list[Raw] = []
        limit = _limit(count, self._scanned, self._passed)
        while True:
            # Around the Query alone: what `keep` asks for would wait for itself.
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
            # By the last page alone: behind the last living item there may be thousands of expired ones.
            limit = _limit(count - len(found), page.scanned, len(passed))


def _limit(missing: int, scanned: int, passed: int) -> int:
    """Look at as many items as the share that passed suggests: few round trips, little read for nothing.

    Four times as many as before while none passes.
    """
    suggested = -(-missing * scanned // passed) if passed else 4 * scanned
    return min(max(missing, suggested), MAX_LIMIT)
