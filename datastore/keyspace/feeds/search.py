"""Search: the reads of the table `feed` that load results and keep the search index current."""

from datastore.keyspace.feeds.follows import following
from datastore.keyspace.feeds.posts import post
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import user
from datastore.model.access_patterns import SCAN, SHARED_MS, AccessPattern, Who

# The range of META and the tags of a post. Comments and likes sort before it.
FIRST_INDEXED, LAST_INDEXED = "META", "TAG$"

# For followers-only posts, whether a signed-in caller follows is read.
SEARCH_POSTS = post.read(
    "FEED-N5",
    "The posts with some words or tags that the caller may see; the search index finds them",
    Who.ANY,
    ("searchPosts",),
    shared_ms=SHARED_MS,
    # The cursor of a truncated page may name a post that the caller may not see.
    personal=True,
)
SEARCH_FOLLOWED = following.query(
    "FEED-N5",
    "The users that the caller follows, so that the index finds their followers-only posts",
    Who.USER,
    ("searchPosts",),
)
SEARCH_USERS = user.read(
    "FEED-N6",
    "The users with some words in their names; the search index finds them",
    Who.ANY,
    ("searchUsers",),
    shared_ms=SHARED_MS,
)
INDEXED_POST = post.query(
    "FEED-P6",
    "A post with its tags, for the search index",
    key="PK = :partition AND SK BETWEEN :first AND :last",
    # The read must include the change whose sequence number the entry gets.
    consistent=True,
)
SCAN_INDEXED = AccessPattern(
    "FEED-P6",
    "All posts with their tags and all users, to build the search index",
    FEED,
    SCAN,
    filter=("SK = :meta OR begins_with(SK, :tag)",),
    # The scan must include every change before the start of the build.
    consistent=True,
)
