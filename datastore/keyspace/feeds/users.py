"""Users of the feed: `USER#<id>` / `META`."""

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import SHARED_MS, AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import version_guard

META = "META"


def user(user_id: str) -> Key:
    return Key(join("USER", user_id), META)


def user_parts(key: Key) -> str:
    """Return the user id in a user's key."""
    return split(key.partition)[1]


USER = AccessPattern(
    id="FEED-001",
    question="A user of the feed, with the counts of posts, followers and followed users",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    shared_ms=SHARED_MS,
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
    question="Create the caller's user; a repeat changes nothing",
    table=FEED,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createUser",),
    condition="attribute_not_exists(PK)",
)
UPDATE_USER = AccessPattern(
    id="FEED-W6",
    question="Change the caller's name, bio or picture",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updateUser",),
    condition="attribute_exists(PK)",
    guard=version_guard(),
)
AUTHOR = AccessPattern(
    id="FEED-P4",
    question="Whether an author's posts are fanned out on write or merged on read",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = USER#<id>, SK = META",
    # The read must find that the author was just switched to merging.
    consistent=True,
)
START_MERGING = AccessPattern(
    id="FEED-P4",
    question="Start to merge an author's posts on read: from now on each follower gets a source",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND attribute_not_exists(merging_since)",
    update="SET merging_since = :now",
)
COMPLETE_MERGING = AccessPattern(
    id="FEED-P4",
    question="Mark that every follower of an author has a source; posts since then have no entries",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(merging_since) AND attribute_not_exists(merged_since)",
    update="SET merged_since = :since",
)

# The condition of transactions that change a user's counters.
USER_EXISTS = "attribute_exists(PK)"

PATTERNS = (USER, CREATE_USER, UPDATE_USER, AUTHOR, START_MERGING, COMPLETE_MERGING)
