"""What the API says about display states: the shape only."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import display_states as patterns
from datastore.matches import display
from datastore.model.access_patterns import Extent
from resolvers.matches import display_states as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import ask
from schema.matches.scores import MatchPhase


@strawberry.type(description="One innings in a word.")
class DisplayInnings:
    number: int = strawberry.field(description="Which innings of the match, from 1.")
    score: str = strawberry.field(description="120/3, or 120 (all out), or 320/7d (declared).")
    overs: str = strawberry.field(description="15.4 is 15 overs and 4 balls.")
    super_over: bool = strawberry.field(description="Whether it is a super over.")


@strawberry.type(description="A team's line on a widget.")
class DisplaySide:
    team_id: strawberry.ID = strawberry.field(description="Which team.")
    name: str = strawberry.field(description="The team's name.")
    code: str = strawberry.field(description="The team's short name: MUM.")
    image_url: str | None = strawberry.field(description="The team's picture.")
    score: str | None = strawberry.field(
        description="The score of all its innings: 245 & 120/3. Null before the first."
    )
    overs: str | None = strawberry.field(description="The overs of its last innings.")
    innings: list[DisplayInnings] = strawberry.field(description="Each of its innings.")
    batting: bool = strawberry.field(description="Whether it bats now.")


@strawberry.type(description="A batter at the crease.")
class DisplayBatter:
    name: str = strawberry.field(description="The batter's name.")
    runs: int = strawberry.field(description="Runs made.")
    balls: int = strawberry.field(description="Balls faced.")
    fours: int = strawberry.field(description="Fours hit.")
    sixes: int = strawberry.field(description="Sixes hit.")
    on_strike: bool = strawberry.field(description="Whether the next ball is to this batter.")
    figures: str = strawberry.field(description="Runs and balls: 34 (21).")


@strawberry.type(description="Who bowls.")
class DisplayBowler:
    name: str = strawberry.field(description="The bowler's name.")
    overs: str = strawberry.field(description="Overs bowled: 3.4 is 3 overs and 4 balls.")
    maidens: int = strawberry.field(description="Overs without a run.")
    runs: int = strawberry.field(description="Runs conceded.")
    wickets: int = strawberry.field(description="Wickets taken.")
    figures: str = strawberry.field(description="Wickets, runs and overs: 2/24 (3.4).")


@strawberry.type(description="What a widget or a Live Activity shows of a match, from one team's side.")
class DisplayState(Node):
    id = strawberry.field(resolver=nodes.display_state_id, graphql_type=strawberry.ID, description="Globally unique.")
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    team_id: strawberry.ID = strawberry.field(description="From whose side.")
    version: int = strawberry.field(description="The version of the live state that is shown; it never goes back.")
    phase: MatchPhase = strawberry.field(description="Where the match stands.")
    status: str = strawberry.field(description="The same in words: 2nd Innings, Stumps Day 1.")
    headline: str = strawberry.field(description="The score in a few words: MUM 120/3 (15.4).")
    situation: str = strawberry.field(
        description="The match in a line from the team's side: what is needed, the lead, the result."
    )
    team: DisplaySide = strawberry.field(description="The team whose side it is.")
    opponent: DisplaySide = strawberry.field(description="The other team.")
    batting_team_id: strawberry.ID | None = strawberry.field(description="Who bats; null between innings.")
    batters: list[DisplayBatter] = strawberry.field(description="Those at the crease, in batting order.")
    bowler: DisplayBowler | None = strawberry.field(description="Who bowls.")
    recent: str = strawberry.field(
        description="Up to twelve last balls of the innings, the latest last: 1 4 W . 6 2wd."
    )
    target: int | None = strawberry.field(description="The runs that win.")
    required_runs: int | None = strawberry.field(description="The runs still needed in a chase.")
    balls_left: int | None = strawberry.field(description="The balls left for them, if overs are limited.")
    required_rate: float | None = strawberry.field(description="Runs an over that are needed.")
    run_rate: float | None = strawberry.field(description="Runs an over in this innings so far.")
    last_event: str | None = strawberry.field(description="What happened last, if the last change brought an event.")
    league: str | None = strawberry.field(description="The league's name.")
    start_time: datetime = strawberry.field(description="When the match starts.")
    updated_at: datetime = strawberry.field(description="When the match last changed.")

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, display.DisplayState)


@strawberry.type
class DisplayStateQueries:
    display_state = ask(
        patterns.DISPLAY_STATE,
        resolver=resolve.display_state,
        graphql_type=DisplayState | None,
        # Of one that is not kept: the match, its live state, both teams and the league.
        extent=Extent(reads=6),
        description="What a widget shows of a match from one team's side; null for an unknown match. It is kept: a "
        "minute while the match is live, ten before it, a day after.",
    )
