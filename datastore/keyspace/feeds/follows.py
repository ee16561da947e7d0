"""Follows: an edge item in the followee's partition (GSI_FOL lists it), and a following item in the follower's.

Other programs write edges alone, and the pipeline adds the following item. Its attribute `edge` is the edge's sort key
if that has another time format than this gateway's. `more_edges` marks that further edges exist. An edge that has a
following item has `since`.
"""

from datetime import datetime

from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso

FOLLOWER_PREFIX = "FOLLOWER#"
FOLLOWING_PREFIX = "FOLLOWING#"


def followee(user_id: str) -> str:
    """Return the partition of a user's followers, in the table and in GSI_FOL."""
    return join("FOLLOWEE", user_id)


def edge(followee_id: str, follower_id: str, since: datetime) -> Key:
    return Key(followee(followee_id), join("FOLLOWER", follower_id, iso(since)))


def edges_prefix(follower_id: str) -> str:
    """Return the prefix of the sort keys of a follower's edges to one user."""
    return f"{join('FOLLOWER', follower_id)}#"


def edge_parts(sort: str) -> tuple[str, str]:
    """Return the follower and the time (ISO 8601) in an edge's sort key."""
    _, follower_id, moment = split(sort)
    return follower_id, moment


def edge_position(since: datetime, follower_id: str) -> str:
    """Return the sort key of an edge in GSI_FOL."""
    return join(iso(since), "FOLLOWER", follower_id)


def follower(user_id: str) -> str:
    """Return the partition of the users that a user follows."""
    return join("USER", user_id)


def following(follower_id: str, followee_id: str) -> Key:
    return Key(follower(follower_id), join("FOLLOWING", followee_id))


FOLLOWERS = AccessPattern(
    id="FEED-008",
    question="The followers of a user, newest first",
    table=FEED,
    operations=("Query",),
    who=Who.ANY,
    fields=("followers", "User.followers"),
    index="GSI_FOL",
    key="GSI_FOLPK = :partition",
    descending=True,
)
FOLLOWED = AccessPattern(
    id="FEED-008",
    question="The users that a user follows, ordered by id",
    table=FEED,
    operations=("Query",),
    who=Who.ANY,
    fields=("User.following",),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
FOLLOWING = AccessPattern(
    id="FEED-N3",
    question="Whether the caller follows a user",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("User.followedByViewer",),
    key="PK = USER#<follower>, SK = FOLLOWING#<followee>",
)
FOLLOW = AccessPattern(
    id="FEED-W4",
    question="Follow a user; a repeat changes nothing",
    table=FEED,
    # Both users and an existing follow are read first. An edge that another program wrote
    # stays unchanged.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("follow",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
UNFOLLOW = AccessPattern(
    id="FEED-W4",
    question="Stop following a user; a repeat changes nothing",
    table=FEED,
    # The time of the follow, which is part of the edge's key, is read first.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Delete",),
    who=Who.USER,
    fields=("unfollow",),
    condition="since = :since",
    consistent=True,
)
EDGES_OF_FOLLOWER = AccessPattern(
    id="FEED-W4",
    question="The edges of a follower to a user that other programs wrote without a following item",
    table=FEED,
    operations=("Query",),
    who=Who.USER,
    fields=("follow", "unfollow"),
    key="PK = :partition AND begins_with(SK, :prefix)",
    consistent=True,
)
ADOPT_EDGE = AccessPattern(
    id="FEED-P8",
    question="Write the following item of an edge that another program wrote",
    table=FEED,
    operations=("TransactWriteItems",),
    transacts=("Put", "Update"),
    who=Who.INTERNAL,
    condition="attribute_not_exists(SK)",
)
MARK_MORE_EDGES = AccessPattern(
    id="FEED-P8",
    question="Mark that a follower has several edges to a user, so that all are deleted with the follow",
    table=FEED,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(SK)",
    update="SET more_edges = :yes",
)
DELETE_FOLLOWING = AccessPattern(
    id="FEED-P8",
    question="Delete the following item of a follow whose edge another program deleted",
    table=FEED,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
    condition="since = :since",
)
SCAN_EDGES = AccessPattern(
    id="FEED-P8",
    question="All edges that other programs wrote, to add the missing following items",
    table=FEED,
    operations=("Scan",),
    who=Who.INTERNAL,
    # This gateway's edges have `since`, and so have edges of other programs with a following item.
    filter=("begins_with(SK, :prefix) AND attribute_not_exists(since)",),
    consistent=True,
)
EDGES = AccessPattern(
    id="FEED-P4",
    question="All followers of an author, for the fan-out on write",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND begins_with(SK, :prefix)",
    # The feed of a follower that the read misses would miss a post.
    consistent=True,
)
RECHECK_EDGES = AccessPattern(
    id="FEED-P4",
    question="Which followers of a page still follow, after their feeds were written",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND SK BETWEEN :first AND :last",
    consistent=True,
)
FOLLOW_EXISTS = AccessPattern(
    id="FEED-P4",
    question="Whether a follow that was added or removed still exists",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = USER#<follower>, SK = FOLLOWING#<followee>",
    consistent=True,
)

PATTERNS = (
    FOLLOWERS,
    FOLLOWED,
    FOLLOWING,
    FOLLOW,
    UNFOLLOW,
    EDGES_OF_FOLLOWER,
    ADOPT_EDGE,
    MARK_MORE_EDGES,
    DELETE_FOLLOWING,
    SCAN_EDGES,
    EDGES,
    RECHECK_EDGES,
    FOLLOW_EXISTS,
)
