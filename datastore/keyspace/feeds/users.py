"""Users of the feed: `USER#<id>` / `META`."""

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import CROWD_MS, AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import guard

META = "META"


def user(user_id: str) -> Key:
    return Key(join("USER", user_id), META)


def user_parts(key: Key) -> str:
    """The id of a user's key."""
    return split(key.partition)[1]


USER = AccessPattern(
    id="FEED-001",
    question="A user of the feed, with the counts of posts, followers and followed",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=CROWD_MS,
    fields=(
        "user",
        "Me.user",
        "Post.author",
        "Comment.author",
        "Like.user",
        "Follower.user",
        "Following.user",
        "FeedEntry.author",
        "Notification.actor",
        "AuthorRank.author",
        "node",
        "nodes",
    ),
    key="PK = USER#<id>, SK = META",
)
CREATE_USER = AccessPattern(
    id="FEED-W6",
    question="Enter the feed under a name; asked for again, it changes nothing",
    table=FEED,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createUser",),
    condition="attribute_not_exists(PK)",
)
UPDATE_USER = AccessPattern(
    id="FEED-W6",
    question="Change one's name, words or picture",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updateUser",),
    condition="attribute_exists(PK)",
    guard=guard(),
)
AUTHOR = AccessPattern(
    id="FEED-P4",
    question="Whether an author's posts go to the followers' feeds, or are merged when those are read",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = USER#<id>, SK = META",
    # An author who is being merged must not be taken for another.
    consistent=True,
)
BEGIN_MERGING = AccessPattern(
    id="FEED-P4",
    question="Note that an author has too many followers for a fan-out: from now on each gets a source",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND attribute_not_exists(merging_since)",
    update="SET merging_since = :now",
)
MERGE = AccessPattern(
    id="FEED-P4",
    question="Note that every follower of such an author has a source; no post of that moment or later has entries",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(merging_since) AND attribute_not_exists(merged_since)",
    update="SET merged_since = :since",
)

# What a transaction asks of a user whose counters it will change.
IS_THERE = "attribute_exists(PK)"

PATTERNS = (USER, CREATE_USER, UPDATE_USER, AUTHOR, BEGIN_MERGING, MERGE)
