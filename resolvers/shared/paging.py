"""Relay connections: keyset pagination with signed cursors.

https://relay.dev/graphql/connections.htm
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import repeat
from typing import Any, Generic, TypeVar

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import raw_records, record_or_error
from datastore.errors import BadUserInput, DomainError
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, AccessPattern
from datastore.session.cursors import Cursors, binding
from datastore.session.pagination import Page, Span

Record = TypeVar("Record")


class Paging(Struct, frozen=True):
    """The unvalidated paging arguments of a field."""

    first: int | None = None
    after: str | None = None
    last: int | None = None
    before: str | None = None

    def check(self) -> None:
        """Raise `BadUserInput`, which names the argument and the limit, for invalid arguments."""
        for name, size in (("first", self.first), ("last", self.last)):
            if size is not None and not 1 <= size <= MAX_PAGE_SIZE:
                raise BadUserInput(f"`{name}` must be between 1 and {MAX_PAGE_SIZE}, not {size}.", field=name)
        backward = self.last is not None or self.before is not None
        if backward and (self.first is not None or self.after is not None):
            raise BadUserInput("Page either forward (`first`, `after`) or backward (`last`, `before`), not both.")


class Listing:
    """The list of a field (`Type.field`) with these arguments, apart from those of paging.

    The cursors are valid for this list only. A cursor contains the `cursor_attributes` of its item, by default the
    start key of the pattern's Query.
    """

    __slots__ = ("_arguments", "_binding", "_cursor_attributes", "_field", "_sealer", "cursors", "pattern")

    def __init__(
        self,
        cursors: Cursors,
        pattern: AccessPattern,
        field: str,
        arguments: Mapping[str, Any],
        cursor_attributes: tuple[str, ...] = (),
    ) -> None:
        self._cursor_attributes = cursor_attributes
        self.cursors = cursors
        self.pattern = pattern
        self._field = field
        self._arguments = arguments
        self._binding: bytes | None = None
        self._sealer: Callable[[Raw], str] | None = None

    @property
    def binding(self) -> bytes:
        """The value that binds the cursors to this list. It is computed with the first cursor."""
        if self._binding is None:
            self._binding = binding(f"{self.pattern.id} {self._field}", self._arguments)
        return self._binding

    def span(self, paging: Paging) -> Span:
        """Return the part of the list to read. Raises `BadUserInput` or `BadCursor`."""
        if paging.last is None and paging.after is None and paging.before is None:
            size = paging.first
            if size is None or 1 <= size <= MAX_PAGE_SIZE:  # the usual case
                return Span(size or DEFAULT_PAGE_SIZE)
        paging.check()
        backward = paging.last is not None or paging.before is not None
        cursor = paging.before if backward else paging.after
        start = None if cursor is None else self.cursors.open(cursor, self.binding, personal=self.pattern.personal)
        return Span((paging.last if backward else paging.first) or DEFAULT_PAGE_SIZE, backward, start)

    @property
    def cursor(self) -> Callable[[Raw], str]:
        """The function that returns the cursor of an item in DynamoDB's format."""
        if self._sealer is None:
            names = self._cursor_attributes or start_key_attributes(self.pattern)
            self._sealer = self.cursors.sealer(names, self.binding, personal=self.pattern.personal)
        return self._sealer

    def cursor_of_plain(self, item: Mapping[str, Any]) -> str:
        """Return the cursor of a decoded item."""
        names = self._cursor_attributes or start_key_attributes(self.pattern)
        return self.cursor(encode_item({name: item[name] for name in names}))


@cache
def start_key_attributes(pattern: AccessPattern) -> tuple[str, ...]:
    """Return the attributes of the start key of the pattern's Query."""
    return pattern.table.key_attributes(pattern.index)


class Edge(Generic[Record]):
    """An entry of a list. If its item is damaged, `node` is the error of the field `node`.

    `item` is the item in DynamoDB's format.
    """

    __slots__ = ("item", "listing", "node")

    def __init__(self, listing: Listing, item: Mapping[str, Any], node: Record | DomainError) -> None:
        self.listing = listing
        self.item = item
        self.node = node

    @property
    def cursor(self) -> str:
        """The cursor. It is computed on demand, so a response without cursors does not pay for them."""
        return self.listing.cursor(self.item)


class PlainEdge(Edge[Record]):
    """An entry with a decoded item, such as an entry of a list in memory."""

    __slots__ = ()

    @property
    def cursor(self) -> str:
        return self.listing.cursor_of_plain(self.item)


class PageInfo(Struct, frozen=True):
    """The position of a page in its list."""

    has_next_page: bool
    has_previous_page: bool
    start: Edge[Any] | None
    end: Edge[Any] | None

    @property
    def start_cursor(self) -> str | None:
        return self.start.cursor if self.start else None

    @property
    def end_cursor(self) -> str | None:
        return self.end.cursor if self.end else None


class Connection(Struct, Generic[Record], frozen=True):
    """A page of a list. `end` is the position at which the read stopped, if it is not that of the last edge."""

    page: Page
    edges: list[Edge[Record]]
    end: Edge[Any] | None = None

    @property
    def nodes(self) -> list[Record | DomainError]:
        return [edge.node for edge in self.edges]

    @property
    def page_info(self) -> PageInfo:
        first, last = (self.edges[0], self.edges[-1]) if self.edges else (None, None)
        return PageInfo(self.page.has_next, self.page.has_previous, first, self.end or last)

    @property
    def last_evaluated_key(self) -> str | None:
        return self.page_info.end_cursor if self.page.has_next else None


def connection(listing: Listing, page: Page, convert: Callable[[Mapping[str, Any]], Record]) -> Connection[Record]:
    """Return the records of a page.

    `convert` returns the record of a decoded item. A `RecordDecoder` converts items in DynamoDB's format instead.
    """
    if page.raw is None:
        return Connection(page, [PlainEdge(listing, item, record_or_error(convert, item)) for item in page.items])
    if isinstance(convert, RecordDecoder):
        return Connection(page, list(map(Edge, repeat(listing), page.raw, raw_records(convert, page.raw))))
    return Connection(page, [Edge(listing, raw, record_or_error(convert, decode_item(raw))) for raw in page.raw])


def page_of_items(items: list[Item], sort_key: Callable[[Item], Any], span: Span) -> Page:
    """Return a page of a list in memory, in descending order of `sort_key`. The item of the cursor may be missing."""
    start = None if span.start is None else sort_key(span.start)
    if span.backward:
        before = items if start is None else [item for item in items if sort_key(item) > start]
        page_items = before[-span.size :]
        return Page(page_items, has_next=len(before) < len(items), has_previous=len(page_items) < len(before))
    after = items if start is None else [item for item in items if sort_key(item) < start]
    page_items = after[: span.size]
    return Page(page_items, has_next=len(page_items) < len(after), has_previous=len(after) < len(items))
