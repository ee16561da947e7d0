"""Pages of a list in each order and direction."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from datastore.dynamodb.calls import Call
from tests.support.served import Answer

PAGE_INFO = "pageInfo { hasNextPage hasPreviousPage startCursor endCursor }"
# A function of the paging arguments. It returns the names of the entries of a page, and its `pageInfo`.
ReadPage = Callable[[str], Awaitable[tuple[list[str], dict[str, Any]]]]


async def assert_pages(read: ReadPage, expected: Sequence[str], *, order: str, size: int) -> None:
    """Read a list page by page, forward and then backward. Both ways the pages together are the list."""
    found, paging = list[str](), ""
    while True:
        names, info = await read(f"first: {size}, order: {order}{paging}")
        assert info["hasPreviousPage"] is bool(paging)
        found += names
        if not info["hasNextPage"]:
            break
        paging = f', after: "{info["endCursor"]}"'
    assert found == expected

    found, paging = [], ""
    while True:
        names, info = await read(f"last: {size}, order: {order}{paging}")
        assert info["hasNextPage"] is bool(paging)
        found = names + found
        if not info["hasPreviousPage"]:
            break
        paging = f', before: "{info["startCursor"]}"'
    assert found == expected


def consistency(answer: Answer) -> list[bool]:
    """Return whether each read of the request was consistent."""
    requests = [call.request for call in answer.calls]
    entries = [entry for one in requests for entry in one.get("RequestItems", {"": one}).values()]
    return [bool(entry.get("ConsistentRead")) for entry in entries]


def are_forward(queries: Sequence[Call]) -> set[bool]:
    """Return whether the Queries read from the smallest key."""
    return {call.request.get("ScanIndexForward", True) for call in queries}
