"""Steps and data of the tests of documents feed."""

from datetime import timedelta

import pytest

from tests.support.feed_documents import comment, like, post, tag, user, write
from tests.support.feed_steps import done, enter
from tests.support.served import NOON, Served

SECOND = timedelta(seconds=1)
POSTS = [
    post("abc123"),
    post("older", at=NOON - SECOND),
    post("fans", at=NOON - 2 * SECOND, visibility="followers"),
    post("secret", at=NOON - 3 * SECOND, visibility="private"),
]
TAGS = [tag(one["PK"][5:], at=NOON - number * SECOND) for number, one in enumerate(POSTS)]
ANSWERS = [comment("abc123", "c001"), like("abc123", "u001"), like("abc123", "u003"), like("abc123")]
DOCUMENT = [*map(user, ("u001", "u002", "u003")), *POSTS, *TAGS, *ANSWERS]


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own posts if mixed, newest first, else none."""
    write(served, *DOCUMENT)
    if request.param == "alone":
        return []
    await enter(served, "ada")
    create = 'mutation ($id: ID!) { createPost(input: {postId: $id, text: "#dynamodb"}) { postId } }'
    for id in ("ours1", "ours2"):
        served.clock.forward(seconds=1)
        await done(served, create, "ada", id=id)
    return ["ours2", "ours1"]
