"""GraphQL types and fields of follows of matches."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import match_follows as patterns
from datastore.matches import match_follows as records
from datastore.model.access_patterns import Extent
from resolvers.matches import match_follows as resolve
from schema.fields import VERSION, described, pattern_field
from schema.matches.lazy_types import match_field
from schema.nodes import Node, node_type


@node_type(
    records.MatchFollow,
    patterns.FOLLOW_OF_USER,
    parts=("match_id", "user_id"),
    owner="user_id",
    read=lambda context, *key: context.match_follows.by_key(*key),
    description="A user's follow of a match. The user receives notifications until 48 hours after the start of the "
    "match.",
)
class MatchFollow(Node):
    match_id: strawberry.ID = described("The `matchId` of the match.")
    user_id: strawberry.ID = described("The id of the user.")
    team_id: strawberry.ID = described("The `teamId` of the team that the user supports.")
    created_at: datetime = described("The time at which the follow began. A change of the team does not change it.")
    expires_at: datetime = described("The time at which the follow expires: 48 hours after the start of the match.")
    version: int = described(VERSION)
    match = match_field("The match in its present state; null if it is unknown.")


@strawberry.type
class MatchFollowQueries:
    match_follow = pattern_field(
        patterns.FOLLOW_OF_USER,
        resolver=resolve.match_follow,
        graphql_type=MatchFollow | None,
        description="Return the caller's follow of a match; null if there is none.",
    )


@strawberry.type
class MatchFollowMutations:
    follow_match = pattern_field(
        patterns.FOLLOW,
        resolver=resolve.follow_match,
        graphql_type=MatchFollow,
        description="Follow a match for one of its teams, and return the follow. A repeated request changes the "
        "team and nothing else. NOT_FOUND for an unknown match, BAD_USER_INPUT if the team does not play in it.",
    )
    unfollow_match = pattern_field(
        patterns.UNFOLLOW,
        resolver=resolve.unfollow_match,
        graphql_type=MatchFollow | None,
        description="Unfollow a match. Return the follow as it was, or null if there was none.",
    )
    update_match_follow = pattern_field(
        patterns.CHANGE_TEAM,
        resolver=resolve.update_match_follow,
        graphql_type=MatchFollow,
        description="Change the team of the caller's follow of a match, and return the follow. NOT_FOUND if the caller "
        "does not follow the match, BAD_USER_INPUT if the team does not play in it.",
    )
    delete_match_follows = pattern_field(
        patterns.REMOVE_FOLLOWS,
        resolver=resolve.delete_match_follows,
        graphql_type=int,
        extent=Extent(size=25, written=25),
        description="Delete all follows of a match, such as one that has ended, and return their number.",
    )
