"""Steps for the tests of the feed, through the API, and lists walked page by page."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from datastore.model.identity import Role
from tests.support.served import Clock, Served

# The callers that look, besides an anonymous one: `fan` follows `ada`, the author.
VIEWERS: dict[str, tuple[str | None, Role]] = {
    "anonymous": (None, Role.USER),
    "stranger": ("eve", Role.USER),
    "follower": ("fan", Role.USER),
    "author": ("ada", Role.USER),
    "admin": ("root", Role.ADMIN),
}
SEEN_BY = {
    "PUBLIC": set(VIEWERS),
    "FOLLOWERS": {"follower", "author", "admin"},
    "PRIVATE": {"author", "admin"},
}


def let_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock by a millisecond at each look."""

    def look(clock: Clock) -> datetime:
        clock.forward(milliseconds=1)
        return clock.now

    monkeypatch.setattr(Clock, "__call__", look)


async def mutate(served: Served, mutation: str, user: str, **variables: Any) -> Any:
    """Return the value of the only field of a mutation, which must succeed."""
    answer = await served.ask(mutation, variables, user=user)
    assert answer.errors is None, answer.errors
    (value,) = answer.data.values()
    return value


async def create_profiles(served: Served, *users: str) -> None:
    """Create a profile for each user."""
    enter = "mutation ($name: String!) { createUser(input: {name: $name}) { userId } }"
    await asyncio.gather(*[mutate(served, enter, user, name=user.title()) for user in users])


async def write_post(served: Served, post_id: str, user: str = "ada", visibility: str = "PUBLIC") -> None:
    """Create a post of a user who has a profile."""
    create = """mutation ($id: ID!, $visibility: Visibility!) {
      createPost(input: {postId: $id, text: "Hello", visibility: $visibility}) { postId } }"""
    await mutate(served, create, user, id=post_id, visibility=visibility)


async def follow_user(served: Served, follower: str, followee: str) -> Any:
    return await mutate(
        served, "mutation ($id: ID!) { follow(userId: $id) { userId createdAt } }", follower, id=followee
    )


async def unfollow(served: Served, follower: str, followee: str) -> Any:
    return await mutate(
        served, "mutation ($id: ID!) { unfollow(userId: $id) { userId createdAt } }", follower, id=followee
    )


async def cast(served: Served, visibility: str) -> None:
    """Create the post `p` of `ada`, whom `fan` follows, and profiles of all viewers."""
    await create_profiles(served, "ada", "fan", "eve", "root")
    await follow_user(served, "fan", "ada")
    await write_post(served, "p", visibility=visibility)


async def walk_list(served: Served, field: str, node: str, size: int, *, backward: bool = False) -> list[list[Any]]:
    """Return all pages of a list, from its start or its end. `field` has %s in the place of the paging arguments."""
    pages: list[list[Any]] = []
    at = ""
    while True:
        paging = f"{'last' if backward else 'first'}: {size}{at}"
        fields = f"nodes {{ {node} }} pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }}"
        answer = await served.ask(f"{{ page: {field.replace('%s', paging)} {{ {fields} }} }}")
        assert answer.errors is None, answer.errors
        info = answer.data["page"]["pageInfo"]
        pages.append([item[node] for item in answer.data["page"]["nodes"]])
        before, behind = ("hasNextPage", "hasPreviousPage") if backward else ("hasPreviousPage", "hasNextPage")
        assert info[before] is bool(at)
        if not info[behind]:
            return pages
        at = f', before: "{info["startCursor"]}"' if backward else f', after: "{info["endCursor"]}"'


async def assert_paged(served: Served, field: str, node: str, expected: list[Any]) -> None:
    """Check that pages of any size, from both ends, make the list, and that each is full except the last."""
    for size in (1, 3, 7, len(expected), 100):
        forward = await walk_list(served, field, node, size)
        backward = await walk_list(served, field, node, size, backward=True)
        assert [item for page in forward for item in page] == expected
        assert [item for page in reversed(backward) for item in page] == expected
        assert {len(page) for pages in (forward, backward) for page in pages[:-1]} <= {size}
