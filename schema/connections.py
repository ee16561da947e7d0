"""Relay's `Node` and connection types."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import strawberry

T = TypeVar("T")

GLOBAL_ID = "The global id, for `node` and `nodes`. It is unique over all types."


@strawberry.interface(description="An object with a global id, by which `node` and `nodes` read it again.")
class Node:
    id: strawberry.ID = strawberry.field(description=GLOBAL_ID)


def node_id(resolver: Callable[..., strawberry.ID]) -> Any:
    """Return the field `id` of a type that implements `Node`."""
    return strawberry.field(resolver=resolver, graphql_type=strawberry.ID, description=GLOBAL_ID)


def is_record(record: type) -> Any:
    """Return `is_type_of` of a GraphQL type whose values are records of the class `record`."""

    def is_type_of(_cls: type, value: Any, _info: object) -> bool:
        return isinstance(value, record)

    return classmethod(is_type_of)


@strawberry.type(description="The position of a page in its list.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether the list has entries after this page.")
    has_previous_page: bool = strawberry.field(description="Whether the list has entries before this page.")
    start_cursor: str | None = strawberry.field(
        description="The cursor of the first edge, for `before`; null for an empty page."
    )
    end_cursor: str | None = strawberry.field(
        description="The cursor of the last edge, for `after`; null for an empty page."
    )


@strawberry.type(description="An entry of a list with its cursor.")
class Edge(Generic[T]):
    cursor: str = strawberry.field(
        description="The cursor of this entry, for `after` and `before`. It is valid for this list only, with the "
        "same arguments."
    )
    node: T | None = strawberry.field(description="The entry; null, with an error, if it cannot be read.")


@strawberry.type(description="A page of a list.")
class Connection(Generic[T]):
    edges: list[Edge[T]] = strawberry.field(
        description="The entries of this page with their cursors, in the order of the list."
    )
    nodes: list[T | None] = strawberry.field(description="The entries of this page without cursors.")
    page_info: PageInfo = strawberry.field(description="The position of this page in the list.")
    last_evaluated_key: str | None = strawberry.field(
        description="The cursor of the next page, for `after`, under DynamoDB's name for it; null at the end of "
        "the list."
    )
