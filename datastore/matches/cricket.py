"""What a cricket match consists of, as every provider tells it and as the tables keep it.

Closed sets are enums. What providers may add to any day (status texts, formats, kinds of dismissal) is plain text.
Items hold nested values as JSON text: they are read and written whole, and JSON is a third of DynamoDB's own maps.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

T = TypeVar("T")

RECENT_BALLS = 30
# How an innings can end for a batter, for a time or for good, without a wicket.
NOT_A_WICKET = frozenset({"retired hurt", "retired not out", "retired ill", "absent hurt"})


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An immutable record that is JSON without ceremony; what has its default is left out. `structs.replace` copies.

    No record can come to hold itself, so the garbage collector need not look at them: 200 matches are 50,000.
    """


class Reference(Record, frozen=True):
    """Reference data that are kept, of which a `version` is the last value.

    What it is says nothing of the version: two that differ in it alone are equal.
    """

    def __eq__(self, other: object) -> bool:
        return self.__class__ is other.__class__ and astuple(self)[:-1] == astuple(other)[:-1]

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])


class MatchPhase(StrEnum):
    """Where a match stands, whatever its provider calls it."""

    UPCOMING = "upcoming"
    LIVE = "live"
    BREAK = "break"  # between innings, and for lunch, tea, dinner
    STUMPS = "stumps"  # over for the day
    INTERRUPTED = "interrupted"  # by rain or anything else, or delayed
    FINISHED = "finished"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    POSTPONED = "postponed"
    UNKNOWN = "unknown"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be expected of the match as it was scheduled."""
        return self in (MatchPhase.FINISHED, MatchPhase.ABANDONED, MatchPhase.CANCELLED, MatchPhase.POSTPONED)


PHASES: Mapping[str, MatchPhase] = {
    "ns": MatchPhase.UPCOMING,
    "1st innings": MatchPhase.LIVE,
    "2nd innings": MatchPhase.LIVE,
    "3rd innings": MatchPhase.LIVE,
    "4th innings": MatchPhase.LIVE,
    "super over": MatchPhase.LIVE,
    "innings break": MatchPhase.BREAK,
    "tea break": MatchPhase.BREAK,
    "tea": MatchPhase.BREAK,
    "lunch": MatchPhase.BREAK,
    "dinner": MatchPhase.BREAK,
    "drinks": MatchPhase.BREAK,
    "int": MatchPhase.INTERRUPTED,
    "delayed": MatchPhase.INTERRUPTED,
    "finished": MatchPhase.FINISHED,
    "aban": MatchPhase.ABANDONED,
    "cancl": MatchPhase.CANCELLED,
    "postp": MatchPhase.POSTPONED,
}


def phase_of(status: str) -> MatchPhase:
    """The phase that a provider's status text means; UNKNOWN for a word that is new."""
    word = status.strip().rstrip(".").lower()
    return MatchPhase.STUMPS if word.startswith("stump") else PHASES.get(word, MatchPhase.UNKNOWN)


class ResultKind(StrEnum):
    """How a match ended."""

    WIN = "win"
    TIE = "tie"
    DRAW = "draw"
    NO_RESULT = "no_result"
    AWARDED = "awarded"


class BatterStatus(StrEnum):
    """Where a batter stands in an innings."""

    YET_TO_BAT = "yet_to_bat"
    BATTING = "batting"
    NOT_OUT = "not_out"  # when the innings closed
    OUT = "out"
    RETIRED = "retired"  # hurt or otherwise not out, and may come back
    ABSENT = "absent"
    DID_NOT_BAT = "did_not_bat"


class CricketEventKind(StrEnum):
    """What happened in a match that is worth telling."""

    INNINGS_START = "innings_start"
    WICKET = "wicket"
    FOUR = "four"
    SIX = "six"
    FIFTY = "fifty"
    HUNDRED = "hundred"
    MILESTONE = "milestone"  # every further fifty of a batter: 150, 200 …
    HAT_TRICK = "hat_trick"
    MAIDEN = "maiden"
    PARTNERSHIP = "partnership"
    INNINGS_BREAK = "innings_break"
    TARGET = "target"
    SUPER_OVER = "super_over"
    RAIN = "rain"
    RESUMPTION = "resumption"
    RESULT = "result"
    CORRECTION = "correction"


class Extras(Record, frozen=True):
    """Runs that no batter made, by kind."""

    byes: int = 0
    leg_byes: int = 0
    wides: int = 0
    no_balls: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.byes + self.leg_byes + self.wides + self.no_balls + self.penalty


class InningsScore(Record, frozen=True):
    """The total of one innings. `balls` are those of the over in progress, `legal_balls` those of the innings."""

    number: int
    team_id: str
    runs: int = 0
    wickets: int = 0
    completed_overs: int = 0
    balls: int = 0
    legal_balls: int = 0
    extras: Extras = Extras()
    declared: bool = False
    forfeited: bool = False
    super_over: bool = False

    @property
    def overs(self) -> str:
        """As cricket writes them: 15.4 is 15 overs and 4 balls."""
        return f"{self.completed_overs}.{self.balls}" if self.balls else str(self.completed_overs)


class BattingLine(Record, frozen=True):
    """A batter in a scorecard. `how_out` is the provider's word, `dismissal` a readable line, both None while in."""

    player_id: str
    name: str
    position: int
    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    status: BatterStatus = BatterStatus.BATTING
    how_out: str | None = None
    dismissal: str | None = None
    bowler_id: str | None = None
    fielders: tuple[str, ...] = ()
    on_strike: bool = False


class BowlingLine(Record, frozen=True):
    """A bowler in a scorecard. Wides and no-balls are runs conceded by them, as they count in `runs`."""

    player_id: str
    name: str
    completed_overs: int = 0
    balls: int = 0
    maidens: int = 0
    runs: int = 0
    wickets: int = 0
    wides: int = 0
    no_balls: int = 0
    bowling: bool = False

    @property
    def overs(self) -> str:
        return f"{self.completed_overs}.{self.balls}" if self.balls else str(self.completed_overs)


class FallOfWicket(Record, frozen=True):
    """A wicket and the score at which it fell, `over` as in 15.4."""

    wicket: int
    runs: int
    over: str
    player_id: str
    name: str


class Partnership(Record, frozen=True):
    """The stand in progress: runs (with extras) and legal balls since the last wicket."""

    runs: int
    balls: int
    batter_ids: tuple[str, ...] = ()


class Scorecard(Record, frozen=True):
    """The players' figures of one innings."""

    number: int
    batting: tuple[BattingLine, ...] = ()
    bowling: tuple[BowlingLine, ...] = ()
    fall_of_wickets: tuple[FallOfWicket, ...] = ()
    partnership: Partnership | None = None


class Wicket(Record, frozen=True):
    """One dismissal on a ball. `kind` is the provider's word: caught, run out, timed out …"""

    player_id: str
    name: str
    kind: str
    fielders: tuple[str, ...] = ()
    bowler_credited: bool = True

    @property
    def is_out(self) -> bool:
        """False for batters who retired and may come back, and for those who could not bat."""
        return self.kind.lower() not in NOT_A_WICKET


class Ball(Record, frozen=True, array_like=True):
    """One delivery. Ids grow with time within a match; `over` counts from 0.

    `number` is the legal ball it is in the over: a wide or no-ball has the number of the legal ball that follows it.
    As JSON it is an array, for there are many: new attributes go to its end.
    """

    ball_id: int
    innings: int
    over: int
    number: int
    batter_id: str
    batter: str
    non_striker_id: str
    non_striker: str
    bowler_id: str
    bowler: str
    batter_runs: int = 0
    extras: Extras = Extras()
    legal: bool = True
    four: bool = False
    six: bool = False
    wickets: tuple[Wicket, ...] = ()

    @property
    def runs(self) -> int:
        """All runs of the ball, extras included."""
        return self.batter_runs + self.extras.total

    @property
    def label(self) -> str:
        """Where in the innings: 15.4 is the fourth ball of the sixteenth over."""
        return f"{self.over}.{self.number}"


class Venue(Record, frozen=True):
    """Where a match is played."""

    name: str
    venue_id: str | None = None
    city: str | None = None
    country: str | None = None


class Toss(Record, frozen=True):
    """Who won the toss, and chose to bat or to field."""

    team_id: str
    elected: str | None = None


class Target(Record, frozen=True):
    """What the side batting last needs to win; `method` names the rule if rain revised it (D/L)."""

    runs: int
    overs: str | None = None
    method: str | None = None


class Result(Record, frozen=True):
    """How a match ended. `text` says it in a line; `eliminator`: a super over (or boundaries) decided a tie."""

    kind: ResultKind
    text: str
    winner_team_id: str | None = None
    by_runs: int | None = None
    by_wickets: int | None = None
    by_innings: bool = False
    method: str | None = None
    eliminator: bool = False


class LineupPlayer(Record, frozen=True):
    """A player named for a match."""

    player_id: str
    name: str
    team_id: str
    captain: bool = False
    wicketkeeper: bool = False
    substitute: bool = False


class CricketEvent(Record, frozen=True):
    """Something that happened, with the score just after it. `value` is the milestone's or the target's number.

    `event_id` is the same however often the event is found: the ball or the innings, and the kind.
    """

    event_id: str
    kind: CricketEventKind
    text: str
    innings: int | None = None
    score: str | None = None
    ball: Ball | None = None
    player_id: str | None = None
    player: str | None = None
    value: int | None = None


class Match(Record, frozen=True):
    """A fixture and how it stands. Ids are the provider's; `format` and `status` are its words.

    `scorecards` is None where a list brought summaries only, and `revision`, which grows with every change of it.
    `version` counts the changes of its live state, `fence` is the number of the lock holder that wrote it last,
    `last_ball_id` the last ball whose events were published. `operator_fields` are those that an operator set,
    None where a list brought summaries only.
    """

    match_id: str
    league_id: str
    league_code: str
    home_team_id: str
    away_team_id: str
    start_time: datetime
    status: str = "NS"
    phase: MatchPhase = MatchPhase.UPCOMING
    season_id: str | None = None
    round: str | None = None
    format: str | None = None
    note: str | None = None
    venue: Venue | None = None
    toss: Toss | None = None
    scheduled_overs: int | None = None
    balls_per_over: int = 6
    target: Target | None = None
    result: Result | None = None
    follow_on: bool = False
    player_of_match: str | None = None
    innings: tuple[InningsScore, ...] = ()
    scorecards: tuple[Scorecard, ...] | None = None
    version: int = 0
    fence: int = 0
    last_ball_id: int = 0
    updated_at: datetime | None = None
    live_updated_at: datetime | None = None
    archived_at: datetime | None = None
    revision: int | None = 0
    operator_fields: tuple[str, ...] | None = ()


class MatchSnapshot(Record, frozen=True):
    """All that a provider tells of a match at one moment; `balls` all of them, oldest first."""

    match: Match
    balls: tuple[Ball, ...] = ()
    lineups: tuple[LineupPlayer, ...] = ()


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """Raises `ValueError` for what is not of that kind."""
    return msgspec.json.decode(text, type=kind)
