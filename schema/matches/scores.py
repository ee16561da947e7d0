"""GraphQL types and fields of scores, scorecards, balls and events."""

from typing import Any

import strawberry

from datastore.matches import cricket, cricket_events
from resolvers.matches import parts
from resolvers.matches import scores as resolve
from schema.fields import described
from schema.matches.teams import team_field
from schema.nodes import object_type, value_type

MatchPhase = cricket.MatchPhase  # import the enum from this module, which registers it
strawberry.enum(
    MatchPhase,
    description=(
        "The phase of a match. UPCOMING: before its start. LIVE: in play. BREAK: between innings, lunch, tea or "
        "dinner. STUMPS: play has ended for the day. INTERRUPTED: by rain or another cause, or delayed. FINISHED, "
        "ABANDONED, CANCELLED and POSTPONED: the match does not go on as scheduled. UNKNOWN: the "
        "gateway does not know the source's word for the status, which may be new."
    ),
)
strawberry.enum(
    cricket.ResultKind,
    description=(
        "The kind of result. WIN: by runs, wickets or an innings, or after a tie. TIE: equal scores at the end of the "
        "last innings. DRAW: the last innings was not completed in time. NO_RESULT: too little play for a result. "
        "AWARDED: decided off the field."
    ),
)
strawberry.enum(
    cricket.BatterStatus,
    description=(
        "The status of a batter in an innings. YET_TO_BAT: has not batted so far. BATTING: at the crease. NOT_OUT: in "
        "when the innings closed. OUT: dismissed. RETIRED: hurt or otherwise not out, and may return. ABSENT: could "
        "not bat. DID_NOT_BAT: did not bat until the innings closed."
    ),
)
strawberry.enum(
    cricket_events.CricketEventKind,
    description=(
        "The kind of event of a match. INNINGS_START: the first ball of an innings. WICKET: a batter is out. FOUR and "
        "SIX: a boundary. FIFTY and HUNDRED: a batter reaches 50 or 100 runs. MILESTONE: a batter reaches 150, 200 or "
        "a further multiple of 50. HAT_TRICK: a bowler takes wickets with three balls in a row. MAIDEN: an over in "
        "which the bowler concedes no run. PARTNERSHIP: a partnership reaches a multiple of 50. INNINGS_BREAK: the end "
        "of an innings that another follows. TARGET: the target is set or revised. SUPER_OVER: super overs begin. "
        "RAIN: play is interrupted, by rain or another cause. RESUMPTION: play resumes. RESULT: the match has a "
        "result. CORRECTION: the scorer amended or removed a ball, an innings, another figure or the result."
    ),
)


@value_type(description="Extras by kind: runs that no batter scored.")
class Extras:
    byes: int = described("The byes: runs after the ball touched neither bat nor batter.")
    leg_byes: int = described("The leg byes: runs after the ball touched the batter's body.")
    wides: int = described("The runs from wides.")
    no_balls: int = described("The runs from no-balls.")
    penalty: int = described("The penalty runs.")
    total: int = described("The sum of all extras.")


@object_type(id=parts.part_id("Innings"), description="The total of one innings.")
class Innings:
    number: int = described("The number of the innings in the match, from 1.")
    team_id: strawberry.ID = described("The `teamId` of the batting side.")
    team = team_field("team_id", "The batting side")
    runs: int = described("The runs, including extras and penalties.")
    wickets: int = described("The wickets lost.")
    overs: str = described("The overs bowled: 15.4 means 15 overs and 4 balls.")
    legal_balls: int = described("The legal balls: balls other than wides and no-balls.")
    extras: Extras = described("The extras.")
    declared: bool = described("Whether the captain declared the innings.")
    forfeited: bool = described("Whether the captain forfeited the innings.")
    super_over: bool = described("Whether the innings is a super over.", name="isSuperOver")
    run_rate = strawberry.field(
        resolver=resolve.run_rate,
        graphql_type=float | None,
        description="The runs per six legal balls so far, whatever the `ballsPerOver` of the match; null before the "
        "first legal ball.",
    )


def innings_field(description: str) -> Any:
    """Return the field of the innings of a match or of its live score."""
    return strawberry.field(
        resolver=parts.innings,
        graphql_type=list[Innings],
        description=f"{description} At most four plus super overs, in the order of play.",
    )


@object_type(id=parts.part_id("BattingLine"), description="A batter's line in a scorecard.")
class BattingLine:
    player_id: strawberry.ID = described("The player's id at the source.")
    name: str = described("The batter's name.")
    position: int = described("The position in the batting order, from 1.")
    runs: int = described("The runs scored.")
    balls: int = described("The balls faced.")
    fours: int = described("The fours hit.")
    sixes: int = described("The sixes hit.")
    strike_rate = strawberry.field(
        resolver=resolve.strike_rate,
        graphql_type=float | None,
        description="The runs per hundred balls; null before the first ball.",
    )
    status: cricket.BatterStatus = described("The status of the batter.")
    how_out: str | None = described(
        "The type of dismissal in the source's words, such as caught or run out; null if the batter is not out.",
        name="dismissalType",
    )
    dismissal: str | None = described("The dismissal in one line: c Smith b Jones; null if the batter is not out.")
    bowler_id: strawberry.ID | None = described(
        "The `playerId` of the bowler who took the wicket; null if there is none."
    )
    fielders: list[str] = described(
        "The names of the fielders who took part in the dismissal, at most 11, in the source's order."
    )
    on_strike: bool = described("Whether the batter is on strike.", name="isOnStrike")


@object_type(id=parts.part_id("BowlingLine"), description="A bowler's line in a scorecard.")
class BowlingLine:
    player_id: strawberry.ID = described("The player's id at the source.")
    name: str = described("The bowler's name.")
    overs: str = described("The overs bowled: 3.4 means 3 overs and 4 balls.")
    maidens: int = described("The maiden overs.")
    runs: int = described("The runs conceded, including wides and no-balls.")
    wickets: int = described("The wickets taken.")
    wides: int = described("The runs from wides.")
    no_balls: int = described("The runs from no-balls.")
    bowling: bool = described("Whether the bowler is bowling at present.", name="isBowling")


@object_type(id=parts.part_id("FallOfWicket"), description="A fall of a wicket, with the score at that moment.")
class FallOfWicket:
    wicket: int = described("The number of the wicket in the innings, from 1.", name="wicketNumber")
    runs: int = described("The runs of the innings at that moment.")
    over: str = described(
        "The position of the ball in the innings: 15.4 is the fourth ball of the sixteenth over.", name="ballLabel"
    )
    player_id: strawberry.ID = described("The `playerId` of the batter who was out.")
    name: str = described("The batter's name.")


@value_type(description="The partnership of two batters since the last wicket.")
class Partnership:
    runs: int = described("The runs since the last wicket, including extras.")
    balls: int = described("The legal balls since the last wicket.")
    batter_ids: list[strawberry.ID] = described("The `playerId` of each of the two batters, in no order.")


@object_type(id=parts.part_id("Scorecard"), description="The players' figures of one innings.")
class Scorecard:
    number: int = described("The number of the innings in the match, from 1.", name="inningsNumber")
    batting = strawberry.field(
        resolver=parts.batting,
        graphql_type=list[BattingLine],
        description="The batters, in batting order: at most 11, and substitutes.",
    )
    bowling = strawberry.field(
        resolver=parts.bowling,
        graphql_type=list[BowlingLine],
        description="The bowlers, in the order of their first overs: at most 11, and substitutes.",
    )
    fall_of_wickets = strawberry.field(
        resolver=parts.fall_of_wickets,
        graphql_type=list[FallOfWicket],
        description="The falls of the wickets, in the order of the game: one for each wicket.",
    )
    partnership: Partnership | None = described("The current partnership; null if there is none.")


@value_type(description="A dismissal, or a batter's retirement, on a ball.")
class Wicket:
    player_id: strawberry.ID = described("The `playerId` of the batter.")
    name: str = described("The batter's name.")
    kind: str = described(
        "The type of dismissal in the source's words, such as caught, run out or timed out.", name="type"
    )
    fielders: list[str] = described(
        "The names of the fielders who took part in the dismissal, at most 11, in the source's order."
    )
    is_out: bool = described("Whether the batter is out. False for a batter who retired and may return.")
    bowler_credited: bool = described("Whether the wicket is credited to the bowler.")


def known_field(name: str, description: str, kind: Any = str) -> Any:
    """Return a field of a ball that the source may not state."""
    return strawberry.field(resolver=resolve.known_text(name), graphql_type=kind | None, description=description)


@object_type(id=parts.part_id("Ball"), description="One delivery.")
class Ball:
    ball_id: strawberry.ID = described("The ball's id, unique within the match. Ids grow with time.")
    innings: int = described("The number of the innings in the match, from 1.", name="inningsNumber")
    over: int = described("The number of the over in the innings, from 0.", name="overNumber")
    number: int = described(
        "The number of the ball in the over. A wide or no-ball has the number of the next legal ball."
    )
    label: str = described("The position in the innings: 15.4 is the fourth ball of the sixteenth over.")
    batter_id: strawberry.ID = described("The `playerId` of the batter on strike.")
    batter: str = described("The name of the batter on strike.")
    non_striker_id = known_field(
        "non_striker_id", "The `playerId` of the batter at the other end; null if it is unknown.", strawberry.ID
    )
    non_striker = known_field("non_striker", "The name of the batter at the other end; null if it is unknown.")
    bowler_id = known_field("bowler_id", "The `playerId` of the bowler; null if it is unknown.", strawberry.ID)
    bowler = known_field("bowler", "The name of the bowler; null if it is unknown.")
    runs: int = described("The runs of the ball, including extras.")
    batter_runs: int = described("The runs scored with the bat.")
    extras: Extras = described("The extras of the ball.")
    legal: bool = described("Whether the ball is legal: neither a wide nor a no-ball.")
    four: bool = described("Whether the ball went to the boundary for four.", name="isFour")
    six: bool = described("Whether the ball went over the boundary for six.", name="isSix")
    wickets: list[Wicket] = described(
        "The dismissals and retirements on this ball, at most two, in the source's order."
    )


@object_type("event_id", description="An event of a match, with the score after it.")
class CricketEvent:
    event_id: strawberry.ID = described(
        "The id of the event. An event that is sent twice has the same id; drop the second one."
    )
    kind: cricket_events.CricketEventKind = described("The kind of event.")
    text: str = described("The event in one line.")
    innings: int | None = described(
        "The number of the innings in the match, from 1; null if the event belongs to none.", name="inningsNumber"
    )
    score: str | None = described(
        "The score of the innings after the event: 120/3; null for a CORRECTION, and without a `ball` for all kinds "
        "but INNINGS_BREAK."
    )
    ball: Ball | None = described("The ball of the event; null if there is none.")
    player_id: strawberry.ID | None = described(
        "The `playerId` of the player concerned, such as the batter who is out; null if there is none."
    )
    player: str | None = described("The name of the player concerned; null if there is none.")
    value: int | None = described(
        "The number that the event is about: the runs of the batter (FIFTY, HUNDRED, MILESTONE) or of the partnership "
        "(PARTNERSHIP), the runs that win the match (TARGET), or 4 and 6 (FOUR, SIX); null for other kinds."
    )


def events_field(description: str) -> Any:
    """Return a field of events of a match."""
    return strawberry.field(resolver=parts.events, graphql_type=list[CricketEvent], description=description)
