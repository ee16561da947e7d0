"""Likes: `POST#<id>` / `LIKE#<user>`. Each holds the post's author and visibility, for counters and notifications."""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import GET, PUT, QUERY, AccessPattern, Who


@item_key(FEED)
def like(post_id: str, user_id: str) -> KeyParts:
    return ("POST", post_id), ("LIKE", user_id)


# The post is read unless it was read before: a caller who may not see it sees no likes.
LIKES = like.query(
    "FEED-005", "The likes of a post", Who.ANY, ("likes", "Post.likes"), operations=GET + QUERY, descending=True
)
LIKE_OF_USER = like.read("FEED-N1", "Whether the caller likes a post", Who.USER, ("Post.likedByViewer",))
LIKE_POST = AccessPattern(
    "FEED-W2",
    "Like a post; a repeat changes nothing",
    FEED,
    # The post and the caller are read first, and for a followers-only post whether the caller follows.
    GET + PUT,
    Who.USER,
    ("likePost",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
UNLIKE_POST = like.delete(
    "FEED-W2",
    "Unlike a post, if the like is new; a repeat changes nothing",
    Who.USER,
    ("unlikePost",),
    condition="attribute_not_exists(SK) OR marked_until > :now",
)
UNLIKE_COUNTED = like.delete(
    "FEED-W2", "Unlike a post, after the old like was marked as counted", Who.USER, ("unlikePost",)
)
