"""Relay's connection types, and `Node`."""

from typing import Generic, TypeVar

import strawberry

T = TypeVar("T")


@strawberry.interface(description="An object that can be read again by its `id`.")
class Node:
    id: strawberry.ID = strawberry.field(description="Globally unique; good for `node` and `nodes`.")


@strawberry.type(description="Where a page stands in its list.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether the list goes on after this page.")
    has_previous_page: bool = strawberry.field(description="Whether the list begins before this page.")
    start_cursor: str | None = strawberry.field(description="The cursor of the first edge.")
    end_cursor: str | None = strawberry.field(description="The cursor of the last edge.")


@strawberry.type(description="One place in a list.")
class Edge(Generic[T]):
    cursor: str = strawberry.field(description="This place, for `after` and `before`. Good for this list only.")
    node: T | None = strawberry.field(description="What is there; null with an error when it cannot be read.")


@strawberry.type(description="One page of a list.")
class Connection(Generic[T]):
    edges: list[Edge[T]] = strawberry.field(description="The places of this page, in order.")
    nodes: list[T | None] = strawberry.field(description="The same without cursors.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")
    last_evaluated_key: str | None = strawberry.field(
        description="The cursor to go on from, as DynamoDB users know it; null at the end of the list."
    )
