"""Steps that tests of the feed begin with, through the API, and whole lists, walked page by page."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from datastore.model.identity import Role
from tests.support.served import Clock, Served

# Who looks, beside an anonymous caller: `fan` follows `ada`, who writes.
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
    """From now on it is a millisecond later whenever anybody looks at the clock."""

    def look(clock: Clock) -> datetime:
        clock.forward(milliseconds=1)
        return clock.now

    monkeypatch.setattr(Clock, "__call__", look)


async def done(served: Served, mutation: str, user: str, **variables: Any) -> Any:
    """What the one field of a mutation answers; it must succeed."""
    answer = await served.ask(mutation, variables, user=user)
    assert answer.errors is None, answer.errors
    (value,) = answer.data.values()
    return value


async def enter(served: Served, *users: str) -> None:
    """Each user gets a profile."""
    enter = "mutation ($name: String!) { createUser(input: {name: $name}) { userId } }"
    await asyncio.gather(*[done(served, enter, user, name=user.title()) for user in users])


async def write(served: Served, post_id: str, user: str = "ada", visibility: str = "PUBLIC") -> None:
    """A post of a user who has a profile."""
    create = """mutation ($id: ID!, $visibility: Visibility!) {
      createPost(input: {postId: $id, text: "Hello", visibility: $visibility}) { postId } }"""
    await done(served, create, user, id=post_id, visibility=visibility)


async def follow(served: Served, follower: str, followee: str) -> Any:
    return await done(
        served, "mutation ($id: ID!) { follow(userId: $id) { userId followedAt } }", follower, id=followee
    )


async def unfollow(served: Served, follower: str, followee: str) -> Any:
    return await done(
        served, "mutation ($id: ID!) { unfollow(userId: $id) { userId followedAt } }", follower, id=followee
    )


async def cast(served: Served, visibility: str) -> None:
    """The post `p` of `ada`, whom `fan` follows; all viewers have profiles."""
    await enter(served, "ada", "fan", "eve", "root")
    await follow(served, "fan", "ada")
    await write(served, "p", visibility=visibility)


async def walk(served: Served, field: str, node: str, size: int, *, backward: bool = False) -> list[list[Any]]:
    """All pages of a list, from its start or from its end: `field` takes its paging arguments at %s."""
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
    """Pages of any size, from both ends, make the list, and each is full but the last."""
    for size in (1, 3, 7, len(expected), 100):
        forward = await walk(served, field, node, size)
        backward = await walk(served, field, node, size, backward=True)
        assert [item for page in forward for item in page] == expected
        assert [item for page in reversed(backward) for item in page] == expected
        assert {len(page) for pages in (forward, backward) for page in pages[:-1]} <= {size}
