"""GraphQL types and fields of display states."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import display_states as patterns
from datastore.matches import display
from datastore.model.access_patterns import Extent
from resolvers.matches import display_states as resolve
from resolvers.matches import nodes
from schema.connections import Node, is_record, node_id
from schema.fields import pattern_field
from schema.matches.scores import MatchPhase


@strawberry.type(description="The score of one innings in display form.")
class DisplayInnings:
    number: int = strawberry.field(description="The number of the innings in the match, from 1.")
    score: str = strawberry.field(description="The score: 120/3, 120 (all out) or 320/7d (declared).")
    overs: str = strawberry.field(description="The overs bowled: 15.4 means 15 overs and 4 balls.")
    super_over: bool = strawberry.field(description="Whether the innings is a super over.")


@strawberry.type(description="A team as a widget shows it.")
class DisplaySide:
    team_id: strawberry.ID = strawberry.field(description="The `teamId` of the team.")
    name: str = strawberry.field(description="The team's name.")
    code: str = strawberry.field(description="The team's short name, such as MUM.")
    image_url: str | None = strawberry.field(description="The address of the team's badge; null without one.")
    score: str | None = strawberry.field(
        description="The score of all the team's innings, such as 245 & 120/3; null before the first."
    )
    overs: str | None = strawberry.field(description="The overs of the team's latest innings; null before the first.")
    innings: list[DisplayInnings] = strawberry.field(description="The team's innings.")
    batting: bool = strawberry.field(description="Whether the team is batting.")


@strawberry.type(description="A batter at the crease.")
class DisplayBatter:
    name: str = strawberry.field(description="The batter's name.")
    runs: int = strawberry.field(description="The runs scored.")
    balls: int = strawberry.field(description="The balls faced.")
    fours: int = strawberry.field(description="The fours hit.")
    sixes: int = strawberry.field(description="The sixes hit.")
    on_strike: bool = strawberry.field(description="Whether the batter is on strike.")
    figures: str = strawberry.field(description="Runs and balls in display form: 34 (21).")


@strawberry.type(description="The current bowler.")
class DisplayBowler:
    name: str = strawberry.field(description="The bowler's name.")
    overs: str = strawberry.field(description="The overs bowled: 3.4 means 3 overs and 4 balls.")
    maidens: int = strawberry.field(description="The maiden overs.")
    runs: int = strawberry.field(description="The runs conceded.")
    wickets: int = strawberry.field(description="The wickets taken.")
    figures: str = strawberry.field(description="Wickets, runs and overs in display form: 2/24 (3.4).")


@strawberry.type(description="A match as a widget or Live Activity shows it, from the point of view of one team.")
class DisplayState(Node):
    id = node_id(nodes.display_state_id)
    match_id: strawberry.ID = strawberry.field(description="The `matchId` of the match.")
    team_id: strawberry.ID = strawberry.field(description="The `teamId` of the team whose point of view is shown.")
    version: int = strawberry.field(description="The version of the live state that is shown. It never decreases.")
    phase: MatchPhase = strawberry.field(description="The phase of the match.")
    status: str = strawberry.field(description="The phase in words: 2nd Innings, Stumps Day 1.")
    headline: str = strawberry.field(description="The score in short form: MUM 120/3 (15.4).")
    situation: str = strawberry.field(
        description="One line about the match from the team's point of view: the runs needed, the lead or the result."
    )
    team: DisplaySide = strawberry.field(description="The team whose point of view is shown.")
    opponent: DisplaySide = strawberry.field(description="The other team.")
    batting_team_id: strawberry.ID | None = strawberry.field(
        description="The `teamId` of the batting team; null between innings."
    )
    batters: list[DisplayBatter] = strawberry.field(description="The batters at the crease, in batting order.")
    bowler: DisplayBowler | None = strawberry.field(description="The current bowler.")
    recent: str = strawberry.field(description="Up to twelve balls of the innings, the latest one last: 1 4 W . 6 2wd.")
    target: int | None = strawberry.field(description="The runs that win the match; null before there is a target.")
    required_runs: int | None = strawberry.field(
        description="The runs that a chasing team still needs; null otherwise."
    )
    balls_left: int | None = strawberry.field(
        description="The balls that remain for a chasing team; null otherwise, and if overs are not limited."
    )
    required_rate: float | None = strawberry.field(
        description="The runs per over that a chasing team needs; null otherwise."
    )
    run_rate: float | None = strawberry.field(description="The runs per over in the current innings so far.")
    last_event: str | None = strawberry.field(
        description="The latest event in words; null if the latest change had none."
    )
    league: str | None = strawberry.field(description="The league's name.")
    start_time: datetime = strawberry.field(description="The start time of the match.")
    updated_at: datetime = strawberry.field(description="The time of the latest change of the match.")

    is_type_of = is_record(display.DisplayState)


@strawberry.type
class DisplayStateQueries:
    display_state = pattern_field(
        patterns.DISPLAY_STATE,
        resolver=resolve.display_state,
        graphql_type=DisplayState | None,
        # The reads of an uncached state: the match, its live state, both teams and the league.
        extent=Extent(reads=6),
        description="Return a match as a widget shows it, from the point of view of one team; null if the match "
        "is unknown. The result is cached: for one minute while the match is live, for ten minutes before it, and "
        "for a day after it.",
    )
