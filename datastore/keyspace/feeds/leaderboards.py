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

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Table, Who
from datastore.model.composite_keys import Key, join, split

FEED_METRICS = Table(name="feed-metrics", partition="PK", sort="SK", ttl="expiresAt", item_bytes=1000)

SHARDS = 8
BOARD = "BOARD"
AUTHORS, TAGS = "AUTHORS", "TAGS"
MEMBER = {AUTHORS: "AUTHOR", TAGS: "TAG"}


def shard(name: str) -> str:
    return f"{zlib.crc32(name.encode()) % SHARDS}"


def counters(kind: str, period: str, name: str) -> Key:
    """Return the key of the counters of an author or tag (`kind` is AUTHORS or TAGS) in a period."""
    return Key(join(kind, period, shard(name)), join(MEMBER[kind], name))


def counter_parts(key: Key) -> tuple[str, str, str]:
    """Return the kind, period and name in the key of a counter item."""
    kind, period, _ = split(key.partition)
    return kind, period, split(key.sort)[1]


def counter_partitions(kind: str, period: str) -> list[str]:
    """Return the partitions that hold all counters of a period."""
    return [join(kind, period, str(number)) for number in range(SHARDS)]


def board(kind: str, period: str) -> Key:
    return Key(join(kind, period), BOARD)


TOP_AUTHORS = AccessPattern(
    id="FEED-010",
    question="The authors with the most posts, likes and comments in a month",
    table=FEED_METRICS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=30,
    shared_ms=SHARED_MS,
    fields=("topAuthors",),
    key="PK = AUTHORS#<month>, SK = BOARD",
)
TRENDING_TAGS = AccessPattern(
    id="FEED-010",
    question="The tags with the most posts in an hour or a day",
    table=FEED_METRICS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=30,
    shared_ms=SHARED_MS,
    fields=("trendingTags",),
    key="PK = TAGS#<hour or day>, SK = BOARD",
)
COUNTERS = AccessPattern(
    id="FEED-P5",
    question="The counters of an author or tag, for the leaderboard",
    table=FEED_METRICS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = <kind>#<period>#<shard>, SK = <member>#<name>",
    consistent=True,
)
ALL_COUNTERS = AccessPattern(
    id="FEED-P5",
    question="All counters of a period, to rebuild its leaderboard",
    table=FEED_METRICS,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    consistent=True,
)
PUT_BOARD = AccessPattern(
    id="FEED-P5",
    question="Replace a leaderboard snapshot that has not changed since it was read",
    table=FEED_METRICS,
    operations=("GetItem", "BatchGetItem", "PutItem"),
    who=Who.INTERNAL,
    key="PK = <kind>#<period>, SK = BOARD",
    condition="attribute_not_exists(PK) OR #version = :version",
    consistent=True,
)

PATTERNS = (TOP_AUTHORS, TRENDING_TAGS, COUNTERS, ALL_COUNTERS, PUT_BOARD)
