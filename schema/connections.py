"""Relay's connection types."""

from typing import Generic, TypeVar

import strawberry

from schema.fields import described

T = TypeVar("T")


@strawberry.type(description="The position of a page in its list.")
class PageInfo:
    has_next_page: bool = described("Whether the list has entries after this page.")
    has_previous_page: bool = described("Whether the list has entries before this page.")
    start_cursor: str | None = described("The cursor of the first edge, for `before`; null for an empty page.")
    end_cursor: str | None = described("The cursor of the last edge, for `after`; null for an empty page.")


@strawberry.type(description="An entry of a list with its cursor.")
class Edge(Generic[T]):
    cursor: str = described(
        "The cursor of this entry, for `after` and `before`. It is valid for this list only, with the same arguments."
    )
    node: T | None = described("The entry; null, with an error, if it cannot be read.")


@strawberry.type(description="A page of a list.")
class Connection(Generic[T]):
    edges: list[Edge[T]] = described("The entries of this page with their cursors, in the order of the list.")
    nodes: list[T | None] = described(
        "The entries of this page without cursors; null, with an error, for an entry that cannot be read."
    )
    page_info: PageInfo = described("The position of this page in the list.")
    last_evaluated_key: str | None = described(
        "The cursor of the next page, for `after`: the same as `pageInfo.endCursor`, but null at the end of the list."
    )
