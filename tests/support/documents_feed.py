"""The documented items of the feed, alone or mixed with the gateway's own."""

from datetime import timedelta

import pytest

from tests.support.feed_documents import (
    comment_document,
    like_document,
    post_document,
    tag_document,
    user_document,
    write_feed_items,
)
from tests.support.feed_steps import create_profiles, mutate
from tests.support.served import NOON, Served

SECOND = timedelta(seconds=1)
POSTS = [
    post_document("abc123"),
    post_document("older", at=NOON - SECOND),
    post_document("fans", at=NOON - 2 * SECOND, visibility="followers"),
    post_document("secret", at=NOON - 3 * SECOND, visibility="private"),
]
TAGS = [tag_document(one["PK"][5:], at=NOON - number * SECOND) for number, one in enumerate(POSTS)]
ANSWERS = [
    comment_document("abc123", "c001"),
    like_document("abc123", "u001"),
    like_document("abc123", "u003"),
    like_document("abc123"),
]
DOCUMENT = [*map(user_document, ("u001", "u002", "u003")), *POSTS, *TAGS, *ANSWERS]


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own posts if mixed, newest first, else none."""
    write_feed_items(served, *DOCUMENT)
    if request.param == "alone":
        return []
    await create_profiles(served, "ada")
    create = 'mutation ($id: ID!) { createPost(input: {postId: $id, text: "#dynamodb"}) { postId } }'
    for id in ("ours1", "ours2"):
        served.clock.forward(seconds=1)
        await mutate(served, create, "ada", id=id)
    return ["ours2", "ours1"]
