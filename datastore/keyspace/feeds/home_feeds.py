"""Home feeds: an entry for each post (fan-out on write), and a source for each author merged on read.

The posts of an author with too many followers have no entries. Such a post sorts by the key that its entry would have,
so that entries and merged posts form one list.
"""

import zlib

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.queues import OverflowPolicy

SHARDS = 16
SOURCE_PREFIX = "SOURCE#"
# Sorts before the times of all entries.
FIRST_POSITION = "0"


def feed(user_id: str) -> str:
    """Return the partition of a user's feed, in the table and in GSI3."""
    return join("FEED", user_id)


def shard(post_id: str, follower_id: str) -> str:
    """Return hash(post_id + follower_id) % N, which spreads concurrent writes over the key space."""
    return f"{zlib.crc32((post_id + follower_id).encode()) % SHARDS:02d}"


def entry(user_id: str, moment: str, post_id: str) -> Key:
    """Return the key of a post in a user's feed. `moment` is the time of the post in ISO 8601."""
    return Key(feed(user_id), join(moment, shard(post_id, user_id), "POST", post_id))


def entry_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the post id in an entry's sort key."""
    moment, _, _, post_id = split(sort)
    return moment, post_id


def source(user_id: str, author_id: str) -> Key:
    return Key(feed(user_id), join("SOURCE", author_id))


def source_parts(key: Key) -> tuple[str, str]:
    """Return the user and the author of a source's key."""
    return split(key.partition)[1], split(key.sort)[1]


HOME_FEED = AccessPattern(
    id="FEED-003",
    question="A user's home feed, newest first",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    # Sources sort after all entries: read newest first, the first page of a feed begins with them.
    key="GSI3PK = :partition",
    descending=True,
)
ENTRIES = AccessPattern(
    id="FEED-003",
    question="The entries of a home feed without its sources",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    # As text, a whole second sorts after its milliseconds: a page begins with the second of its cursor.
    key="GSI3PK = :partition AND GSI3SK BETWEEN :oldest AND :end",
    descending=True,
)
SOURCES = AccessPattern(
    id="FEED-003",
    question="The authors whose posts are merged into a home feed on read",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    key="GSI3PK = :partition AND begins_with(GSI3SK, :prefix)",
)
MERGED_POSTS = AccessPattern(
    id="FEED-003",
    question="The posts of a merged author since the user follows",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI1",
    key="GSI1PK = :partition AND GSI1SK BETWEEN :since AND :until",
    filter=("visibility <> :private",),
    descending=True,
)
HOME_FEED_UPDATED = AccessPattern(
    id="FEED-S1",
    question="Posts as they arrive in a user's home feed; its sources are read at the start",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeedUpdated",),
    key="PK = :partition AND begins_with(SK, :prefix)",
    # The read must include a source that was just added: no later change would announce it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)
FAN_OUT = AccessPattern(
    id="FEED-P4",
    question="Add a post or a merged author to followers' feeds, or remove it",
    table=FEED,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)
ENTRIES_BY_AUTHOR = AccessPattern(
    id="FEED-P4",
    question="The items of an author in a user's feed, to remove them",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND SK >= :since",
    filter=("author_id = :author",),
    consistent=True,
)

PATTERNS = (
    HOME_FEED,
    ENTRIES,
    SOURCES,
    MERGED_POSTS,
    HOME_FEED_UPDATED,
    FAN_OUT,
    ENTRIES_BY_AUTHOR,
)
