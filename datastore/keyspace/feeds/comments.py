"""Comments: `POST#<id>` / `COMMENT#<commentId>`. The ids are UUIDs of version 7, so their order is time order.

A deleted comment leaves a tombstone under its key for two days: an item with `deleted_at`, which no list includes.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import GET, PUT, QUERY, UPDATE, AccessPattern, Who


@item_key(FEED)
def comment(post_id: str, comment_id: str) -> KeyParts:
    return ("POST", post_id), ("COMMENT", comment_id)


COMMENTS = comment.query(
    "FEED-006",
    "The comments on a post, oldest first",
    Who.ANY,
    ("comments", "Post.comments"),
    # The post is read unless it was read before: a caller who may not see it sees no comments.
    operations=GET + QUERY,
    filter=("attribute_not_exists(deleted_at)",),
)
COMMENT = comment.read(
    "FEED-N2",
    "A comment by its full key, if the caller may see its post",
    Who.ANY,
    ("Notification.comment", "node", "nodes"),
)
COMMENT_OF_EVENT = comment.read(
    "FEED-N2",
    "The comment of an event, if the caller may see its post",
    Who.ANY,
    ("Notification.comment",),
    # The event is delivered once, just after the comment is written.
    consistent=True,
)
CREATE_COMMENT = AccessPattern(
    "FEED-W3",
    "Comment on a post; a repeat with the same id changes nothing",
    FEED,
    # The post and the caller are read first, and for a followers-only post whether the caller follows.
    GET + PUT,
    Who.USER,
    ("createComment",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
DELETE_COMMENT = AccessPattern(
    "FEED-W6",
    "Delete the caller's comment, or a comment on the caller's post; a repeat changes nothing",
    FEED,
    # The comment is read first. The post is read if the comment does not name its author, and before a refusal: a
    # caller who may not see the post must not learn that the comment exists.
    GET + UPDATE,
    Who.USER,
    ("deleteComment",),
    condition="user_id = :author AND attribute_not_exists(deleted_at)",
    update="SET deleted_at = :now, expiresAt = :gone REMOVE #text, text_len, mentions, marked_until",
    consistent=True,
)
