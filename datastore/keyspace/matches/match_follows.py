"""The table `cricket-match-follows`: the matches that users follow, and the side that each prefers."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import BATCH_WRITE, QUERY, AccessPattern, Table, Who
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

MATCH_FOLLOWS = Table(name="cricket-match-follows", partition="matchId", sort="userId", ttl="expiresAt")


@item_key(MATCH_FOLLOWS)
def match_follow(match_id: str, user_id: str) -> KeyParts:
    return (match_id,), (user_id,)


FOLLOW_OF_USER = match_follow.read(
    "FOL-1",
    "Whether a user follows a match, and which side",
    Who.USER,
    ("matchFollow", "Match.followedByViewer", "node", "nodes"),
)
FOLLOWERS = match_follow.query("FOL-2", "All followers of a match", Who.SYSTEM, ("Match.follows",))
FOLLOW = AccessPattern(
    "FOL-3",
    "Follow a match until 48 hours after its start",
    MATCH_FOLLOWS,
    # The match is read first, for its start and its sides.
    ("GetItem", "UpdateItem"),
    Who.USER,
    ("followMatch",),
    # The sides are stored, so that FOL-5 can check a team without reading the match.
    update=(
        "SET teamId = :team, teamIds = :sides, expiresAt = :expires, createdAt = if_not_exists(createdAt, :createdAt), "
        f"{SET_NEXT_VERSION}"
    ),
)
UNFOLLOW = match_follow.delete("FOL-4", "Stop following a match", Who.USER, ("unfollowMatch",))
CHANGE_TEAM = match_follow.update(
    "FOL-5",
    "Change the side of a followed match",
    Who.USER,
    ("updateMatchFollow",),
    condition=("attribute_exists(matchId) AND (attribute_not_exists(teamIds) OR contains(teamIds, :team))"),
    guard=version_guard(),
    update=f"SET teamId = :team {increment_clause()}",
)
REMOVE_FOLLOWS = AccessPattern(
    "FOL-6",
    "Remove all follows of a match",
    MATCH_FOLLOWS,
    QUERY + BATCH_WRITE,
    Who.SYSTEM,
    ("deleteMatchFollows",),
    key="matchId = :partition",
    sees_expired=True,
    # The read must include a follow that was just created.
    consistent=True,
)
