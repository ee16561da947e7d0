"""Matches as widgets show them: DSC-1."""

from typing import Annotated

import strawberry

from datastore.matches.cricket import Match
from datastore.matches.display import DisplayState
from resolvers.matches import ids
from resolvers.shared.arguments import MatchId, argument
from resolvers.shared.context import Info

TeamId = Annotated[
    strawberry.ID,
    argument("The `teamId` or `id` of the team whose point of view is shown. The team must play in the match."),
]


async def display_state(info: Info, match_id: MatchId, team_id: TeamId) -> DisplayState | None:
    return await info.context.display_states.by_id(ids.match_id("matchId", match_id), ids.team_id("teamId", team_id))


async def of_match(parent: strawberry.Parent[Match], info: Info, team_id: TeamId) -> DisplayState:
    return await info.context.display_states.of_match(parent, ids.team_id("teamId", team_id))
