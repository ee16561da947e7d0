"""Search: what is read of the table `feed` to show results, and to keep the index."""

from datastore.declarations import CROWD_MS, AccessPattern, Who
from datastore.keyspace.feeds.table import FEED

# Of a post's items: META and what sorts behind it, its tags. Comments and likes sort before them.
FIRST_INDEXED, LAST_INDEXED = "META", "TAG$"

SEARCH_POSTS = AccessPattern(
    id="FEED-N5",
    question="The posts that hold some words or tags and that the caller may see; the search index finds them",
    table=FEED,
    # For posts shown to followers only: whether a signed-in caller is one.
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=CROWD_MS,
    fields=("searchPosts",),
    key="PK = POST#<id>, SK = META",
    # The cursor of a page that was cut off tells of a post that the caller may not see.
    personal=True,
)
SEARCH_FOLLOWED = AccessPattern(
    id="FEED-N5",
    question="Whom the caller follows, so that the index names posts for their followers and no others",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("searchPosts",),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
SEARCH_USERS = AccessPattern(
    id="FEED-N6",
    question="The users whose names hold some words; the search index finds them",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=CROWD_MS,
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
    # What is read under a change's sequence number must hold that change.
    consistent=True,
)
SCAN_INDEXED = AccessPattern(
    id="FEED-P6",
    question="All posts with their tags and all users, to build the search index",
    table=FEED,
    operations=("Scan",),
    who=Who.INTERNAL,
    filter=("SK = :meta OR begins_with(SK, :tag)",),
    # A change that was applied before the build began must be found.
    consistent=True,
)

PATTERNS = (SEARCH_POSTS, SEARCH_FOLLOWED, SEARCH_USERS, INDEXED_POST, SCAN_INDEXED)
