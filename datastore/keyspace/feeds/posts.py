"""Posts and their tags. A deleted post leaves a tombstone until it expires: `META` with `deleted_at`, in no index."""

from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import META
from datastore.model.access_patterns import BATCH_WRITE, GET, QUERY, SHARED_MS, TRANSACT, AccessPattern, Who
from datastore.model.composite_keys import Key, split
from datastore.queues import OverflowPolicy


@item_key(FEED)
def post(post_id: str) -> KeyParts:
    return ("POST", post_id), (META,)


@item_key(FEED, index="GSI1")
def post_by_author(author_id: str, created_at: datetime, post_id: str) -> KeyParts:
    """Text order is time order."""
    return ("USER", author_id), (created_at, "POST", post_id)


@item_key(FEED)
def tag(post_id: str, name: str) -> KeyParts:
    return ("POST", post_id), ("TAG", name)


@item_key(FEED, index="GSI2")
def post_by_tag(name: str, created_at: datetime, post_id: str) -> KeyParts:
    return ("TAG", name), (created_at, "POST", post_id)


def post_parts(key: Key) -> str:
    """Return the id of the post to whose partition a key belongs."""
    return split(key.partition)[1]


def position_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the post id in a sort key of GSI1 or GSI2."""
    moment, _, post_id = split(sort)
    return moment, post_id


POST = post.read(
    "FEED-004",
    "A post, if the caller may see it",
    Who.ANY,
    (
        *("post", "FeedEntry.post", "Comment.post", "Like.post", "Notification.post"),
        *("Post.mentionedUserIds", "Post.likeCount", "Post.commentCount", "node", "nodes"),
    ),
    shared_ms=SHARED_MS,
)
POST_OF_EVENT = post.read(
    "FEED-004",
    "The post of an event, if the caller may see it",
    Who.ANY,
    ("FeedEntry.post", "Notification.post"),
    # The event is delivered once, just after the post is written.
    consistent=True,
)
POSTS_BY_AUTHOR = post_by_author.query(
    "FEED-002",
    "The posts of an author that the caller may see, newest first",
    Who.ANY,
    ("postsByAuthor", "User.posts"),
    # For followers-only posts, whether a signed-in caller follows is read.
    operations=GET + QUERY,
    # The first clause is for anonymous callers, the second for signed-in ones. The author sees all posts.
    filter=("visibility = :public", "visibility <> :private"),
    descending=True,
)
POSTS_BY_TAG = post_by_tag.query(
    "FEED-007",
    "The posts with a tag that the caller may see, newest first",
    Who.ANY,
    ("postsByTag",),
    # Also whether a signed-in caller follows, for followers-only posts, and posts whose tags hold no copies.
    operations=GET + QUERY,
    # For anonymous callers. This gateway's private posts are not in the index. Items that other programs wrote without
    # copies have no visibility: their posts are read.
    filter=("(visibility = :public OR attribute_not_exists(visibility))",),
    descending=True,
)
CREATE_POST = AccessPattern(
    "FEED-W1",
    "Write a post with its tags; a repeat with the same id changes nothing",
    FEED,
    # The author's user is read first.
    GET + TRANSACT,
    Who.USER,
    ("createPost",),
    transacts=("Put",),
    condition="attribute_not_exists(PK)",
    # The read must find a user who was just created.
    consistent=True,
)
DELETE_POST = AccessPattern(
    "FEED-W6",
    "Delete the caller's post; its likes, comments and feed entries are deleted later",
    FEED,
    GET + TRANSACT,
    Who.USER,
    ("deletePost",),
    transacts=("Update", "Delete"),
    condition="author_id = :me AND attribute_not_exists(deleted_at)",
    update=(
        "SET deleted_at = :now, expiresAt = :gone"
        # Author and visibility stay: they determine what other programs' likes and comments counted for.
        " REMOVE GSI1PK, GSI1SK, #text, media_ref, tags, mentions, likes, comments, marked_until"
    ),
    # The read must find a post that was just written.
    consistent=True,
)
POST_EXISTS = post.read("FEED-P4", "Whether a post still exists", consistent=True)
POST_OF_ITEMS = post.read(
    "FEED-P7",
    "The author and visibility of a post, for other programs' likes, comments and tags that hold neither",
    consistent=True,
)
POSTS_SINCE = post_by_author.query(
    "FEED-P4",
    "The posts of an author since a user follows, for the backfill of the user's feed",
    key="GSI1PK = :partition AND GSI1SK >= :since",
    filter=("visibility <> :private",),
)
ITEMS_OF_DELETED_POST = post.query(
    "FEED-P4", "The likes, comments and tags of a deleted post", key="PK = :partition", consistent=True
)
DELETE_ITEMS_OF_POST = AccessPattern(
    "FEED-P4", "Delete the likes, comments and tags of a deleted post", FEED, BATCH_WRITE
)
# For a followers-only post, each event reads whether the caller still follows.
POST_ENGAGEMENT = post.read(
    "FEED-S1",
    "The counts of likes and comments of a post as they change; the post is read at the start",
    Who.ANY,
    ("postEngagement",),
    consistent=True,
    when_slow=OverflowPolicy.LATEST,
)

COUNTS = post.read(
    "FEED-N7",
    "The counts of a post, for a response that adds the caller's own change",
    Who.USER,
    ("likePost", "unlikePost", "createComment", "deleteComment"),
    consistent=True,
)

# The condition of updates of a post's counters.
NOT_DELETED = "attribute_exists(PK) AND attribute_not_exists(deleted_at)"
