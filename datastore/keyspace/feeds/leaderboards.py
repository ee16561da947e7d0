"""The table `feed-metrics`: engagement counters by period, and the leaderboard snapshots computed from them.

The counters of a period are spread over partitions by the author or tag. Its board is one item. A month is `2026-06`,
an hour `2026-06-25T14`, a day `2026-06-25`, all in UTC.

| item | key |
|---|---|
| author's month | `AUTHORS#<month>#<shard>` / `AUTHOR#<author>` |
| tag's hour or day | `TAGS#<window>#<shard>` / `TAG#<tag>` |
| board of a month | `AUTHORS#<month>` / `BOARD` |
| board of an hour or day | `TAGS#<window>` / `BOARD` |
"""

import zlib

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import GET, PUT, SHARED_MS, AccessPattern, Expiry, Table, Who
from datastore.model.composite_keys import Key

FEED_METRICS = Table(
    name="feed-metrics", partition="PK", sort="SK", ttl="expiresAt", expiry=Expiry.NEVER, item_bytes=1000
)

SHARDS = 8
BOARD = "BOARD"
AUTHORS, TAGS = "AUTHORS", "TAGS"
MEMBER = {AUTHORS: "AUTHOR", TAGS: "TAG"}


@item_key(FEED_METRICS)
def counters(kind: str, period: str, shard: str, member: str, name: str) -> KeyParts:
    return (kind, period, shard), (member, name)


@item_key(FEED_METRICS)
def board(kind: str, period: str) -> KeyParts:
    return (kind, period), (BOARD,)


def counters_of(kind: str, period: str, name: str) -> Key:
    """Return the key of the counters of an author or tag (`kind` is AUTHORS or TAGS) in a period."""
    return counters(kind, period, str(zlib.crc32(name.encode()) % SHARDS), MEMBER[kind], name)


TOP_AUTHORS = board.read(
    "FEED-010",
    "The authors with the most posts, likes and comments in a month",
    Who.ANY,
    ("topAuthors",),
    max_age=30,
    shared_ms=SHARED_MS,
    key="PK = AUTHORS#<month>, SK = BOARD",
    expiry=Expiry.SOMETIMES,
)
TRENDING_TAGS = board.read(
    "FEED-010",
    "The tags with the most posts in an hour or a day",
    Who.ANY,
    ("trendingTags",),
    max_age=30,
    shared_ms=SHARED_MS,
    key="PK = TAGS#<hour or day>, SK = BOARD",
    expiry=Expiry.SOMETIMES,
)
COUNTERS = counters.read("FEED-P5", "The counters of an author or tag, for the leaderboard", consistent=True)
ALL_COUNTERS = counters.query("FEED-P5", "All counters of a period, to rebuild its leaderboard", consistent=True)
PUT_BOARD = AccessPattern(
    "FEED-P5",
    "Replace a leaderboard snapshot that has not changed since it was read",
    FEED_METRICS,
    GET + PUT,
    key=board.documented,
    condition="attribute_not_exists(PK) OR #version = :version",
    consistent=True,
)
