"""GraphQL types and fields of teams."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import teams as patterns
from datastore.matches import teams as records
from datastore.model.access_patterns import Extent
from resolvers.matches import teams as resolve
from schema.connections import Connection
from schema.fields import VERSION, batch_field, described, pattern_field
from schema.nodes import Node, node_type


@node_type(
    records.Team,
    patterns.TEAM,
    parts=("team_id",),
    read=lambda context, *key: context.teams.by_id(*key),
    description="A cricket team: a country's side or a club.",
)
class Team(Node):
    team_id: strawberry.ID = described("The team's id at the source, unique among teams.")
    name: str = described("The full name.")
    code: str = described("The short name, such as IND.")
    image_url: str | None = described("The address of the team's badge; null without one.")
    country_id: strawberry.ID | None = described("The country's id at the source; null if it is unknown.")
    national: bool = described("Whether the team is a country's side; otherwise it is a club.")
    updated_at: datetime | None = described(
        "The time at which the team was last stored or changed; null if it is unknown."
    )
    version: int = described(VERSION)


def team_field(key: str, description: str) -> Any:
    """Return a field of the team whose id is the attribute `key` of the parent."""
    return batch_field(
        patterns.TEAM,
        resolver=resolve.teams_by_id,
        depends_on=key,
        graphql_type=Team | None,
        description=f"{description}; null if it is unknown.",
    )


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
        graphql_type=Connection[Team],
        extent=Extent(scans=100),
        description="Return all teams, by `name`. A change becomes visible at most 30 seconds later.",
    )


@strawberry.type
class TeamMutations:
    sync_teams = pattern_field(
        patterns.SYNC_TEAMS,
        resolver=resolve.sync_teams,
        graphql_type=list[Team],
        description="Store teams, each in place of the stored team with the same id, and return them in the order of "
        "the input, at most 100. If several have the same id, the last one counts.",
    )
    update_team = pattern_field(
        patterns.UPDATE_TEAM,
        resolver=resolve.update_team,
        graphql_type=Team,
        description="Change some fields of a team, and return it. The next `syncTeams` overwrites the changes. "
        "NOT_FOUND for an unknown team.",
    )
