"""Home feeds: an entry for each post of a followed author, and a source for each author who is merged when it is read.

An entry that was never written, because its author has too many followers, has the key it would have had: so entries
and the posts of sources make one list.
"""

import zlib

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.queues import OverflowPolicy

SHARDS = 16
SOURCE_PREFIX = "SOURCE#"
# Before all moments of a feed, which begin with digits.
FIRST_POSITION = "0"


def feed(user_id: str) -> str:
    """The partition of a user's feed, in the table and in GSI3."""
    return join("FEED", user_id)


def shard(post_id: str, follower_id: str) -> str:
    """hash(post_id + follower_id) % N: spreads what is written at one moment over the key space."""
    return f"{zlib.crc32((post_id + follower_id).encode()) % SHARDS:02d}"


def entry(user_id: str, moment: str, post_id: str) -> Key:
    """Return the key of a post in a user's feed. `moment` is the time of the post in ISO 8601."""
    return Key(feed(user_id), join(moment, shard(post_id, user_id), "POST", post_id))


def entry_parts(sort: str) -> tuple[str, str]:
    """Moment (ISO 8601) and post id of an entry's place in its feed."""
    moment, _, _, post_id = split(sort)
    return moment, post_id


def source(user_id: str, author_id: str) -> Key:
    return Key(feed(user_id), join("SOURCE", author_id))


def source_parts(key: Key) -> tuple[str, str]:
    """User and author of a source's key."""
    return split(key.partition)[1], split(key.sort)[1]


HOME_FEED = AccessPattern(
    id="FEED-003",
    question="A user's home feed, newest first",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    # Sources sort behind all entries: read newest first, a feed's first page begins with them.
    key="GSI3PK = :partition",
    descending=True,
)
ENTRIES = AccessPattern(
    id="FEED-003",
    question="The entries of a home feed alone",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    # Within a second, whole seconds sort as text behind milliseconds: a page begins with its cursor's second.
    key="GSI3PK = :partition AND GSI3SK BETWEEN :oldest AND :end",
    descending=True,
)
SOURCES = AccessPattern(
    id="FEED-003",
    question="The authors whose posts are merged into a home feed when it is read",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("homeFeed",),
    index="GSI3",
    key="GSI3PK = :partition AND begins_with(GSI3SK, :prefix)",
)
MERGED_POSTS = AccessPattern(
    id="FEED-003",
    question="The posts of such an author since the user follows",
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
    # A source added just before must be among them: no later change would tell of it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)
FAN_OUT = AccessPattern(
    id="FEED-P4",
    question="Put a post or an author into followers' feeds, or take it out",
    table=FEED,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)
ENTRIES_BY_AUTHOR = AccessPattern(
    id="FEED-P4",
    question="What an author has in a user's feed, to take it out",
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
