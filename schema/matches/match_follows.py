"""What the API says about follows of matches: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.matches import fixtures
from datastore.keyspace.matches import match_follows as patterns
from datastore.matches import match_follows as records
from datastore.model.access_patterns import Extent
from resolvers.matches import match_follows as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import VERSION, ask

if TYPE_CHECKING:
    from schema.matches.fixtures import Match

LazyMatch = Annotated["Match", strawberry.lazy("schema.matches.fixtures")]


@strawberry.type(description="A user follows a match: they hear of it until 48 hours after its start.")
class MatchFollow(Node):
    id = strawberry.field(resolver=nodes.match_follow_id, graphql_type=strawberry.ID, description="Globally unique.")
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    user_id: strawberry.ID = strawberry.field(description="Who follows it.")
    team_id: strawberry.ID = strawberry.field(description="The side they are for.")
    created_at: datetime = strawberry.field(description="Since when, whatever side they were for.")
    expires_at: datetime = strawberry.field(description="Until when: 48 hours after the start of the match.")
    version: int = strawberry.field(description=VERSION)
    match = ask(
        fixtures.FIXTURE, resolver=resolve.match, graphql_type=LazyMatch | None, description="The match as it is now."
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.MatchFollow)


@strawberry.type
class MatchFollowQueries:
    match_follow = ask(
        patterns.FOLLOW_OF_USER,
        resolver=resolve.match_follow,
        graphql_type=MatchFollow | None,
        description="The caller's follow of a match, or null.",
    )


@strawberry.type
class MatchFollowMutations:
    follow_match = ask(
        patterns.FOLLOW,
        resolver=resolve.follow_match,
        graphql_type=MatchFollow,
        description="Follow a match for one of its teams. Again, it changes the team and nothing else.",
    )
    unfollow_match = ask(
        patterns.UNFOLLOW,
        resolver=resolve.unfollow_match,
        graphql_type=MatchFollow | None,
        description="Stop following a match; answers what was, or null if it was not followed.",
    )
    update_match_follow = ask(
        patterns.CHANGE_TEAM,
        resolver=resolve.update_match_follow,
        graphql_type=MatchFollow,
        description="Follow the other team of a match that is followed.",
    )
    remove_match_follows = ask(
        patterns.REMOVE_FOLLOWS,
        resolver=resolve.remove_match_follows,
        graphql_type=int,
        extent=Extent(size=25, written=25),
        description="Remove all follows of a match, as the pipeline does when it is over; answers how many.",
    )
