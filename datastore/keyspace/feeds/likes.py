"""Likes: `POST#<id>` / `LIKE#<user>`. Each holds the post's author and visibility, for counters and notifications."""

from datastore.keyspace.feeds.posts import partition
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join

LIKE_PREFIX = "LIKE#"


def like(post_id: str, user_id: str) -> Key:
    return Key(partition(post_id), join("LIKE", user_id))


LIKES = AccessPattern(
    id="FEED-005",
    question="The likes of a post",
    table=FEED,
    # The post is read unless it was read before: a caller who may not see it sees no likes.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("likes", "Post.likes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
    descending=True,
)
LIKE_OF_USER = AccessPattern(
    id="FEED-N1",
    question="Whether the caller likes a post",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("Post.likedByViewer",),
    key="PK = POST#<id>, SK = LIKE#<user>",
)
LIKE_POST = AccessPattern(
    id="FEED-W2",
    question="Like a post; a repeat changes nothing",
    table=FEED,
    # The post and the caller are read first, and for a followers-only post whether the caller follows.
    operations=("GetItem", "BatchGetItem", "PutItem"),
    who=Who.USER,
    fields=("likePost",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
UNLIKE_POST = AccessPattern(
    id="FEED-W2",
    question="Unlike a post; a repeat changes nothing",
    table=FEED,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("unlikePost",),
)

PATTERNS = (LIKES, LIKE_OF_USER, LIKE_POST, UNLIKE_POST)
