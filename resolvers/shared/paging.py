"""Relay connections: paging arguments in, edges with sealed cursors out.

https://relay.dev/graphql/connections.htm
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import repeat
from typing import Any, Generic, TypeVar

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import parsed, raw_records
from datastore.errors import BadUserInput, DomainError
from datastore.model.access_patterns import DEFAULT_PAGE, LARGEST_PAGE, AccessPattern
from datastore.session.cursors import Cursors, binding
from datastore.session.pagination import Page, Span

Record = TypeVar("Record")


class Paging(Struct, frozen=True):
    """The paging arguments of a field as they were given."""

    first: int | None = None
    after: str | None = None
    last: int | None = None
    before: str | None = None

    def check(self) -> None:
        """Raise `BadUserInput` naming the argument and the limit."""
        for name, size in (("first", self.first), ("last", self.last)):
            if size is not None and not 1 <= size <= LARGEST_PAGE:
                raise BadUserInput(f"`{name}` must be between 1 and {LARGEST_PAGE}, not {size}.", field=name)
        backward = self.last is not None or self.before is not None
        if backward and (self.first is not None or self.after is not None):
            raise BadUserInput("Page either forward (`first`, `after`) or backward (`last`, `before`), not both.")


class Listing:
    """The list that a field pages through. Its cursors are valid for no other list.

    `place` names the attributes of an item that its cursor holds. The default is the start key of the pattern's Query.
    """

    __slots__ = ("_arguments", "_binding", "_field", "_place", "_sealer", "cursors", "pattern")

    def __init__(
        self,
        cursors: Cursors,
        pattern: AccessPattern,
        field: str,
        arguments: Mapping[str, Any],
        place: tuple[str, ...] = (),
    ) -> None:
        self._place = place
        self.cursors = cursors
        self.pattern = pattern
        self._field = field
        self._arguments = arguments
        self._binding: bytes | None = None
        self._sealer: Callable[[Raw], str] | None = None

    @property
    def binding(self) -> bytes:
        """What its cursors are bound to: made with the first of them."""
        if self._binding is None:
            self._binding = binding(f"{self.pattern.id} {self._field}", self._arguments)
        return self._binding

    def span(self, paging: Paging) -> Span:
        """What to read for these arguments. Raises `BadUserInput` or `BadCursor`."""
        if paging.last is None and paging.after is None and paging.before is None:
            size = paging.first
            if size is None or 1 <= size <= LARGEST_PAGE:  # as most are
                return Span(size or DEFAULT_PAGE)
        paging.check()
        backward = paging.last is not None or paging.before is not None
        cursor = paging.before if backward else paging.after
        start = None if cursor is None else self.cursors.open(cursor, self.binding, personal=self.pattern.personal)
        return Span((paging.last if backward else paging.first) or DEFAULT_PAGE, backward, start)

    @property
    def cursor(self) -> Callable[[Raw], str]:
        """What makes a cursor for the place of an item as DynamoDB answers it."""
        if self._sealer is None:
            names = self._place or start_key_attributes(self.pattern)
            self._sealer = self.cursors.sealer(names, self.binding, personal=self.pattern.personal)
        return self._sealer

    def cursor_of_plain(self, item: Mapping[str, Any]) -> str:
        """A cursor for the place of a plain item."""
        names = self._place or start_key_attributes(self.pattern)
        return self.cursor(encode_item({name: item[name] for name in names}))


def listing(cursors: Cursors, pattern: AccessPattern, field: str, arguments: Mapping[str, Any]) -> Listing:
    """The list of a field (`Type.field`) with its arguments other than the paging ones."""
    return Listing(cursors, pattern, field, arguments)


@cache
def start_key_attributes(pattern: AccessPattern) -> tuple[str, ...]:
    """The attributes of a start key of the pattern's Query."""
    return pattern.table.key_attributes(pattern.index)


class Edge(Generic[Record]):
    """One place in a list. A record that cannot be read is the error that the field `node` answers.

    `item` is its item as DynamoDB answered it.
    """

    __slots__ = ("item", "listing", "node")

    def __init__(self, listing: Listing, item: Mapping[str, Any], node: Record | DomainError) -> None:
        self.listing = listing
        self.item = item
        self.node = node

    @property
    def cursor(self) -> str:
        """Sealed when it is asked for: a list shown without cursors does not pay for them."""
        return self.listing.cursor(self.item)


class PlainEdge(Edge[Record]):
    """One whose item is a plain one, as in a list that was in memory."""

    __slots__ = ()

    @property
    def cursor(self) -> str:
        return self.listing.cursor_of_plain(self.item)


class PageInfo(Struct, frozen=True):
    """Where a page stands in its list."""

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
    """One page of a list. `end` is the position at which the page was cut off, if that is not its last edge."""

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


def connection(of: Listing, page: Page, convert: Callable[[Mapping[str, Any]], Record]) -> Connection[Record]:
    """The records of a page.

    `convert` makes one of a plain item; a `RecordDecoder` does of one as DynamoDB answers it.
    """
    if page.raw is None:
        return Connection(page, [PlainEdge(of, item, parsed(convert, item)) for item in page.items])
    if isinstance(convert, RecordDecoder):
        return Connection(page, list(map(Edge, repeat(of), page.raw, raw_records(convert, page.raw))))
    return Connection(page, [Edge(of, raw, parsed(convert, decode_item(raw))) for raw in page.raw])


def cut(items: list[Item], place: Callable[[Item], Any], span: Span) -> Page:
    """A page of a list that is in memory already, newest first by `place`; a cursor's own item may have gone since."""
    start = None if span.start is None else place(span.start)
    if span.backward:
        before = items if start is None else [item for item in items if place(item) > start]
        kept = before[-span.size :]
        return Page(kept, has_next=len(before) < len(items), has_previous=len(kept) < len(before))
    after = items if start is None else [item for item in items if place(item) < start]
    kept = after[: span.size]
    return Page(kept, has_next=len(kept) < len(after), has_previous=len(after) < len(items))
