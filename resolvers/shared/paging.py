"""Relay connections: keyset pagination with signed cursors.

https://relay.dev/graphql/connections.htm
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct

from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import raw_records, record_or_error
from datastore.errors import BadUserInput, DomainError
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, AccessPattern
from datastore.session.cursors import Cursors, binding
from datastore.session.pagination import Page, Span

Record = TypeVar("Record")


# The unvalidated paging arguments of a field: first, after, last, before.
PagingArguments = tuple[int | None, str | None, int | None, str | None]


class Edge(Struct, Generic[Record], eq=False):
    """An entry of a list. If its item is damaged, `node` is the error of the field `node`."""

    connection: "Connection[Any]"
    #: The item in the format of the page: DynamoDB's, or decoded.
    item: Mapping[str, Any]
    node: Record | DomainError

    @property
    def cursor(self) -> str:
        """The cursor. It is computed on demand, so a response without cursors does not pay for them."""
        connection = self.connection
        return (connection.seal or connection.sealer())(self.item)


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


class Connection(Struct, Generic[Record], eq=False):
    """A page of the list of a field (`Type.field`) with these arguments, apart from those of paging.

    `span` returns the part of the list to read, and `of` takes the page that was read. `convert` returns the record of
    a decoded item; a `RecordDecoder` converts items in DynamoDB's format instead. The cursors are valid for this list
    only. A cursor contains the `cursor_attributes` of its item, by default the start key of the pattern's Query.
    """

    cursors: Cursors
    pattern: AccessPattern
    field: str
    arguments: Mapping[str, Any]
    convert: Callable[[Mapping[str, Any]], Record]
    cursor_attributes: tuple[str, ...] = ()
    #: The page, once it was read, with its items and their records. Edges refer to the connection, so it holds none of
    #: them: a cycle of references would leave each page to the garbage collector.
    page: Page | None = None
    items: Sequence[Mapping[str, Any]] = ()
    records: Sequence[Any] = ()
    #: The item at which the read stopped, if it is not the last one.
    end_item: Mapping[str, Any] | None = None
    #: The function that returns an edge, given the connection, an item and its record.
    edge: Callable[["Connection[Any]", Mapping[str, Any], Any], Edge[Any]] = Edge
    #: The function that returns the cursor of an item, once `sealer` has made it.
    seal: Callable[[Mapping[str, Any]], str] | None = None

    def span(
        self,
        first: int | None = None,
        after: str | None = None,
        last: int | None = None,
        before: str | None = None,
    ) -> Span:
        """Return the part of the list to read. Raises `BadCursor`, or `BadUserInput`, which names the argument."""
        for name, size in (("first", first), ("last", last)):
            if size is not None and not 1 <= size <= MAX_PAGE_SIZE:
                raise BadUserInput(f"`{name}` must be between 1 and {MAX_PAGE_SIZE}, not {size}.", field=name)
        backward = last is not None or before is not None
        if backward and (first is not None or after is not None):
            raise BadUserInput("Page either forward (`first`, `after`) or backward (`last`, `before`), not both.")
        cursor = before if backward else after
        start = None
        if cursor is not None:
            start = self.cursors.open(cursor, self._binding, personal=self.pattern.personal)
        return Span((last if backward else first) or DEFAULT_PAGE_SIZE, backward, start)

    def of(self, page: Page) -> Self:
        """Set the page, and the records of its items. Return this connection."""
        convert = self.convert
        self.page = page
        if page.raw is None:
            self.items = page.items
            self.records = [record_or_error(convert, item) for item in page.items]
        else:
            self.items = page.raw
            if isinstance(convert, RecordDecoder):
                self.records = raw_records(convert, page.raw)
            else:
                self.records = [record_or_error(convert, decode_item(raw)) for raw in page.raw]
        return self

    def sealer(self) -> Callable[[Mapping[str, Any]], str]:
        """Return the function that returns the cursor of an item in the format of the page."""
        assert self.page is not None, "The page has not been read."
        names = self.cursor_attributes or start_key_attributes(self.pattern)
        seal = self.cursors.sealer(names, self._binding, personal=self.pattern.personal)
        if self.page.raw is None:
            self.seal = lambda item: seal(encode_item({name: item[name] for name in names}))
        else:
            self.seal = seal
        return self.seal

    @property
    def _binding(self) -> bytes:
        """The value that binds the cursors to this list."""
        return binding(f"{self.pattern.id} {self.field}", self.arguments)

    @property
    def edges(self) -> list[Edge[Record]]:
        return list(map(self.edge, repeat(self), self.items, self.records))

    @property
    def nodes(self) -> Sequence[Record | DomainError]:
        return self.records if self.edge is Edge else [edge.node for edge in self.edges]

    @property
    def page_info(self) -> PageInfo:
        assert self.page is not None, "The page has not been read."
        items = self.items
        first = Edge(self, items[0], None) if items else None
        end_item = self.end_item or (items[-1] if items else None)
        end = None if end_item is None else Edge(self, end_item, None)
        return PageInfo(self.page.has_next, self.page.has_previous, first, end)

    @property
    def last_evaluated_key(self) -> str | None:
        page_info = self.page_info
        return page_info.end_cursor if page_info.has_next_page else None


@cache
def start_key_attributes(pattern: AccessPattern) -> tuple[str, ...]:
    """Return the attributes of the start key of the pattern's Query."""
    return pattern.table.key_attributes(pattern.index)


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
