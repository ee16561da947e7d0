"""Comments: `POST#<id>` / `COMMENT#<commentId>`. The ids are UUIDs of version 7, so their order is time order.

A deleted comment leaves a tombstone under its key for two days: an item with `deleted_at`, which no list includes.
"""

from datastore.keyspace.feeds.posts import partition
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join

COMMENT_PREFIX = "COMMENT#"


def comment(post_id: str, comment_id: str) -> Key:
    return Key(partition(post_id), join("COMMENT", comment_id))


COMMENTS = AccessPattern(
    id="FEED-006",
    question="The comments on a post, oldest first",
    table=FEED,
    # The post is read unless it was read before: a caller who may not see it sees no comments.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("comments", "Post.comments"),
    key="PK = :partition AND begins_with(SK, :prefix)",
    filter=("attribute_not_exists(deleted_at)",),
)
COMMENT = AccessPattern(
    id="FEED-N2",
    question="A comment by its full key, if the caller may see its post",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("Notification.comment", "node", "nodes"),
    key="PK = POST#<id>, SK = COMMENT#<commentId>",
)
COMMENT_OF_EVENT = AccessPattern(
    id="FEED-N2",
    question="The comment of an event, if the caller may see its post",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("Notification.comment",),
    key="PK = POST#<id>, SK = COMMENT#<commentId>",
    # The event is delivered once, just after the comment is written.
    consistent=True,
)
ADD_COMMENT = AccessPattern(
    id="FEED-W3",
    question="Comment on a post; a repeat with the same id changes nothing",
    table=FEED,
    # The post and the caller are read first, and for a followers-only post whether the caller follows.
    operations=("GetItem", "BatchGetItem", "PutItem"),
    who=Who.USER,
    fields=("addComment",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
DELETE_COMMENT = AccessPattern(
    id="FEED-W6",
    question="Delete the caller's comment, or a comment on the caller's post; a repeat changes nothing",
    table=FEED,
    # The comment is read first. The post is read if the comment does not name its author, and before a refusal: a
    # caller who may not see the post must not learn that the comment exists.
    operations=("GetItem", "BatchGetItem", "UpdateItem"),
    who=Who.USER,
    fields=("deleteComment",),
    condition="user_id = :author AND attribute_not_exists(deleted_at)",
    update="SET deleted_at = :now, expiresAt = :gone REMOVE #text, text_len, mentions",
    consistent=True,
)

PATTERNS = (COMMENTS, COMMENT, COMMENT_OF_EVENT, ADD_COMMENT, DELETE_COMMENT)
