"""GraphQL types and fields of scores, scorecards, balls and events."""

import strawberry

from datastore.keyspace.matches import teams as team_patterns
from datastore.matches import cricket
from resolvers.matches import scores as resolve
from schema.fields import pattern_field
from schema.matches.teams import Team

MatchPhase = cricket.MatchPhase  # import the enum from this module, which registers it
strawberry.enum(
    MatchPhase,
    description=(
        "The phase of a match. BREAK: between innings, lunch, tea or dinner. STUMPS: play has ended for "
        "the day. INTERRUPTED: by rain or another cause, or delayed. FINISHED, ABANDONED, CANCELLED and "
        "POSTPONED: no more play follows."
    ),
)
strawberry.enum(
    cricket.ResultKind,
    description="The kind of result. AWARDED: decided off the field.",
)
strawberry.enum(
    cricket.BatterStatus,
    description=(
        "The status of a batter in an innings. NOT_OUT: in when the innings closed. RETIRED: hurt or "
        "otherwise not out, and may return. ABSENT: could not bat. YET_TO_BAT: has not batted so far. DID_NOT_BAT: "
        "did not bat until the innings closed."
    ),
)
strawberry.enum(
    cricket.CricketEventKind,
    name="EventKind",
    description=(
        "The kind of event. MILESTONE: every further fifty of a batter, 150, 200 and so on. "
        "PARTNERSHIP: every fifty of a partnership. RAIN: any interruption. CORRECTION: the scorer amended or "
        "removed a ball."
    ),
)


@strawberry.type(description="Extras by kind: runs that no batter scored.")
class Extras:
    byes: int = strawberry.field(description="The byes: runs after the ball touched neither bat nor batter.")
    leg_byes: int = strawberry.field(description="The leg byes: runs after the ball touched the batter's body.")
    wides: int = strawberry.field(description="The runs from wides.")
    no_balls: int = strawberry.field(description="The runs from no-balls.")
    penalty: int = strawberry.field(description="The penalty runs.")
    total: int = strawberry.field(description="The sum of all extras.")


@strawberry.type(description="The total of one innings.")
class Innings:
    number: int = strawberry.field(description="The number of the innings in the match, from 1.")
    team_id: strawberry.ID = strawberry.field(description="The `teamId` of the batting side.")
    team = pattern_field(
        team_patterns.TEAM,
        resolver=resolve.innings_team,
        depends_on="team_id",
        graphql_type=Team | None,
        description="The batting side; null if it is unknown.",
    )
    runs: int = strawberry.field(description="The runs, including extras and penalties.")
    wickets: int = strawberry.field(description="The wickets lost.")
    overs: str = strawberry.field(description="The overs bowled: 15.4 means 15 overs and 4 balls.")
    legal_balls: int = strawberry.field(description="The legal balls: balls other than wides and no-balls.")
    extras: Extras = strawberry.field(description="The extras.")
    declared: bool = strawberry.field(description="Whether the captain declared the innings.")
    forfeited: bool = strawberry.field(description="Whether the captain forfeited the innings.")
    super_over: bool = strawberry.field(description="Whether the innings is a super over.")
    run_rate = strawberry.field(
        resolver=resolve.run_rate,
        graphql_type=float | None,
        description="The runs per six legal balls so far; null before the first ball.",
    )


@strawberry.type(description="A batter's line in a scorecard.")
class BattingLine:
    player_id: strawberry.ID = strawberry.field(description="The player's id at the source.")
    name: str = strawberry.field(description="The batter's name.")
    position: int = strawberry.field(description="The position in the batting order, from 1.")
    runs: int = strawberry.field(description="The runs scored.")
    balls: int = strawberry.field(description="The balls faced.")
    fours: int = strawberry.field(description="The fours hit.")
    sixes: int = strawberry.field(description="The sixes hit.")
    strike_rate = strawberry.field(
        resolver=resolve.strike_rate,
        graphql_type=float | None,
        description="The runs per hundred balls; null before the first ball.",
    )
    status: cricket.BatterStatus = strawberry.field(description="The status of the batter.")
    how_out: str | None = strawberry.field(
        description="The kind of dismissal in the source's words, such as caught or run out; null if the batter is "
        "not out."
    )
    dismissal: str | None = strawberry.field(
        description="The dismissal in one line: c Smith b Jones; null if the batter is not out."
    )
    bowler_id: strawberry.ID | None = strawberry.field(
        description="The id of the bowler who took the wicket; null if there is none."
    )
    fielders: list[str] = strawberry.field(description="The names of the fielders who took part in the dismissal.")
    on_strike: bool = strawberry.field(description="Whether the batter is on strike.")


@strawberry.type(description="A bowler's line in a scorecard.")
class BowlingLine:
    player_id: strawberry.ID = strawberry.field(description="The player's id at the source.")
    name: str = strawberry.field(description="The bowler's name.")
    overs: str = strawberry.field(description="The overs bowled: 3.4 means 3 overs and 4 balls.")
    maidens: int = strawberry.field(description="The maiden overs.")
    runs: int = strawberry.field(description="The runs conceded, including wides and no-balls.")
    wickets: int = strawberry.field(description="The wickets taken.")
    wides: int = strawberry.field(description="The runs from wides.")
    no_balls: int = strawberry.field(description="The runs from no-balls.")
    bowling: bool = strawberry.field(description="Whether the bowler is bowling.")


@strawberry.type(description="A fall of a wicket, with the score at that moment.")
class FallOfWicket:
    wicket: int = strawberry.field(description="The number of the wicket, from 1.")
    runs: int = strawberry.field(description="The runs of the innings at that moment.")
    over: str = strawberry.field(description="The over and ball: 15.4 is the fourth ball of the sixteenth over.")
    player_id: strawberry.ID = strawberry.field(description="The id of the batter who was out.")
    name: str = strawberry.field(description="The batter's name.")


@strawberry.type(description="The partnership of two batters since the last wicket.")
class Partnership:
    runs: int = strawberry.field(description="The runs since the last wicket, including extras.")
    balls: int = strawberry.field(description="The legal balls since the last wicket.")
    batter_ids: list[strawberry.ID] = strawberry.field(description="The ids of the two batters.")


@strawberry.type(description="The players' figures of one innings.")
class Scorecard:
    number: int = strawberry.field(description="The number of the innings in the match, from 1.")
    batting: list[BattingLine] = strawberry.field(description="The batters, in batting order.")
    bowling: list[BowlingLine] = strawberry.field(description="The bowlers, in the order of their first overs.")
    fall_of_wickets: list[FallOfWicket] = strawberry.field(description="The falls of the wickets, in order.")
    partnership: Partnership | None = strawberry.field(description="The current partnership; null if there is none.")


@strawberry.type(description="A dismissal, or a batter's retirement, on a ball.")
class Wicket:
    player_id: strawberry.ID = strawberry.field(description="The id of the batter.")
    name: str = strawberry.field(description="The batter's name.")
    kind: str = strawberry.field(
        description="The kind of dismissal in the source's words, such as caught, run out or timed out."
    )
    fielders: list[str] = strawberry.field(description="The names of the fielders who took part in the dismissal.")
    is_out: bool = strawberry.field(
        description="Whether the batter is out. False for a batter who retired and may return."
    )
    bowler_credited: bool = strawberry.field(description="Whether the wicket is credited to the bowler.")


@strawberry.type(description="One delivery.")
class Ball:
    ball_id: strawberry.ID = strawberry.field(description="The ball's id, unique within the match. Ids grow with time.")
    innings: int = strawberry.field(description="The number of the innings, from 1.")
    over: int = strawberry.field(description="The number of the over, from 0.")
    number: int = strawberry.field(
        description="The number of the ball in the over. A wide or no-ball has the number of the next legal ball."
    )
    label: str = strawberry.field(
        description="The position in the innings: 15.4 is the fourth ball of the sixteenth over."
    )
    batter_id: strawberry.ID = strawberry.field(description="The id of the batter on strike.")
    batter: str = strawberry.field(description="The name of the batter on strike.")
    non_striker_id: strawberry.ID = strawberry.field(description="The id of the batter at the other end.")
    non_striker: str = strawberry.field(description="The name of the batter at the other end.")
    bowler_id: strawberry.ID = strawberry.field(description="The id of the bowler.")
    bowler: str = strawberry.field(description="The name of the bowler.")
    runs: int = strawberry.field(description="The runs of the ball, including extras.")
    batter_runs: int = strawberry.field(description="The runs scored with the bat.")
    extras: Extras = strawberry.field(description="The extras of the ball.")
    legal: bool = strawberry.field(description="Whether the ball is legal: neither a wide nor a no-ball.")
    four: bool = strawberry.field(description="Whether the ball went to the boundary for four.")
    six: bool = strawberry.field(description="Whether the ball went over the boundary for six.")
    wickets: list[Wicket] = strawberry.field(description="The dismissals on this ball.")


@strawberry.type(description="An event of a match, with the score after it.")
class CricketEvent:
    event_id: strawberry.ID = strawberry.field(
        description="The id of the event. An event that is sent twice has the same id; drop the second one."
    )
    kind: cricket.CricketEventKind = strawberry.field(description="The kind of event.")
    text: str = strawberry.field(description="The event in one line.")
    innings: int | None = strawberry.field(
        description="The number of the innings, from 1; null if the event belongs to none."
    )
    score: str | None = strawberry.field(description="The score after the event: 120/3.")
    ball: Ball | None = strawberry.field(description="The ball of the event; null if there is none.")
    player_id: strawberry.ID | None = strawberry.field(
        description="The id of the player concerned, such as the batter who is out; null if there is none."
    )
    player: str | None = strawberry.field(description="The name of that player.")
    value: int | None = strawberry.field(description="The milestone or the target; null for other events.")
