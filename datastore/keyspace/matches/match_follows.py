"""The table `cricket-match-follows`: the matches that users follow, and the side that each prefers."""

from datastore.model.access_patterns import AccessPattern, Table, Who
from datastore.model.composite_keys import Key
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

MATCH_FOLLOWS = Table(
    name="cricket-match-follows",
    partition="matchId",
    sort="userId",
    ttl="expiresAt",
    item_bytes=250,
)


def match_follow(match_id: str, user_id: str) -> Key:
    return Key(match_id, user_id)


FOLLOW_OF_USER = AccessPattern(
    id="FOL-1",
    question="Whether a user follows a match, and which side",
    table=MATCH_FOLLOWS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("matchFollow", "Match.isFollowed", "node", "nodes"),
    key="matchId = <matchId>, userId = <userId>",
)
FOLLOWERS = AccessPattern(
    id="FOL-2",
    question="All followers of a match",
    table=MATCH_FOLLOWS,
    operations=("Query",),
    who=Who.SYSTEM,
    fields=("Match.followers",),
    key="matchId = :partition",
    filter=("expiresAt > :now",),
)
FOLLOW = AccessPattern(
    id="FOL-3",
    question="Follow a match until 48 hours after its start",
    table=MATCH_FOLLOWS,
    # The match is read first, for its start and its sides.
    operations=("GetItem", "UpdateItem"),
    who=Who.USER,
    fields=("followMatch",),
    # The sides are stored, so that FOL-5 can check a team without reading the match.
    update=(
        "SET teamId = :team, teamIds = :sides, expiresAt = :expires, createdAt = if_not_exists(createdAt, :createdAt), "
        f"{SET_NEXT_VERSION}"
    ),
)
UNFOLLOW = AccessPattern(
    id="FOL-4",
    question="Stop following a match",
    table=MATCH_FOLLOWS,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("unfollowMatch",),
)
CHANGE_TEAM = AccessPattern(
    id="FOL-5",
    question="Change the side of a followed match",
    table=MATCH_FOLLOWS,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updateMatchFollow",),
    condition=(
        "attribute_exists(matchId) AND expiresAt > :now AND (attribute_not_exists(teamIds) OR contains(teamIds, :team))"
    ),
    guard=version_guard(),
    update=f"SET teamId = :team {increment_clause()}",
)
REMOVE_FOLLOWS = AccessPattern(
    id="FOL-6",
    question="Remove all follows of a match",
    table=MATCH_FOLLOWS,
    operations=("Query", "BatchWriteItem"),
    who=Who.SYSTEM,
    fields=("removeMatchFollows",),
    key="matchId = :partition",
    # The read must include a follow that was just created.
    consistent=True,
)

PATTERNS = (FOLLOW_OF_USER, FOLLOWERS, FOLLOW, UNFOLLOW, CHANGE_TEAM, REMOVE_FOLLOWS)
