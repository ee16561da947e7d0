"""What the API says about scores, scorecards, balls and events: the shape only."""

import strawberry

from datastore.keyspace.matches import teams as team_patterns
from datastore.matches import cricket
from resolvers.matches import scores as resolve
from schema.fields import ask
from schema.matches.teams import Team

MatchPhase = cricket.MatchPhase  # who takes it from here has it registered
strawberry.enum(
    MatchPhase,
    description=(
        "Where a match stands. BREAK: between innings, lunch, tea, dinner. STUMPS: over for the day. INTERRUPTED: by "
        "rain or anything else, or delayed. FINISHED, ABANDONED, CANCELLED and POSTPONED: nothing more will come."
    ),
)
strawberry.enum(
    cricket.ResultKind,
    description="How a match ended. AWARDED: decided off the field.",
)
strawberry.enum(
    cricket.BatterStatus,
    description=(
        "Where a batter stands in an innings. NOT_OUT: in when it closed. RETIRED: hurt or otherwise not out, and may "
        "come back. ABSENT: could not bat. YET_TO_BAT while it goes on, DID_NOT_BAT when it is over."
    ),
)
strawberry.enum(
    cricket.CricketEventKind,
    name="EventKind",
    description=(
        "What happened. MILESTONE: every further fifty of a batter, 150, 200 and so on. PARTNERSHIP: every fifty of a "
        "stand. RAIN: any interruption. CORRECTION: the scorer amended a ball, or took something back."
    ),
)


@strawberry.type(description="Runs that no batter made, by kind.")
class Extras:
    byes: int = strawberry.field(description="Run without a touch of the bat.")
    leg_byes: int = strawberry.field(description="Run off the batter's body.")
    wides: int = strawberry.field(description="Out of the batter's reach.")
    no_balls: int = strawberry.field(description="For illegal deliveries.")
    penalty: int = strawberry.field(description="Awarded by the umpire.")
    total: int = strawberry.field(description="All together.")


@strawberry.type(description="The total of one innings.")
class Innings:
    number: int = strawberry.field(description="Which innings of the match, from 1.")
    team_id: strawberry.ID = strawberry.field(description="The side that bats.")
    team = ask(
        team_patterns.TEAM,
        resolver=resolve.innings_team,
        by="team_id",
        graphql_type=Team | None,
        description="The side that bats.",
    )
    runs: int = strawberry.field(description="Runs, extras and penalties included.")
    wickets: int = strawberry.field(description="Wickets lost.")
    overs: str = strawberry.field(description="As cricket writes them: 15.4 is 15 overs and 4 balls.")
    legal_balls: int = strawberry.field(description="Balls without wides and no-balls.")
    extras: Extras = strawberry.field(description="Runs that no batter made.")
    declared: bool = strawberry.field(description="Whether the captain closed it.")
    forfeited: bool = strawberry.field(description="Whether it was given up before it began.")
    super_over: bool = strawberry.field(description="Whether it is a super over.")
    run_rate = strawberry.field(
        resolver=resolve.run_rate, graphql_type=float | None, description="Runs for six legal balls so far."
    )


@strawberry.type(description="A batter in a scorecard.")
class BattingLine:
    player_id: strawberry.ID = strawberry.field(description="Who.")
    name: str = strawberry.field(description="The batter's name.")
    position: int = strawberry.field(description="The place in the batting order, from 1.")
    runs: int = strawberry.field(description="Runs made.")
    balls: int = strawberry.field(description="Balls faced.")
    fours: int = strawberry.field(description="Fours hit.")
    sixes: int = strawberry.field(description="Sixes hit.")
    strike_rate = strawberry.field(
        resolver=resolve.strike_rate, graphql_type=float | None, description="Runs for a hundred balls."
    )
    status: cricket.BatterStatus = strawberry.field(description="In, out, or neither.")
    how_out: str | None = strawberry.field(description="The source's word for the dismissal: caught, run out.")
    dismissal: str | None = strawberry.field(description="The dismissal in a line: c Smith b Jones.")
    bowler_id: strawberry.ID | None = strawberry.field(description="The bowler who got the wicket.")
    fielders: list[str] = strawberry.field(description="The fielders who had a hand in it.")
    on_strike: bool = strawberry.field(description="Whether the next ball is to this batter.")


@strawberry.type(description="A bowler in a scorecard.")
class BowlingLine:
    player_id: strawberry.ID = strawberry.field(description="Who.")
    name: str = strawberry.field(description="The bowler's name.")
    overs: str = strawberry.field(description="Overs bowled: 3.4 is 3 overs and 4 balls.")
    maidens: int = strawberry.field(description="Overs without a run.")
    runs: int = strawberry.field(description="Runs conceded, wides and no-balls included.")
    wickets: int = strawberry.field(description="Wickets taken.")
    wides: int = strawberry.field(description="Runs from wides.")
    no_balls: int = strawberry.field(description="Runs from no-balls.")
    bowling: bool = strawberry.field(description="Whether this bowler bowls now.")


@strawberry.type(description="A wicket and the score at which it fell.")
class FallOfWicket:
    wicket: int = strawberry.field(description="Which wicket, from 1.")
    runs: int = strawberry.field(description="The score at that moment.")
    over: str = strawberry.field(description="The over and ball: 15.4.")
    player_id: strawberry.ID = strawberry.field(description="Who was out.")
    name: str = strawberry.field(description="The batter's name.")


@strawberry.type(description="The stand in progress.")
class Partnership:
    runs: int = strawberry.field(description="Runs since the last wicket, extras included.")
    balls: int = strawberry.field(description="Legal balls since then.")
    batter_ids: list[strawberry.ID] = strawberry.field(description="The two batters.")


@strawberry.type(description="The players' figures of one innings.")
class Scorecard:
    number: int = strawberry.field(description="Which innings of the match, from 1.")
    batting: list[BattingLine] = strawberry.field(description="The batters, in order.")
    bowling: list[BowlingLine] = strawberry.field(description="The bowlers, in order.")
    fall_of_wickets: list[FallOfWicket] = strawberry.field(description="When the wickets fell.")
    partnership: Partnership | None = strawberry.field(description="The stand in progress.")


@strawberry.type(description="A dismissal on a ball, or a batter who retires.")
class Wicket:
    player_id: strawberry.ID = strawberry.field(description="Who left.")
    name: str = strawberry.field(description="The batter's name.")
    kind: str = strawberry.field(description="The source's word: caught, run out, timed out.")
    fielders: list[str] = strawberry.field(description="The fielders who had a hand in it.")
    is_out: bool = strawberry.field(description="False for a batter who retired and may come back.")
    bowler_credited: bool = strawberry.field(description="Whether it counts for the bowler.")


@strawberry.type(description="One delivery.")
class Ball:
    ball_id: strawberry.ID = strawberry.field(description="Unique within the match; ids grow with time.")
    innings: int = strawberry.field(description="Which innings, from 1.")
    over: int = strawberry.field(description="Which over, from 0.")
    number: int = strawberry.field(
        description="Which ball of the over; a wide or no-ball has the number of the legal ball that follows it."
    )
    label: str = strawberry.field(description="Where in the innings: 15.4 is the fourth ball of the sixteenth over.")
    batter_id: strawberry.ID = strawberry.field(description="Who faced it.")
    batter: str = strawberry.field(description="The name of who faced it.")
    non_striker_id: strawberry.ID = strawberry.field(description="Who stood at the other end.")
    non_striker: str = strawberry.field(description="The name of who stood at the other end.")
    bowler_id: strawberry.ID = strawberry.field(description="Who bowled it.")
    bowler: str = strawberry.field(description="The name of who bowled it.")
    runs: int = strawberry.field(description="All runs of the ball, extras included.")
    batter_runs: int = strawberry.field(description="Runs off the bat.")
    extras: Extras = strawberry.field(description="The other runs.")
    legal: bool = strawberry.field(description="False for wides and no-balls.")
    four: bool = strawberry.field(description="Whether it went to the boundary for four.")
    six: bool = strawberry.field(description="Whether it went over the boundary for six.")
    wickets: list[Wicket] = strawberry.field(description="Dismissals on this ball.")


@strawberry.type(description="Something that happened in a match, with the score just after it.")
class CricketEvent:
    event_id: strawberry.ID = strawberry.field(
        description="The same however often the event is told: drop one you have."
    )
    kind: cricket.CricketEventKind = strawberry.field(description="What happened.")
    text: str = strawberry.field(description="The same in a line.")
    innings: int | None = strawberry.field(description="In which innings, from 1.")
    score: str | None = strawberry.field(description="The score just after it: 120/3.")
    ball: Ball | None = strawberry.field(description="On which ball.")
    player_id: strawberry.ID | None = strawberry.field(description="Whose event it is: the batter out, the bowler …")
    player: str | None = strawberry.field(description="That player's name.")
    value: int | None = strawberry.field(description="The milestone or the target.")
