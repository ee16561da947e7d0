"""What the API says about teams: the shape only."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import teams as patterns
from datastore.matches import teams as records
from datastore.model.access_patterns import Extent
from resolvers.matches import teams as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import VERSION, ask


@strawberry.type(description="A cricket team: a country's side or a club.")
class Team(Node):
    id = strawberry.field(resolver=nodes.team_id, graphql_type=strawberry.ID, description="Globally unique.")
    team_id: strawberry.ID = strawberry.field(description="Unique among teams: its id at the source.")
    name: str = strawberry.field(description="The full name.")
    code: str = strawberry.field(description="The short name, such as IND.")
    image_url: str | None = strawberry.field(description="Where its badge is.")
    country_id: strawberry.ID | None = strawberry.field(description="The source's id of its country.")
    national: bool = strawberry.field(description="Whether it is a country's side; else it is a club.")
    updated_at: datetime | None = strawberry.field(description="When it was last stored or changed.")
    version: int = strawberry.field(description=VERSION)

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Team)


@strawberry.type
class TeamQueries:
    team = ask(patterns.TEAM, resolver=resolve.team, graphql_type=Team | None, description="A team, or null.")
    teams = ask(
        patterns.ALL_TEAMS,
        resolver=resolve.teams,
        graphql_type=list[Team],
        extent=Extent(size=30),
        description="All teams by name. What other processes changed may show 30 seconds later.",
    )


@strawberry.type
class TeamMutations:
    sync_teams = ask(
        patterns.SYNC_TEAMS,
        resolver=resolve.sync_teams,
        graphql_type=list[Team],
        description="Store teams, each in place of the one with its id: the teams as they stand now. Of two with one "
        "id the last counts.",
    )
    update_team = ask(
        patterns.UPDATE_TEAM,
        resolver=resolve.update_team,
        graphql_type=Team,
        description="Change some fields of a team, until it is synced again: the team as it is then.",
    )
