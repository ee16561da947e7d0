"""Pages of a list over one or more partitions, each read by a Query: forward or backward, full also with a filter.

`ItemsByTime` are the items of a page whose keys are not in the order of time within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from functools import cache
from operator import gt, lt
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item
from datastore.dynamodb.records import QueryPage
from datastore.errors import BadCursor
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.timestamp_forms import LAST_CHARACTER, canonical, count_settled, is_delayed, second_of
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
# The further items that a page in the order of time reads: the rest of its last second, and the items of its first
# second that earlier pages contained. With more of them, the page takes a further Query.
SPARE = 6
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
    #: The order of the list, None for that of its pattern.
    order: SortOrder | None = None
    #: Whether to read with strong consistency.
    consistent: bool = False

    @property
    def is_upward(self) -> bool:
        """Whether a list that is descending by default is read from its smallest key."""
        return self.backward is not (self.order is SortOrder.ASCENDING)


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

    The span decides the order of each partition. The caller gives the partitions in the order of the list.

    Partitions are read until `size` + 1 items are found or the last partition ends, so a page is short only at the end
    of the list. Partitions are read ahead concurrently, but at most twice as many as the page needs (see `_wave_size`).

    `has_child_reads` says that point reads follow, by `select` or for each item. Those of several lists are batched
    (see `Store.defer_dispatch`).

    `attributes` are those that the caller needs besides the keys, by default all.

    `narrow` removes partitions without items of the list. It is called once a list proves to be sparse, for more
    partitions with each call.
    """
    pattern = pattern_of(pattern, span)
    if attributes is not None:
        attributes = tuple(dict.fromkeys((*pattern.table.key_attributes(pattern.index), *attributes)))
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


async def read_pages(
    store: Store,
    pattern: AccessPattern,
    partitions: Sequence[Values],
    spans: Sequence[Span],
    has_child_reads: bool = False,
) -> list[Page | BaseException]:
    """Return a page of each of several lists of one partition each, or its error: see `read_page`.

    The spans differ in their start only. The first Queries of the lists without one are sent together.
    """
    pattern = pattern_of(pattern, spans[0]) if spans else pattern
    # Hold dispatch until all lists have arrived: their entries cause the point reads.
    with store.defer_dispatch() if has_child_reads else NOT_DEFERRED:
        firsts: Sequence[QueryPage | BaseException | None] = [None] * len(spans)
        if all(span.start is None for span in spans):
            limit, backward = spans[0].size + 1, spans[0].backward
            firsts = await store.query_each(pattern, partitions, limit=limit, backward=backward)
        pages = [_only_page(first, span) for first, span in zip(firsts, spans, strict=True)]
        missing = [place for place, page in enumerate(pages) if page is None]
        if missing:
            reads = [_page_after(store, pattern, partitions[at], spans[at], firsts[at]) for at in missing]
            for place, page in zip(missing, await asyncio.gather(*reads, return_exceptions=True), strict=True):
                pages[place] = page
    return [page for page in pages if page is not None]


def _only_page(first: QueryPage | BaseException | None, span: Span) -> Page | BaseException | None:
    """Return the page of a list if the first Query has all of it, or the error of the Query; otherwise None."""
    if not isinstance(first, QueryPage):
        return first
    return page_of(first.raw, span, 1) if len(first.raw) > span.size or not first.last_key else None


async def _page_after(store: Store, pattern: AccessPattern, values: Values, span: Span, first: Any) -> Page:
    """Return a page of a list whose `first` Query may have been made."""
    if first is None:
        return await read_page(store, pattern, [values], span)
    reader = _KeysetReader(store, pattern, span.backward, None, None, False)
    return page_of(await reader.read(values, span.size + 1, None, first), span, 1)


def pattern_of(pattern: AccessPattern, span: Span) -> AccessPattern:
    """Return the pattern with the order and the consistency that the span requests."""
    if span.order is not None and (span.order is SortOrder.DESCENDING) is not pattern.descending:
        pattern = _reversed(pattern)
    return consistently(pattern) if span.consistent else pattern


@cache
def _reversed(pattern: AccessPattern) -> AccessPattern:
    return replace(pattern, descending=not pattern.descending)


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


def page_by_time(items: Mapping[str, Raw], span: Span) -> Page:
    """Return the page of items, given by their canonical keys: two items with one key would be one."""
    return page_of([items[key] for key in sorted(items, reverse=not span.is_upward)], span, partitions=1)


class ItemsByTime:
    """The items of a page in the order of time as they are read, without the items of earlier pages.

    The sort key `attribute` has a moment in one of two forms after `prefix`: see `timestamp_forms`. A page reads the
    second of its cursor again, because items that a Query returns first in a second may come last on the page. The page
    is complete when enough items were read that no unread one precedes.
    """

    def __init__(self, span: Span, attribute: str, prefix: str = "") -> None:
        self._span = span
        #: Whether the items are read from the smallest key.
        self._upward = span.is_upward
        self._attribute = attribute
        self._prefix = prefix
        self._position = None if span.start is None else str(span.start[attribute]).removeprefix(prefix)
        #: The items by their canonical keys.
        self.items: dict[str, Raw] = {}

    @property
    def missing(self) -> int:
        """The number of items that the page lacks, including one that shows whether there is a next page."""
        return max(self._span.size + 1 - len(self.items), 0)

    async def read(self, store: Store, pattern: AccessPattern, values: Values) -> None:
        """Read the items by Queries with the least and the greatest key of the list, `oldest` and `end`.

        The pattern is descending, whatever the order of the span.
        """
        start, limit = self._span.start, self._span.size + 1 + SPARE
        upward, position = self._upward, self._position
        if position is not None and not is_delayed(position, backward=upward):
            start, second = None, self._prefix + second_of(position)
            bound = {"oldest": max(values["oldest"], second)} if upward else {"end": second + LAST_CHARACTER}
            values = {**values, **bound}
        pattern = consistently(pattern, self._span.consistent)
        while True:
            page = await store.query(pattern, values, start=start, limit=limit, backward=upward)
            self.add(page.raw)
            if (start := page.next_start) is None or self.is_complete(start):
                return
            limit = min(4 * limit, MAX_LIMIT)

    def add(self, items: Iterable[Raw]) -> None:
        first = len(self._prefix)
        found = {canonical(item[self._attribute]["S"][first:]): item for item in items}
        if self._position is not None:
            start, is_beyond = canonical(self._position), gt if self._upward else lt
            found = {key: item for key, item in found.items() if is_beyond(key, start)}
        self.items |= found

    def is_complete(self, last: Item) -> bool:
        """Return whether no unread item belongs on the page. `last` is the key that was read last."""
        if self.missing:
            return False
        position = str(last[self._attribute]).removeprefix(self._prefix)
        return count_settled(self.items, position, backward=self._upward) >= self._span.size


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

    async def read(self, values: Values, count: int, start: Item | None, page: QueryPage | None = None) -> list[Raw]:
        """Return up to `count` items of one partition, in reading order, after `start`. `page` has the first."""
        found: list[Raw] = []
        limit = _limit(count, self._scanned, self._passed)
        while True:
            # Hold dispatch during the Query only: the point reads of `select` would wait for their own end.
            with self._store.defer_dispatch() if self._has_child_reads else NOT_DEFERRED:
                page = page or await self._store.query(
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
            page = None


def _limit(missing: int, scanned: int, passed: int) -> int:
    """Return the `Limit` of the next Query, from the share of the scanned items that passed the filter.

    It is four times the number of scanned items while none has passed. This balances round trips against unused reads.
    """
    suggested = -(-missing * scanned // passed) if passed else 4 * scanned
    return min(max(missing, suggested), MAX_LIMIT)
