"""GraphQL types and fields of teams."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import teams as patterns
from datastore.matches import teams as records
from datastore.model.access_patterns import Extent
from resolvers.matches import nodes
from resolvers.matches import teams as resolve
from schema.connections import Node, is_record, node_id
from schema.fields import VERSION, pattern_field


@strawberry.type(description="A cricket team: a country's side or a club.")
class Team(Node):
    id = node_id(nodes.team_id)
    team_id: strawberry.ID = strawberry.field(description="The team's id at the source, unique among teams.")
    name: str = strawberry.field(description="The full name.")
    code: str = strawberry.field(description="The short name, such as IND.")
    image_url: str | None = strawberry.field(description="The address of the team's badge; null without one.")
    country_id: strawberry.ID | None = strawberry.field(
        description="The country's id at the source; null if it is unknown."
    )
    national: bool = strawberry.field(description="Whether the team is a country's side; otherwise it is a club.")
    updated_at: datetime | None = strawberry.field(description="The time at which the team was last stored or changed.")
    version: int = strawberry.field(description=VERSION)

    is_type_of = is_record(records.Team)


@strawberry.type
class TeamQueries:
    team = pattern_field(
        patterns.TEAM,
        resolver=resolve.team,
        graphql_type=Team | None,
        description="Return a team; null if it is unknown.",
    )
    teams = pattern_field(
        patterns.ALL_TEAMS,
        resolver=resolve.teams,
        graphql_type=list[Team],
        extent=Extent(size=30),
        description="Return all teams, by name. Changes by other processes may appear up to 30 seconds later.",
    )


@strawberry.type
class TeamMutations:
    sync_teams = pattern_field(
        patterns.SYNC_TEAMS,
        resolver=resolve.sync_teams,
        graphql_type=list[Team],
        description="Store teams, each in place of the stored team with the same id, and return them. If several "
        "have the same id, the last one counts.",
    )
    update_team = pattern_field(
        patterns.UPDATE_TEAM,
        resolver=resolve.update_team,
        graphql_type=Team,
        description="Change some fields of a team, and return it. The next `syncTeams` overwrites the changes.",
    )
