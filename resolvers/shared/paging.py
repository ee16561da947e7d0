"""Relay connections: keyset pagination with signed cursors.

https://relay.dev/graphql/connections.htm
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from itertools import repeat
from operator import gt, lt
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar

from graphql.execution.values import VariableValues, get_argument_values
from msgspec import Struct

from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import raw_records, record_or_error
from datastore.errors import BadUserInput, DomainError
from datastore.model.access_patterns import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, AccessPattern, Who
from datastore.session.cursors import Cursors, binding
from datastore.session.pagination import Page, SortOrder, Span
from resolvers.shared.arguments import After, Before, Consistent, First, Last, Order
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.selected_fields import decoder_of_nodes

Record = TypeVar("Record")


Resolver = TypeVar("Resolver", bound=Callable[..., Any])
_ARGUMENTS = {"first": First, "after": After, "last": Last, "before": Before}
PAGING_ARGUMENTS = frozenset(_ARGUMENTS) | {"order", "consistent"}
NO_VALUES: Mapping[str, Any] = {}


class Paging(TypedDict, total=False):
    """The paging arguments of a field as the client sent them."""

    first: int | None
    after: str | None
    last: int | None
    before: str | None
    order: SortOrder
    consistent: bool


def paged(resolver: Resolver) -> Resolver:
    """Declare the paging arguments of a resolver whose list has one order. It receives them as `**paging`.

    In the schema they precede the resolver's keyword-only arguments.
    """
    return _with_arguments(resolver, {})


def paged_in(order: SortOrder, *, consistent: bool = False) -> Callable[[Resolver], Resolver]:
    """Return a decorator like `paged` for a list that can be read in both directions, by default in this one.

    `consistent` adds the argument of that name, for root fields that read a base table.
    """
    further: dict[str, Any] = {"order": (order, Order)} | ({"consistent": (False, Consistent)} if consistent else {})
    return lambda resolver: _with_arguments(resolver, further)


def _with_arguments(resolver: Resolver, further: Mapping[str, tuple[Any, Any]]) -> Resolver:
    """Add the paging arguments to the signature of a resolver. `further` are defaults and types by name."""
    declared = signature(resolver)
    own = [each for each in declared.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    arguments: dict[str, tuple[Any, Any]] = {**{name: (None, kind) for name, kind in _ARGUMENTS.items()}, **further}
    paging = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in arguments.items()
    ]
    position = next((place for place, each in enumerate(own) if each.kind is Parameter.KEYWORD_ONLY), len(own))
    parameters = [*own[:position], *paging, *own[position:]]
    resolver.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    return resolver


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
        order: SortOrder | None = None,
        consistent: bool = False,
    ) -> Span:
        """Return the part of the list to read. Raises `BadCursor`, or `BadUserInput`, which names the argument.

        The cursors of the list in the order of its pattern are those of a list without the argument `order`.
        """
        if first is not None and not 1 <= first <= MAX_PAGE_SIZE:
            raise _size_error("first", first)
        if last is not None and not 1 <= last <= MAX_PAGE_SIZE:
            raise _size_error("last", last)
        if order is not None and (order is SortOrder.DESCENDING) is not self.pattern.descending:
            self.arguments = {**self.arguments, "order": order}
        backward = last is not None or before is not None
        if backward and (first is not None or after is not None):
            raise BadUserInput("Page either forward (`first`, `after`) or backward (`last`, `before`), not both.")
        cursor = before if backward else after
        start = None
        if cursor is not None:
            start = self.cursors.open(cursor, self._binding, personal=self.pattern.personal)
        return Span((last if backward else first) or DEFAULT_PAGE_SIZE, backward, start, order, consistent)

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


def _size_error(name: str, size: int) -> BadUserInput:
    return BadUserInput(f"`{name}` must be between 1 and {MAX_PAGE_SIZE}, not {size}.", field=name)


class _ListField(NamedTuple):
    """The field of a list."""

    name: str
    #: Whether the field has a parent, whose key decides which list it is.
    has_parent: bool
    #: The names of the arguments apart from those of paging.
    arguments: tuple[str, ...]


def connection_of(
    info: Info,
    pattern: AccessPattern,
    convert: Callable[[Mapping[str, Any]], Record],
    values: Mapping[str, Any] = NO_VALUES,
    *,
    owner: str | None = None,
    replaces: Collection[str] = (),
    cursor_attributes: tuple[str, ...] = (),
) -> Connection[Record]:
    """Return the connection of the list that a field returns, if the caller may use the pattern (see `require`).

    Its cursors are bound to the field and to all arguments except those of paging. An argument that is null or false is
    left out: a new argument leaves the cursors of earlier releases valid.

    `values` are bound as well, also if they are null. They contain the key of the field's parent, and the normal forms
    of arguments, under the arguments' names. `replaces` names arguments that `values` represents under another name.
    """
    if pattern.who is not Who.ANY:
        require(info.context.identity, pattern, owner=owner)
    field = _list_field(info)
    if field.has_parent and not values:
        raise TypeError(f"Pass the key of the parent to `connection_of` in `values`: cursors of {field.name} need it.")
    bound = dict(values)
    if len(field.arguments) > len(replaces):
        arguments = _arguments_of(info)
        for name in field.arguments:
            value = arguments.get(name)
            if value is not None and value is not False and name not in bound and name not in replaces:
                bound[name] = value
    return Connection(info.context.services.cursors, pattern, field.name, bound, convert, cursor_attributes)


async def connections_of(
    info: Info,
    pattern: AccessPattern,
    decoder: RecordDecoder[Record],
    key_name: str,
    keys: Sequence[str],
    paging: Paging,
    read: Callable[[Sequence[str], Sequence[Span]], Awaitable[Sequence[Page | BaseException]]],
) -> list[Connection[Record] | BaseException]:
    """Return the connection of a field's list for each of many parents, or its error: see `connection_of`.

    Of the entries only those values are decoded that the selected fields of the nodes read.

    `keys` are the different keys of the parents, and `key_name` the name under which cursors are bound to them. `read`
    returns the page of each key, or its error. The spans that it gets differ in their start only.
    """
    convert = decoder_of_nodes(info, decoder)
    first = connection_of(info, pattern, convert, {key_name: keys[0]})
    spans: list[Span | DomainError] = []
    if paging.get("after") is None and paging.get("before") is None:
        spans = [first.span(**paging)] * len(keys)
    bound, cursors, field = first.arguments, first.cursors, first.field  # with the order that `span` has bound
    lists = [first, *[Connection(cursors, pattern, field, {**bound, key_name: key}, convert) for key in keys[1:]]]
    if not spans:
        spans = [_span_or_refusal(connection, paging) for connection in lists]  # a cursor is valid for one of the lists
    read_spans = {key: span for key, span in zip(keys, spans, strict=True) if isinstance(span, Span)}
    pages = iter(await read([*read_spans], [*read_spans.values()]) if read_spans else ())
    results: list[Connection[Record] | BaseException] = []
    for connection, span in zip(lists, spans, strict=True):
        page: Page | BaseException = span if isinstance(span, DomainError) else next(pages)
        results.append(page if isinstance(page, BaseException) else connection.of(page))
    return results


def _span_or_refusal(connection: Connection[Any], paging: Paging) -> Span | DomainError:
    try:
        return connection.span(**paging)
    except DomainError as refusal:
        return refusal


def _list_field(info: Info) -> _ListField:
    """Return the field of a list. A compiled operation determines it once for all its executions."""
    notes: dict[Any, Any] | None = getattr(info, "notes", None)
    field: _ListField | None = notes.get(_ListField) if notes is not None else None
    if field is None:
        # A compiled operation has the type and the arguments without graphql-core's info, which is expensive.
        parent_type = getattr(info, "parent_type", None) or info._raw_info.parent_type
        arguments = parent_type.fields[info.field_name].args
        field = _ListField(
            f"{parent_type.name}.{info.field_name}",
            parent_type.name != "Query",
            tuple(name for name in arguments if name not in PAGING_ARGUMENTS),
        )
        if notes is not None:
            notes[_ListField] = field
    return field


def _arguments_of(info: Info) -> Mapping[str, Any]:
    """Return the coerced arguments of a field, by their names in the schema."""
    arguments: Mapping[str, Any] | None = getattr(info, "arguments", None)  # of a compiled operation
    if arguments is not None:
        return arguments
    raw = info._raw_info
    field = raw.parent_type.fields[raw.field_name]
    return get_argument_values(field, raw.field_nodes[0], VariableValues({}, info.variable_values))


@cache
def start_key_attributes(pattern: AccessPattern) -> tuple[str, ...]:
    """Return the attributes of the start key of the pattern's Query."""
    return pattern.table.key_attributes(pattern.index)


def page_of_items(items: list[Item], sort_key: Callable[[Item], Any], span: Span) -> Page:
    """Return a page of a list in memory, in descending order of `sort_key`, or the reverse if the span is ascending.

    The item of the cursor may be missing.
    """
    start = None if span.start is None else sort_key(span.start)
    precedes, follows = (lt, gt) if span.order is SortOrder.ASCENDING else (gt, lt)
    if span.order is SortOrder.ASCENDING:
        items = items[::-1]
    if span.backward:
        before = items if start is None else [item for item in items if precedes(sort_key(item), start)]
        page_items = before[-span.size :]
        return Page(page_items, has_next=len(before) < len(items), has_previous=len(page_items) < len(before))
    after = items if start is None else [item for item in items if follows(sort_key(item), start)]
    page_items = after[: span.size]
    return Page(page_items, has_next=len(page_items) < len(after), has_previous=len(after) < len(items))
