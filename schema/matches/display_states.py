"""GraphQL types and fields of display states."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import display_states as patterns
from datastore.matches import display
from datastore.model.access_patterns import Extent
from resolvers.matches import display_states as resolve
from resolvers.matches import parts
from schema.fields import described, pattern_field
from schema.matches.scores import MatchPhase
from schema.nodes import Node, node_type, object_type, value_type


@object_type(id=parts.part_id("DisplayInnings"), description="The score of one innings in display form.")
class DisplayInnings:
    number: int = described("The number of the innings in the match, from 1.")
    score: str = described("The score: 120/3, 120 (all out), 320/7d (declared) or forfeited.")
    overs: str = described("The overs bowled: 15.4 means 15 overs and 4 balls.")
    super_over: bool = described("Whether the innings is a super over.", name="isSuperOver")


@object_type(id=parts.part_id("DisplaySide"), description="A team as a widget shows it.")
class DisplaySide:
    team_id: strawberry.ID = described("The `teamId` of the team.")
    name: str = described("The team's name.")
    code: str = described("The team's short name, such as MUM.")
    image_url: str | None = described("The address of the team's badge; null without one.")
    score: str | None = described("The score of all the team's innings, such as 245 & 120/3; null before the first.")
    overs: str | None = described("The overs of the team's latest innings; null before the first.")
    innings = strawberry.field(
        resolver=parts.innings_of_side,
        graphql_type=list[DisplayInnings],
        description="The team's innings: one or two, and super overs, in the order of play.",
    )
    batting: bool = described("Whether the team is batting.", name="isBatting")


@value_type(description="A batter at the crease.")
class DisplayBatter:
    name: str = described("The batter's name.")
    runs: int = described("The runs scored.")
    balls: int = described("The balls faced.")
    fours: int = described("The fours hit.")
    sixes: int = described("The sixes hit.")
    on_strike: bool = described("Whether the batter is on strike.", name="isOnStrike")
    figures: str = described("Runs and balls in display form: 34 (21).")


@value_type(description="The current bowler.")
class DisplayBowler:
    name: str = described("The bowler's name.")
    overs: str = described("The overs bowled: 3.4 means 3 overs and 4 balls.")
    maidens: int = described("The maiden overs.")
    runs: int = described("The runs conceded.")
    wickets: int = described("The wickets taken.")
    figures: str = described("Wickets, runs and overs in display form: 2/24 (3.4).")


@node_type(
    display.DisplayState,
    patterns.DISPLAY_STATE,
    parts=("match_id", "team_id"),
    read=lambda context, *key: context.display_states.by_id(*key),
    extent=Extent(reads=6),
    description="A match as a widget or Live Activity shows it, from the point of view of one team.",
)
class DisplayState(Node):
    match_id: strawberry.ID = described("The `matchId` of the match.")
    team_id: strawberry.ID = described("The `teamId` of the team whose point of view is shown.")
    version: int = described("The version of the live state that is shown. It never decreases.")
    phase: MatchPhase = described("The phase of the match.")
    status: str = described("The phase in words: 2nd Innings, Stumps Day 1.")
    headline: str = described("The score in short form: MUM 120/3 (15.4).")
    situation: str = described(
        "One line about the match from the team's point of view: the runs needed, the lead or the result."
    )
    team = strawberry.field(
        resolver=parts.side("team"), graphql_type=DisplaySide, description="The team whose point of view is shown."
    )
    opponent = strawberry.field(
        resolver=parts.side("opponent"), graphql_type=DisplaySide, description="The other team."
    )
    batting_team_id: strawberry.ID | None = described("The `teamId` of the batting team; null between innings.")
    batters: list[DisplayBatter] = described("The batters at the crease, usually two, in batting order.")
    bowler: DisplayBowler | None = described("The current bowler; null between innings.")
    recent: str = described("Up to twelve balls of the innings, the latest one last: 1 4 W . 6 2wd.")
    target: int | None = described("The runs that win the match; null before there is a target.", name="targetRuns")
    required_runs: int | None = described("The runs that a chasing team still needs; null otherwise.")
    balls_left: int | None = described(
        "The balls that remain for a chasing team; null otherwise, and if overs are not limited."
    )
    required_rate: float | None = described(
        "The runs per over that a chasing team needs; null otherwise. An over has the match's `ballsPerOver`."
    )
    run_rate: float | None = described(
        "The runs per over in the current innings so far; null before its first ball. An over has the match's "
        "`ballsPerOver`, while `Innings.runRate` is per six balls."
    )
    last_event: str | None = described("The latest event in words; null if the latest change had none.")
    league: str | None = described("The league's name; null if it is unknown.")
    start_time: datetime = described("The start time of the match.")
    updated_at: datetime = described("The time of the latest change of the match.")


@strawberry.type
class DisplayStateQueries:
    display_state = pattern_field(
        patterns.DISPLAY_STATE,
        resolver=resolve.display_state,
        graphql_type=DisplayState | None,
        # The reads of an uncached state: the match, its live state, both teams and the league.
        extent=Extent(reads=6),
        description="Return a match as a widget shows it, from the point of view of one team; null if the match "
        "is unknown. BAD_USER_INPUT if the team does not play in it. The result is cached: for one minute while the "
        "match is live, for ten minutes before it, and for a day after it.",
    )
