"""Documents and steps for the tests of posts."""

from typing import Any

from datastore.dynamodb.codec import Item
from datastore.keyspace.feeds import follows as follow_keys
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso
from tests.support.served import NOON, Served

FIELDS = "id postId authorId createdAt visibility text mediaRef tags mentionedUserIds likeCount commentCount"

CREATE = f"mutation ($input: CreatePostInput!) {{ createPost(input: $input) {{ {FIELDS} }} }}"

SHOWN = "postId authorId createdAt visibility text mediaRef tags"

BY_AUTHOR = f'{{ postsByAuthor(authorId: "ada") {{ nodes {{ {SHOWN} }} }} }}'


async def create_users(served: Served, *users: str) -> None:
    for user in users:
        answer = await served.ask('mutation { createUser(input: {name: "X"}) { name } }', user=user)
        assert answer.errors is None


async def put_follow_items(served: Served, follower: str, *followees: str) -> None:
    items = []
    for followee in followees:
        key = follow_keys.following(follower, followee)
        items.append({"PK": key.partition, "SK": key.sort, "since": iso(NOON)})
    await served.store().write_all(FEED, puts=items)


async def create_feed_post(served: Served, user: str = "ada", **given: Any) -> dict[str, Any]:
    answer = await served.ask(CREATE, {"input": {"text": "Hello #cats", **given}}, user=user)
    assert answer.errors is None, answer.errors
    created: dict[str, Any] = answer.data["createPost"]
    return created


async def stored_post_items(served: Served, post_id: str, *sorts: str) -> list[Item | None]:
    return [await served.store().get(keys.POST, Key(f"POST#{post_id}", sort)) for sort in sorts]
