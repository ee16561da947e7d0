"""Posts and their tags. A deleted post leaves a tombstone for a while: `META` with `deleted_at`, in no index."""

from datetime import datetime

from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import META
from datastore.model.access_patterns import CROWD_MS, AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso

TAG_PREFIX = "TAG#"


def partition(post_id: str) -> str:
    """The item collection of a post: itself, its tags, comments and likes."""
    return join("POST", post_id)


def post(post_id: str) -> Key:
    return Key(partition(post_id), META)


def post_parts(key: Key) -> str:
    """The id of the post whose collection a key is of."""
    return split(key.partition)[1]


def by_author(author_id: str) -> str:
    """The partition of GSI1."""
    return join("USER", author_id)


def position(created_at: datetime, post_id: str) -> str:
    """The sort key in GSI1 and GSI2: text order is time order."""
    return join(iso(created_at), "POST", post_id)


def position_parts(sort: str) -> tuple[str, str]:
    """The moment (ISO 8601) and the id of the post at a position of GSI1 or GSI2."""
    moment, _, post_id = split(sort)
    return moment, post_id


def tag(post_id: str, name: str) -> Key:
    return Key(partition(post_id), join("TAG", name))


def by_tag(name: str) -> str:
    """The partition of GSI2."""
    return join("TAG", name)


POST = AccessPattern(
    id="FEED-004",
    question="A post, if the caller may see it",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=CROWD_MS,
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
    # It was written a moment ago, and the event comes once.
    consistent=True,
)
POSTS_BY_AUTHOR = AccessPattern(
    id="FEED-002",
    question="The posts of an author that the caller may see, newest first",
    table=FEED,
    # For posts shown to followers only: whether a signed-in caller is one.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("postsByAuthor", "User.posts"),
    index="GSI1",
    key="GSI1PK = :partition",
    # Each clause for another caller: nobody in particular, somebody signed in; the author sees all.
    filter=("visibility = :public", "visibility <> :private"),
    descending=True,
)
POSTS_BY_TAG = AccessPattern(
    id="FEED-007",
    question="The posts with a tag that the caller may see, newest first",
    table=FEED,
    # For posts shown to followers only: whether a signed-in caller is one. The posts of items without copies.
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("postsByTag",),
    index="GSI2",
    key="GSI2PK = :partition",
    # For callers who are not signed in. Private posts of ours are not in the index. Items that other programs wrote
    # without copies name no visibility: their posts are read.
    filter=("(visibility = :public OR attribute_not_exists(visibility))",),
    descending=True,
)
CREATE_POST = AccessPattern(
    id="FEED-W1",
    question="Write a post with its tags; asked for again with the same id, it changes nothing",
    table=FEED,
    # That the author is a user is read before.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Put",),
    who=Who.USER,
    fields=("createPost",),
    condition="attribute_not_exists(PK)",
    # Who has just entered can post.
    consistent=True,
)
DELETE_POST = AccessPattern(
    id="FEED-W6",
    question="Delete one's post; its likes, comments and feed entries follow",
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
    # A post that was just written can be deleted.
    consistent=True,
)
IS_LIVE = AccessPattern(
    id="FEED-P4",
    question="Whether a post is still there",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = POST#<id>, SK = META",
    consistent=True,
)
POST_OF_ITEMS = AccessPattern(
    id="FEED-P7",
    question="The author and visibility of a post, for likes, comments and tags of other programs that name neither",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = POST#<id>, SK = META",
    consistent=True,
)
POSTS_SINCE = AccessPattern(
    id="FEED-P4",
    question="The posts an author wrote since somebody follows, for that one's feed",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    index="GSI1",
    key="GSI1PK = :partition AND GSI1SK >= :since",
    filter=("visibility <> :private",),
)
REMAINS = AccessPattern(
    id="FEED-P4",
    question="What is left of a deleted post: its likes, comments and tags",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    consistent=True,
)
CLEAN_UP = AccessPattern(
    id="FEED-P4",
    question="Delete what is left of a deleted post",
    table=FEED,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)
# A counter's post must still be there.
NOT_DELETED = "attribute_exists(PK) AND attribute_not_exists(deleted_at)"

PATTERNS = (
    POST,
    POST_OF_EVENT,
    POSTS_BY_AUTHOR,
    POSTS_BY_TAG,
    CREATE_POST,
    DELETE_POST,
    IS_LIVE,
    POST_OF_ITEMS,
    POSTS_SINCE,
    REMAINS,
    CLEAN_UP,
)
