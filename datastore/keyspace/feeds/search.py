"""Search: the reads of the table `feed` that load results and keep the search index current."""

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import SHARED_MS, AccessPattern, Who

# The range of META and the tags of a post. Comments and likes sort before it.
FIRST_INDEXED, LAST_INDEXED = "META", "TAG$"

SEARCH_POSTS = AccessPattern(
    id="FEED-N5",
    question="The posts with some words or tags that the caller may see; the search index finds them",
    table=FEED,
    # For followers-only posts, whether a signed-in caller follows is read.
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=SHARED_MS,
    fields=("searchPosts",),
    key="PK = POST#<id>, SK = META",
    # The cursor of a truncated page may name a post that the caller may not see.
    personal=True,
)
SEARCH_FOLLOWED = AccessPattern(
    id="FEED-N5",
    question="The users that the caller follows, so that the index finds their followers-only posts",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("searchPosts",),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
SEARCH_USERS = AccessPattern(
    id="FEED-N6",
    question="The users with some words in their names; the search index finds them",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=SHARED_MS,
    fields=("searchUsers",),
    key="PK = USER#<id>, SK = META",
)
INDEXED_POST = AccessPattern(
    id="FEED-P6",
    question="A post with its tags, for the search index",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND SK BETWEEN :first AND :last",
    # The read must include the change whose sequence number the entry gets.
    consistent=True,
)
SCAN_INDEXED = AccessPattern(
    id="FEED-P6",
    question="All posts with their tags and all users, to build the search index",
    table=FEED,
    operations=("Scan",),
    who=Who.INTERNAL,
    filter=("SK = :meta OR begins_with(SK, :tag)",),
    # The scan must include every change before the start of the build.
    consistent=True,
)

PATTERNS = (SEARCH_POSTS, SEARCH_FOLLOWED, SEARCH_USERS, INDEXED_POST, SCAN_INDEXED)
