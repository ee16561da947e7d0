"""Relay connections: paging arguments in, edges with sealed cursors out.

https://relay.dev/graphql/connections.htm
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datastore.attributes import Item
from datastore.cursors import Cursors, binding
from datastore.declarations import AccessPattern
from datastore.errors import BadUserInput, DomainError
from datastore.pages import Page, Span
from datastore.records import parsed

Record = TypeVar("Record")

DEFAULT_PAGE = 25
LARGEST_PAGE = 100


@dataclass(frozen=True, slots=True)
class Paging:
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


@dataclass(frozen=True, slots=True)
class Listing:
    """The list that a field pages through: cursors are bound to it and good for nothing else."""

    cursors: Cursors
    pattern: AccessPattern
    binding: bytes

    def span(self, paging: Paging) -> Span:
        """What to read for these arguments. Raises `BadUserInput` or `BadCursor`."""
        paging.check()
        backward = paging.last is not None or paging.before is not None
        cursor = paging.before if backward else paging.after
        start = None if cursor is None else self.cursors.open(cursor, self.binding, personal=self.pattern.personal)
        return Span((paging.last if backward else paging.first) or DEFAULT_PAGE, backward, start)

    def cursor(self, item: Item) -> str:
        names = self.pattern.table.key_attributes(self.pattern.index)
        key = {name: item[name] for name in names}
        return self.cursors.seal(key, self.binding, personal=self.pattern.personal)


def listing(cursors: Cursors, pattern: AccessPattern, field: str, arguments: Mapping[str, Any]) -> Listing:
    """The list of a field (`Type.field`) with its arguments other than the paging ones."""
    return Listing(cursors, pattern, binding(f"{pattern.id} {field}", arguments))


@dataclass(frozen=True, slots=True)
class Edge(Generic[Record]):
    """One place in a list. A record that cannot be read is the error that the field `node` answers."""

    listing: Listing
    item: Item
    node: Record | DomainError

    @property
    def cursor(self) -> str:
        """Sealed when it is asked for: a list shown without cursors does not pay for them."""
        return self.listing.cursor(self.item)


@dataclass(frozen=True, slots=True)
class PageInfo:
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


@dataclass(frozen=True, slots=True)
class Connection(Generic[Record]):
    """One page of a list."""

    page: Page
    edges: list[Edge[Record]]

    @property
    def nodes(self) -> list[Record | DomainError]:
        return [edge.node for edge in self.edges]

    @property
    def page_info(self) -> PageInfo:
        ends = (self.edges[0], self.edges[-1]) if self.edges else (None, None)
        return PageInfo(self.page.has_next, self.page.has_previous, *ends)

    @property
    def last_evaluated_key(self) -> str | None:
        return self.edges[-1].cursor if self.edges and self.page.has_next else None


def connection(of: Listing, page: Page, convert: Callable[[Mapping[str, Any]], Record]) -> Connection[Record]:
    return Connection(page, [Edge(of, item, parsed(convert, item)) for item in page.items])


def cut(items: list[Item], pattern: AccessPattern, span: Span) -> Page:
    """A page of a list that is in memory already, newest first; a cursor's own item may have gone since."""
    sort = pattern.table.index(pattern.index).sort if pattern.index else pattern.table.sort
    assert sort is not None, "A list without a sort attribute has no order to be cut by."
    if span.backward:
        before = items if span.start is None else [item for item in items if item[sort] > span.start[sort]]
        kept = before[-span.size :]
        return Page(kept, has_next=len(before) < len(items), has_previous=len(kept) < len(before))
    after = items if span.start is None else [item for item in items if item[sort] < span.start[sort]]
    kept = after[: span.size]
    return Page(kept, has_next=len(kept) < len(after), has_previous=len(after) < len(items))
