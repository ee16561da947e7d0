"""Follows: an edge item in the followee's partition (GSI_FOL lists it), and a following item in the follower's.

Other programs write edges alone, and the pipeline adds the following item. Its attribute `edge` is the edge's sort key
if that has another time format than this gateway's. `more_edges` marks that further edges exist. An edge that has a
following item has `since`.
"""

from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import GET, SCAN, TRANSACT, AccessPattern, Who
from datastore.model.composite_keys import join


@item_key(FEED)
def edge(followee_id: str, follower_id: str, since: datetime) -> KeyParts:
    return ("FOLLOWEE", followee_id), ("FOLLOWER", follower_id, since)


@item_key(FEED, index="GSI_FOL")
def edge_by_time(followee_id: str, since: datetime, follower_id: str) -> KeyParts:
    return ("FOLLOWEE", followee_id), (since, "FOLLOWER", follower_id)


def edges_prefix(follower_id: str) -> str:
    """Return the prefix of the sort keys of a follower's edges to one user."""
    return f"{join('FOLLOWER', follower_id)}#"


@item_key(FEED)
def following(follower_id: str, followee_id: str) -> KeyParts:
    return ("USER", follower_id), ("FOLLOWING", followee_id)


FOLLOWERS = edge_by_time.query(
    "FEED-008", "The followers of a user, newest first", Who.ANY, ("followers", "User.followers"), descending=True
)
FOLLOWED = following.query(
    "FEED-008", "The users that a user follows, ordered by id", Who.ANY, ("following", "User.following")
)
FOLLOWING = following.read("FEED-N3", "Whether the caller follows a user", Who.USER, ("User.followedByViewer",))
FOLLOW = AccessPattern(
    "FEED-W4",
    "Follow a user; a repeat changes nothing",
    FEED,
    # Both users and an existing follow are read first. An edge that another program wrote
    # stays unchanged.
    GET + TRANSACT,
    Who.USER,
    ("follow",),
    transacts=("Put", "Update"),
    condition="attribute_not_exists(SK)",
    consistent=True,
)
UNFOLLOW = AccessPattern(
    "FEED-W4",
    "Stop following a user; a repeat changes nothing",
    FEED,
    # The time of the follow, which is part of the edge's key, is read first.
    GET + TRANSACT,
    Who.USER,
    ("unfollow",),
    transacts=("Delete",),
    condition="since = :since",
    consistent=True,
)
EDGES_OF_FOLLOWER = edge.query(
    "FEED-W4",
    "The edges of a follower to a user that other programs wrote without a following item",
    Who.USER,
    ("follow", "unfollow"),
    consistent=True,
)
ADOPT_EDGE = AccessPattern(
    "FEED-P8",
    "Write the following item of an edge that another program wrote",
    FEED,
    TRANSACT,
    transacts=("Put", "Update"),
    condition="attribute_not_exists(SK)",
)
MARK_MORE_EDGES = following.update(
    "FEED-P8",
    "Mark that a follower has several edges to a user, so that all are deleted with the follow",
    condition="attribute_exists(SK)",
    update="SET more_edges = :yes",
)
DELETE_FOLLOWING = following.delete(
    "FEED-P8", "Delete the following item of a follow whose edge another program deleted", condition="since = :since"
)
SCAN_EDGES = AccessPattern(
    "FEED-P8",
    "All edges that other programs wrote, to add the missing following items",
    FEED,
    SCAN,
    # This gateway's edges have `since`, and so have edges of other programs with a following item.
    filter=("begins_with(SK, :prefix) AND attribute_not_exists(since)",),
    consistent=True,
)
# The feed of a follower that the read misses would miss a post.
EDGES = edge.query("FEED-P4", "All followers of an author, for the fan-out on write", consistent=True)
RECHECK_EDGES = edge.query(
    "FEED-P4",
    "Which followers of a page still follow, after their feeds were written",
    key="PK = :partition AND SK BETWEEN :first AND :last",
    consistent=True,
)
FOLLOW_EXISTS = following.read("FEED-P4", "Whether a follow that was added or removed still exists", consistent=True)
