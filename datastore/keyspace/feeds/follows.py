"""Who follows whom: an edge for the followed (newest first in GSI_FOL), and a point for the follower."""

from datetime import datetime

from datastore.declarations import AccessPattern, Who
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.parts import Key, join, split
from datastore.moments import iso

FOLLOWER_PREFIX = "FOLLOWER#"
FOLLOWING_PREFIX = "FOLLOWING#"


def followee(user_id: str) -> str:
    """The partition of a user's followers, in the table and in GSI_FOL."""
    return join("FOLLOWEE", user_id)


def edge(followee_id: str, follower_id: str, since: datetime) -> Key:
    return Key(followee(followee_id), join("FOLLOWER", follower_id, iso(since)))


def edge_parts(sort: str) -> tuple[str, str]:
    """Follower and moment (ISO 8601) of an edge's place among those that lead to a user."""
    _, follower_id, moment = split(sort)
    return follower_id, moment


def edge_position(since: datetime, follower_id: str) -> str:
    """The sort key in GSI_FOL."""
    return join(iso(since), "FOLLOWER", follower_id)


def follower(user_id: str) -> str:
    """The partition of those a user follows."""
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
    question="Whom a user follows, by id",
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
    # That both users are there, and whether the one follows already, is read before.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Put",),
    who=Who.USER,
    fields=("follow",),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
UNFOLLOW = AccessPattern(
    id="FEED-W4",
    question="Follow a user no longer; a repeat changes nothing",
    table=FEED,
    # The moment of the follow, which is a part of the edge's key, is read before.
    operations=("GetItem", "BatchGetItem", "TransactWriteItems"),
    transacts=("Delete",),
    who=Who.USER,
    fields=("unfollow",),
    condition="since = :since",
    consistent=True,
)
EDGES = AccessPattern(
    id="FEED-P4",
    question="All followers of an author, for the fan-out",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND begins_with(SK, :prefix)",
    # A follower that is missed here is one whose feed misses a post.
    consistent=True,
)
EDGES_AGAIN = AccessPattern(
    id="FEED-P4",
    question="Who of a page of followers follows still, once their feeds were written",
    table=FEED,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition AND SK BETWEEN :first AND :last",
    consistent=True,
)
FOLLOWING_NOW = AccessPattern(
    id="FEED-P4",
    question="Whether a follow that was made or taken back stands",
    table=FEED,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = USER#<follower>, SK = FOLLOWING#<followee>",
    consistent=True,
)

PATTERNS = (FOLLOWERS, FOLLOWED, FOLLOWING, FOLLOW, UNFOLLOW, EDGES, EDGES_AGAIN, FOLLOWING_NOW)
