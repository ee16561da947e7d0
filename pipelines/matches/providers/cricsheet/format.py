"""The structures of Cricsheet's JSON format (cricsheet.org/format/json), versions 1.0 and 1.1.

Unknown keys are ignored: the format grows.
"""

from datetime import date
from typing import Annotated

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class Fielder(Struct, frozen=True):
    """A fielder of a dismissal."""

    #: Substitutes may have none.
    name: str | None = None
    substitute: bool = False


class CricsheetWicket(Struct, frozen=True):
    player_out: str
    kind: str
    fielders: tuple[Fielder, ...] = ()


class Runs(Struct, frozen=True):
    batter: Count
    extras: Count
    total: Count
    non_boundary: bool = False


class CricsheetExtras(Struct, frozen=True):
    byes: Count = 0
    legbyes: Count = 0
    wides: Count = 0
    noballs: Count = 0
    penalty: Count = 0


class Replacement(Struct, frozen=True):
    """`incoming` plays instead of `out` from this ball on."""

    incoming: str = field(name="in")
    team: str
    out: str | None = None
    reason: str | None = None


class Replacements(Struct, frozen=True):
    match: tuple[Replacement, ...] = ()


class CricsheetDelivery(Struct, frozen=True):
    batter: str
    bowler: str
    non_striker: str
    runs: Runs
    extras: CricsheetExtras | None = None
    wickets: tuple[CricsheetWicket, ...] = ()
    replacements: Replacements | None = None


class Over(Struct, frozen=True):
    over: Annotated[int, Meta(ge=0, le=999)]
    deliveries: Annotated[tuple[CricsheetDelivery, ...], Meta(max_length=99)] = ()


class PenaltyRuns(Struct, frozen=True):
    """Runs awarded to the side that bats in the innings, before or after it."""

    pre: Count = 0
    post: Count = 0


class CricsheetTarget(Struct, frozen=True):
    """The target of an innings."""

    runs: Count | None = None
    #: 9.2 is nine overs and two balls.
    overs: int | float | None = None


class MiscountedOver(Struct, frozen=True):
    balls: int | str


class CricsheetInnings(Struct, frozen=True):
    team: str
    overs: tuple[Over, ...] = ()
    absent_hurt: tuple[str, ...] = ()
    penalty_runs: PenaltyRuns = PenaltyRuns()
    declared: bool = False
    forfeited: bool = False
    miscounted_overs: dict[str, MiscountedOver] = {}
    target: CricsheetTarget | None = None
    super_over: bool = False


class CricsheetEvent(Struct, frozen=True):
    name: str
    match_number: int | str | None = None
    stage: str | int | None = None
    group: str | int | None = None


class By(Struct, frozen=True):
    innings: int | None = None
    runs: int | None = None
    wickets: int | None = None


class CricsheetOutcome(Struct, frozen=True):
    winner: str | None = None
    by: By = By()
    result: str | None = None
    eliminator: str | None = None
    bowl_out: str | None = None
    method: str | None = None


class CricsheetToss(Struct, frozen=True):
    winner: str | None = None
    decision: str | None = None


class CricsheetRegistry(Struct, frozen=True):
    people: dict[str, str] = {}


class Info(Struct, frozen=True):
    """The facts of a match. `season` is a number in some files."""

    dates: Annotated[tuple[date, ...], Meta(min_length=1)]
    teams: tuple[str, str]
    match_type: str
    balls_per_over: Annotated[int, Meta(ge=1, le=99)] = 6
    city: str | None = None
    venue: str | None = None
    event: CricsheetEvent | None = None
    gender: str | None = None
    outcome: CricsheetOutcome = CricsheetOutcome()
    overs: Annotated[int, Meta(ge=1, le=999)] | None = None
    player_of_match: tuple[str, ...] = ()
    players: dict[str, tuple[str, ...]] = {}
    registry: CricsheetRegistry = CricsheetRegistry()
    season: str | int | None = None
    team_type: str | None = None
    toss: CricsheetToss | None = None


class FileMeta(Struct, frozen=True):
    revision: int = 1


class File(Struct, frozen=True):
    info: Info
    innings: tuple[CricsheetInnings, ...] = ()
    meta: FileMeta = FileMeta()
