"""Home feeds: an entry for each post (fan-out on write), and a source for each author merged on read.

The posts of an author with too many followers have no entries. Such a post sorts by the key that its entry would have,
so that entries and merged posts form one list.
"""

import zlib

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.posts import post_by_author
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import BATCH_WRITE, AccessPattern, Who
from datastore.model.composite_keys import Key, split
from datastore.queues import OverflowPolicy

SHARDS = 16
# Sorts before the times of all entries.
FIRST_POSITION = "0"


def _entry(user_id: str, moment: str, shard: str, post_id: str) -> KeyParts:
    return ("FEED", user_id), (moment, shard, "POST", post_id)


def _source(user_id: str, author_id: str) -> KeyParts:
    return ("FEED", user_id), ("SOURCE", author_id)


#: The form of entries. `moment` is the time of the post in ISO 8601.
entry, indexed_entry = item_key(FEED)(_entry), item_key(FEED, index="GSI3")(_entry)
source, indexed_source = item_key(FEED)(_source), item_key(FEED, index="GSI3")(_source)


def entry_parts(sort: str) -> tuple[str, str]:
    """Return the time (ISO 8601) and the post id in an entry's sort key."""
    moment, _, _, post_id = split(sort)
    return moment, post_id


def entry_of(user_id: str, moment: str, post_id: str) -> Key:
    """Return the key of a post in a user's feed."""
    return entry(user_id, moment, shard(post_id, user_id), post_id)


def shard(post_id: str, follower_id: str) -> str:
    """Return hash(post_id + follower_id) % N, which spreads concurrent writes over the key space."""
    return f"{zlib.crc32((post_id + follower_id).encode()) % SHARDS:02d}"


# Sources sort after all entries: read newest first, the first page of a feed begins with them.
HOME_FEED = indexed_entry.query(
    "FEED-003", "A user's home feed, newest first", Who.USER, ("homeFeed", "Me.homeFeed"), descending=True
)
ENTRIES = indexed_entry.query(
    "FEED-003",
    "The entries of a home feed without its sources",
    Who.USER,
    ("homeFeed", "Me.homeFeed"),
    # As text, a whole second sorts after its milliseconds: a page begins with the second of its cursor.
    key="GSI3PK = :partition AND GSI3SK BETWEEN :oldest AND :end",
    descending=True,
)
SOURCES = indexed_source.query(
    "FEED-003", "The authors whose posts are merged into a home feed on read", Who.USER, ("homeFeed", "Me.homeFeed")
)
MERGED_POSTS = post_by_author.query(
    "FEED-003",
    "The posts of a merged author since the user follows",
    Who.USER,
    ("homeFeed", "Me.homeFeed"),
    key="GSI1PK = :partition AND GSI1SK BETWEEN :since AND :until",
    filter=("visibility <> :private",),
    descending=True,
)
HOME_FEED_UPDATED = source.query(
    "FEED-S1",
    "Posts as they arrive in a user's home feed; its sources are read at the start",
    Who.USER,
    ("homeFeedUpdated",),
    # The read must include a source that was just added: no later change would announce it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)
FAN_OUT = AccessPattern("FEED-P4", "Add a post or a merged author to followers' feeds, or remove it", FEED, BATCH_WRITE)
ENTRIES_BY_AUTHOR = entry.query(
    "FEED-P4",
    "The items of an author in a user's feed, to remove them",
    key="PK = :partition AND SK >= :since",
    filter=("author_id = :author",),
    consistent=True,
)
