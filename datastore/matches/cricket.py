"""The records of a cricket match, common to all providers and the tables.

Closed sets are enums. Open sets, to which providers may add (status texts, formats, kinds of dismissal), are text.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from datastore.items import attributes as stored
from datastore.items.forms import Identifier, Line, Moment, Prose, Whole
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import fixtures
from datastore.model.versioning import REVISION, version_from

RECENT_BALLS = 30
# The ways in which a batter's innings can end, or be interrupted, without a wicket.
NOT_A_WICKET = frozenset({"retired hurt", "retired not out", "retired ill", "absent hurt"})


class Record(Struct, frozen=True, omit_defaults=True, gc=False):
    """An immutable record that items contain as JSON text, without defaults: a third of the size of DynamoDB's maps.

    A record cannot contain itself, so the garbage collector does not track records: 200 matches have 50,000.
    """


class MatchPhase(StrEnum):
    """The phase of a match, independent of the provider's status texts."""

    UPCOMING = "upcoming"
    LIVE = "live"
    BREAK = "break"  # between innings, and for lunch, tea, dinner
    STUMPS = "stumps"  # ended for the day
    INTERRUPTED = "interrupted"  # or delayed, by rain or another cause
    FINISHED = "finished"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    POSTPONED = "postponed"
    UNKNOWN = "unknown"

    @property
    def is_over(self) -> bool:
        """Whether the match will not continue as scheduled."""
        return self in (MatchPhase.FINISHED, MatchPhase.ABANDONED, MatchPhase.CANCELLED, MatchPhase.POSTPONED)


class Lifetimes(NamedTuple):
    """The times for which a cache keeps a match, by its phase. A live match is replaced soon."""

    upcoming: timedelta
    live: timedelta
    over: timedelta

    def of(self, phase: MatchPhase) -> timedelta:
        if phase.is_over:
            return self.over
        return self.upcoming if phase is MatchPhase.UPCOMING else self.live


PHASES: Mapping[str, MatchPhase] = {
    "ns": MatchPhase.UPCOMING,
    **dict.fromkeys(("1st innings", "2nd innings", "3rd innings", "4th innings", "super over"), MatchPhase.LIVE),
    **dict.fromkeys(("innings break", "tea break", "tea", "lunch", "dinner", "drinks"), MatchPhase.BREAK),
    **dict.fromkeys(("int", "delayed"), MatchPhase.INTERRUPTED),
    "finished": MatchPhase.FINISHED,
    "aban": MatchPhase.ABANDONED,
    "cancl": MatchPhase.CANCELLED,
    "postp": MatchPhase.POSTPONED,
}


def phase_of(status: str) -> MatchPhase:
    """Return the phase of a provider's status text; UNKNOWN for an unknown text."""
    word = status.strip().rstrip(".").lower()
    return MatchPhase.STUMPS if word.startswith("stump") else PHASES.get(word, MatchPhase.UNKNOWN)


class ResultKind(StrEnum):
    """The kind of a result."""

    WIN = "win"
    TIE = "tie"
    DRAW = "draw"
    NO_RESULT = "no_result"
    AWARDED = "awarded"


class BatterStatus(StrEnum):
    """The status of a batter in an innings."""

    YET_TO_BAT = "yet_to_bat"
    BATTING = "batting"
    NOT_OUT = "not_out"  # when the innings closed
    OUT = "out"
    RETIRED = "retired"  # hurt or otherwise not out, and may come back
    ABSENT = "absent"
    DID_NOT_BAT = "did_not_bat"


class Extras(Record, frozen=True):
    """Runs that are not credited to a batter, by kind."""

    byes: int = 0
    leg_byes: int = 0
    wides: int = 0
    no_balls: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.byes + self.leg_byes + self.wides + self.no_balls + self.penalty


class InningsScore(Record, frozen=True):
    """The total of an innings. `balls` counts the over in progress, `legal_balls` the innings."""

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
        """The overs in cricket notation: 15.4 is 15 overs and 4 balls."""
        return f"{self.completed_overs}.{self.balls}" if self.balls else str(self.completed_overs)


class BattingLine(Record, frozen=True):
    """A batter in a scorecard.

    `how_out` is the provider's word, `dismissal` a readable line. Both are None while the batter is in.
    """

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
    """A bowler in a scorecard. `wides` and `no_balls` are in conceded runs, which are part of `runs`."""

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
    """The partnership in progress: runs (with extras) and legal balls since the last wicket."""

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
    """A dismissal on a ball. `kind` is the provider's word: caught, run out, timed out …"""

    player_id: str
    name: str
    kind: str
    fielders: tuple[str, ...] = ()
    bowler_credited: bool = True

    @property
    def is_out(self) -> bool:
        """False for batters who retired and may return, and for batters who could not bat."""
        return self.kind.lower() not in NOT_A_WICKET


class Ball(Record, frozen=True, array_like=True):
    """A delivery. Ids increase with time within a match; `over` counts from 0.

    `number` is the number of the legal ball in the over. A wide or no-ball has the number of the next legal ball.
    The JSON form is an array, since there are many balls: append new attributes at the end.
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
        """Return the runs of the ball, extras included."""
        return self.batter_runs + self.extras.total

    @property
    def label(self) -> str:
        """The position in the innings: 15.4 is the fourth ball of the sixteenth over."""
        return f"{self.over}.{self.number}"


class Venue(Record, frozen=True):
    """The venue of a match."""

    name: str
    venue_id: str | None = None
    city: str | None = None
    country: str | None = None


class Toss(Record, frozen=True):
    """The team that won the toss, and whether it elected to bat or to field."""

    team_id: str
    elected: str | None = None


class Target(Record, frozen=True):
    """The target of the side that bats last. `method` names the rule by which it was revised (D/L)."""

    runs: int
    overs: str | None = None
    method: str | None = None


class Result(Record, frozen=True):
    """The result of a match. `text` is a readable line. With `eliminator` a super over or boundaries decided a tie."""

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


class FixtureField(StrEnum):
    """A field that an operator may set, by the name of its attribute."""

    START_TIME = "startTime"
    STATUS = "status"
    ROUND = "round"
    FORMAT = "format"
    NOTE = "note"
    VENUE = "venue"
    SCHEDULED_OVERS = "scheduledOvers"


def _in_order(names: Iterable[str] | None) -> tuple[FixtureField, ...]:
    present = set(names or ())
    return tuple(field for field in FixtureField if field in present)


_PHASE_NAMES: Mapping[str | None, MatchPhase] = {phase.value: phase for phase in MatchPhase}
_NO_PHASE = (None, "", MatchPhase.UNKNOWN.value)


def _phase(stored: str | None, status: str) -> MatchPhase:
    """Return the stored phase, or the phase implied by the status if an earlier release stored an unknown one."""
    return phase_of(status) if stored in _NO_PHASE else _PHASE_NAMES[stored]


def _follow_on(stored: bool | None, innings: tuple[InningsScore, ...]) -> bool:
    """Return whether a side batted twice in a row. A super over is no follow-on: the chasing side bats first in it."""
    if stored is not None:
        return stored
    return any(later.team_id == earlier.team_id and not later.super_over for earlier, later in pairwise(innings))


class Match(StoredItem, Record, key=fixtures.fixture):
    """A fixture and its state. Ids, `format` and `status` are the provider's.

    Items of other programs need only the key attributes of the table and of its index. The index contains summaries.
    """

    match_id: str = stored.part(form=Identifier())
    league_id: str = stored.text("leagueId", missing="", form=Identifier())
    league_code: str = stored.text("leagueCode", form=Identifier(20))
    home_team_id: str = stored.text("homeTeamId", missing="", form=Identifier())
    away_team_id: str = stored.text("awayTeamId", missing="", form=Identifier())
    start_time: datetime = stored.moment("startTime", form=Moment())
    status: str = stored.text("status", lambda status: status or "NS", default="NS", form=Identifier())
    phase: MatchPhase = stored.text(
        "phase", _phase, given=("status",), missing=None, default=MatchPhase.UPCOMING, encode=attrgetter("value")
    )
    season_id: str | None = stored.text("seasonId", default=None, form=Identifier())
    round: str | None = stored.text("round", default=None, form=Line(200), removable=True)
    format: str | None = stored.text("format", default=None, form=Identifier(), removable=True)
    note: str | None = stored.text("note", default=None, form=Prose(1000), removable=True)
    venue: Venue | None = stored.json("venue", Venue, default=None, removable=True)
    toss: Toss | None = stored.json("toss", Toss, default=None)
    scheduled_overs: int | None = stored.number("scheduledOvers", default=None, form=Whole(1, 100), removable=True)
    balls_per_over: int = stored.number("ballsPerOver", default=6, form=Whole(4, 8))
    target: Target | None = stored.json("target", Target, default=None)
    result: Result | None = stored.json("result", Result, default=None)
    follow_on: bool = stored.flag("followOn", _follow_on, given=("innings",), missing=None, default=False)
    player_of_match: str | None = stored.text("playerOfMatch", default=None)
    innings: tuple[InningsScore, ...] = stored.json("scores", tuple[InningsScore, ...], default=())
    #: None in summaries.
    scorecards: tuple[Scorecard, ...] | None = stored.json(
        "scorecards", tuple[Scorecard, ...], default=None, if_none="[]", typical=3860
    )
    #: The version of the live state.
    version: int = stored.number("version", default=0)
    #: The fencing token of the last writer of the live state.
    fence: int = stored.number("fence", default=0)
    #: The last ball whose events were published.
    last_ball_id: int = stored.number("lastBallId", default=0)
    updated_at: datetime | None = stored.moment("updatedAt", default=None)
    live_updated_at: datetime | None = stored.moment("liveUpdatedAt", default=None)
    archived_at: datetime | None = stored.moment("archivedAt", default=None)
    #: Grows with every change of the fixture. None in summaries.
    revision: int | None = stored.number(REVISION, version_from, default=0)
    #: The fields that an operator set. None in summaries.
    operator_fields: tuple[FixtureField, ...] | None = stored.texts(
        "operatorFields", _in_order, default=(), encode=None
    )


class MatchSnapshot(Record, frozen=True):
    """A provider's snapshot of a match, with all `balls`, oldest first."""

    match: Match
    balls: tuple[Ball, ...] = ()
    lineups: tuple[LineupPlayer, ...] = ()
