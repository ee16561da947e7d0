"""Posts and their tags. A deleted post leaves a tombstone until it expires: `META` with `deleted_at`, in no index."""

from datetime import datetime

from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import META
from datastore.model.access_patterns import SHARED_MS, AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso

TAG_PREFIX = "TAG#"


def partition(post_id: str) -> str:
    """Return the partition of a post, its tags, comments and likes."""
    return join("POST", post_id)


def post(post_id: str) -> Key:
    return Key(partition(post_id), META)


def post_parts(key: Key) -> str:
    """Return the id of the post to whose partition a key belongs."""
    return split(key.partition)[1]


def by_author(author_id: str) -> str:
    """Return the partition of an author's posts in GSI1."""
    return join("USER", author_id)


def position(created_at: datetime, post_id: str) -> str:
    """Return the sort key of a post in GSI1 and GSI2. Text order is time order."""
    return join(iso(created_at), "POST", post_id)


def position_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the post id in a sort key of GSI1 or GSI2."""
    moment, _, post_id = split(sort)
    return moment, post_id


def tag(post_id: str, name: str) -> Key:
    return Key(partition(post_id), join("TAG", name))


def by_tag(name: str) -> str:
    """Return the partition of a tag's posts in GSI2."""
    return join("TAG", name)


POST = AccessPattern(
    id="FEED-004",
    question="A post, if the caller may see it",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=SHARED_MS,
    fields=(
        "post",
        "FeedEntry.post",
        "Comment.post",
        "Like.post",
        "Notification.post",
        "Post.mentions",
        "Post.likeCount",
        "Post.commentCount",
        "node",
        "nodes",
    ),
    key="PK = POST#<id>, SK = META",
)
POST_OF_EVENT = AccessPattern(
    id="FEED-004",
    question="The post of an event, if the caller may see it",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("FeedEntry.post", "Notification.post"),
    key="PK = POST#<id>, SK = META",
    # The event is delivered once, just after the post is written.
    consistent=True,
)
POSTS_BY_AUTHOR = AccessPattern(
    id="FEED-002",
    question="The posts of an author that the caller may see, newest first",
    table=FEED,
    # For followers-only posts, whether a signed-in caller follows is read.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("postsByAuthor", "User.posts"),
    index="GSI1",
    key="GSI1PK = :partition",
    # The first clause is for anonymous callers, the second for signed-in ones. The author sees all posts.
    filter=("visibility = :public", "visibility <> :private"),
    descending=True,
)
POSTS_BY_TAG = AccessPattern(
    id="FEED-007",
    question="The posts with a tag that the caller may see, newest first",
    table=FEED,
    # Also whether a signed-in caller follows, for followers-only posts, and posts whose tags hold no copies.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("postsByTag",),
    index="GSI2",
    key="GSI2PK = :partition",
    # For anonymous callers. This gateway's private posts are not in the index. Items that other programs wrote without
    # copies have no visibility: their posts are read.
    filter=("(visibility = :public OR attribute_not_exists(visibility))",),
    descending=True,
)
CREATE_POST = AccessPattern(
    id="FEED-W1",
    question="Write a post with its tags; a repeat with the same id changes nothing",
    table=FEED,
    # The author's user is read first.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Put",),
    who=Who.USER,
    fields=("createPost",),
    condition="attribute_not_exists(PK)",
    # The read must find a user who was just created.
    consistent=True,
)
DELETE_POST = AccessPattern(
    id="FEED-W6",
    question="Delete the caller's post; its likes, comments and feed entries are deleted later",
    table=FEED,
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Update", "Delete"),
    who=Who.USER,
    fields=("deletePost",),
    condition="author_id = :me AND attribute_not_exists(deleted_at)",
    update=(
        "SET deleted_at = :now, expiresAt = :gone"
        # Author and visibility stay: they determine what other programs' likes and comments counted for.
        " REMOVE GSI1PK, GSI1SK, #text, media_ref, tags, mentions, likes, comments"
    ),
    # The read must find a post that was just written.
    consistent=True,
)
POST_EXISTS = AccessPattern(
    id="FEED-P4",
    question="Whether a post still exists",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = POST#<id>, SK = META",
    consistent=True,
)
POST_OF_ITEMS = AccessPattern(
    id="FEED-P7",
    question="The author and visibility of a post, for other programs' likes, comments and tags that hold neither",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = POST#<id>, SK = META",
    consistent=True,
)
POSTS_SINCE = AccessPattern(
    id="FEED-P4",
    question="The posts of an author since a user follows, for the backfill of the user's feed",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    index="GSI1",
    key="GSI1PK = :partition AND GSI1SK >= :since",
    filter=("visibility <> :private",),
)
ITEMS_OF_DELETED_POST = AccessPattern(
    id="FEED-P4",
    question="The likes, comments and tags of a deleted post",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    consistent=True,
)
DELETE_ITEMS_OF_POST = AccessPattern(
    id="FEED-P4",
    question="Delete the likes, comments and tags of a deleted post",
    table=FEED,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)
# The condition of updates of a post's counters.
NOT_DELETED = "attribute_exists(PK) AND attribute_not_exists(deleted_at)"

PATTERNS = (
    POST,
    POST_OF_EVENT,
    POSTS_BY_AUTHOR,
    POSTS_BY_TAG,
    CREATE_POST,
    DELETE_POST,
    POST_EXISTS,
    POST_OF_ITEMS,
    POSTS_SINCE,
    ITEMS_OF_DELETED_POST,
    DELETE_ITEMS_OF_POST,
)
