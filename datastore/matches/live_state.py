"""The live state of a match, and its item in the table `active-matches`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    BowlingLine,
    InningsScore,
    Match,
    MatchPhase,
    Partnership,
    Record,
    Result,
    Target,
    phase_of,
)
from datastore.matches.cricket_events import CricketEvent
from datastore.model.timestamps import from_seconds

T = TypeVar("T")
# The time of a state without a stored time.
UNKNOWN_MOMENT = from_seconds(0)


class ActiveStatus(StrEnum):
    """The polling status of a match."""

    #: Polled.
    ACTIVE = "active"
    #: Polled again once it is back in the live scores.
    IDLE = "idle"
    #: Stored until its TTL.
    ENDED = "ended"


class LiveStatePart(StrEnum):
    """A part of the live state, by which an update reports changes."""

    STATUS = "status"
    SCORE = "score"
    BATTING = "batting"
    BOWLING = "bowling"
    TARGET = "target"
    RESULT = "result"
    NOTE = "note"
    SCORECARDS = "scorecards"  # or another detail of the match


class StoredScore(Record, frozen=True):
    """The parts of a live score that are stored as one attribute."""

    innings: tuple[InningsScore, ...] = ()
    partnership: Partnership | None = None
    target: Target | None = None
    result: Result | None = None
    note: str | None = None


class LiveScore(Record, frozen=True):
    """The live score: all innings, the current batters and bowlers, and the last balls."""

    status: str
    phase: MatchPhase
    innings: tuple[InningsScore, ...] = ()
    batting: tuple[BattingLine, ...] = ()
    bowling: tuple[BowlingLine, ...] = ()
    partnership: Partnership | None = None
    target: Target | None = None
    result: Result | None = None
    note: str | None = None
    recent_balls: tuple[Ball, ...] = ()
    #: The version and time of the state from which the score was read. A comparison of two scores ignores both.
    version: int = 0
    updated_at: datetime | None = None
    match_id: str = ""

    @property
    def score(self) -> StoredScore:
        return StoredScore(self.innings, self.partnership, self.target, self.result, self.note)


def _live_score(
    status: str,
    phase: MatchPhase,
    score: StoredScore,
    batting: tuple[BattingLine, ...],
    bowling: tuple[BowlingLine, ...],
    balls: tuple[Ball, ...],
    version: int,
    updated_at: datetime,
    match_id: str,
) -> LiveScore:
    facts = score.partnership, score.target, score.result, score.note
    return LiveScore(status, phase, score.innings, batting, bowling, *facts, balls, version, updated_at, match_id)


def _live(active: "ActiveMatch") -> str | None:
    return keys.LIVE if active.status is ActiveStatus.ACTIVE else None


class ActiveMatch(StoredItem, key=keys.active_match):
    """A match with its live state."""

    live_index = stored.computed("live", _live)
    _status = stored.nested(stored.text("previousStatus"), "live.status")
    _phase = stored.nested(stored.choice("matchPhase", MatchPhase), "live.phase")
    _score = stored.nested(stored.json("previousScore", StoredScore, typical=330), "live.score")
    # The index of live matches does not project the lines and the balls.
    _batting = stored.nested(
        stored.json("previousBatting", tuple[BattingLine, ...], missing=(), typical=180), "live.batting"
    )
    _bowling = stored.nested(
        stored.json("previousBowling", tuple[BowlingLine, ...], missing=(), typical=110), "live.bowling"
    )
    _balls = stored.nested(stored.json("last30Balls", tuple[Ball, ...], missing=(), typical=3290), "live.recent_balls")
    match_id: str = stored.part()
    league_code: str = stored.text("leagueCode", missing="")
    home_team_id: str = stored.text("homeTeamId", missing="")
    away_team_id: str = stored.text("awayTeamId", missing="")
    status: ActiveStatus = stored.choice("status", ActiveStatus)
    live: LiveScore = stored.derived(
        _live_score,
        "_status",
        "_phase",
        "_score",
        "_batting",
        "_bowling",
        "_balls",
        "version",
        "updated_at",
        "match_id",
    )
    version: int = stored.number("version")
    updated_at: datetime = stored.moment("updatedAt")
    instance_id: str | None = stored.text("instanceId", default=None)
    #: The fencing token of the instance that polls the match.
    fence: int = stored.number("fence", default=0)
    last_tick_at: datetime | None = stored.moment("lastTickAt", default=None)
    previous_ball_id: int = stored.number("previousBallId", default=0)
    #: The published events of kinds that occur once in a match.
    announced: tuple[str, ...] = stored.texts("announced", default=())
    events: tuple[CricketEvent, ...] = stored.json("events", tuple[CricketEvent, ...], default=())
    changed: tuple[LiveStatePart, ...] = stored.choices("changed", LiveStatePart, default=())
    cooldowns: Mapping[str, float] = stored.mapping("cooldowns", default={})
    expires_at: datetime | None = stored.seconds("ttl", default=None)
    #: Another program wrote the item, without version, league and teams. `complete_from_fixture` adds them.
    is_partial: bool = False
    #: The item is in the index of live matches.
    is_listed: bool = stored.text("live", lambda _: True, default=False, encode=None)

    def is_abandoned(self, now: datetime, after: timedelta) -> bool:
        """Return whether no instance polls the match: there was no tick for the time `after`."""
        ticked = self.last_tick_at
        return self.instance_id is None or ticked is None or now - ticked > after


def initial_state(match: Match) -> ActiveMatch:
    """Return the initial state of a match, which continues from its fixture."""
    updated_at = match.live_updated_at or match.updated_at or match.start_time
    live = replace(live_score_of(match), version=match.version, updated_at=updated_at)
    return ActiveMatch(
        match_id=match.match_id,
        league_code=match.league_code,
        home_team_id=match.home_team_id,
        away_team_id=match.away_team_id,
        status=ActiveStatus.ACTIVE,
        live=live,
        version=match.version,
        updated_at=updated_at,
        fence=match.fence,
        previous_ball_id=match.last_ball_id,
    )


def live_score_of(match: Match, recent_balls: tuple[Ball, ...] = ()) -> LiveScore:
    """Return the live score of a match, without `version` and `updated_at`, which its writer sets."""
    card = match.scorecards[-1] if match.scorecards else None
    return LiveScore(
        status=match.status,
        phase=match.phase,
        innings=match.innings,
        batting=_at_the_crease(card.batting) if card else (),
        bowling=tuple(line for line in card.bowling if line.bowling) if card else (),
        partnership=card.partnership if card else None,
        target=match.target,
        result=match.result,
        note=match.note,
        recent_balls=recent_balls,
        match_id=match.match_id,
    )


def _at_the_crease(batting: tuple[BattingLine, ...]) -> tuple[BattingLine, ...]:
    return tuple(line for line in batting if line.status is BatterStatus.BATTING)


# The attributes that no tick changes.
SETTLED = frozenset({"matchId", "leagueCode", "homeTeamId", "awayTeamId", "status", "instanceId", "fence", "ttl"})


def active_match_from(item: Mapping[str, Any]) -> ActiveMatch:
    """Return the match of an item. Raises one of `records.DAMAGE` for a damaged item.

    Another program wrote an item without `version`. Only `matchId` and `status` are required in it: see
    `ActiveMatch.is_partial`.
    """
    return ActiveMatch.decoder(item) if "version" in item else _partial_from(item)


def _readable(name: str, kind: type[T], default: T) -> Any:
    """Declare a JSON text that may be missing, or of another program's form. `default` is the value then."""
    decode = msgspec.json.Decoder(kind).decode

    def read(text: Any) -> T:
        try:
            return decode(text) if isinstance(text, str) else default
        except ValueError:
            return default

    return stored.text(name, read, missing=default)


def _text_or_empty(text: str | None) -> str:
    return text or ""


def _number_or_zero(value: Any) -> int:
    return int(value) if str(value).isdecimal() else 0


def _numbers(values: Any) -> dict[str, float]:
    mapping = values if isinstance(values, Mapping) else {}
    return {name: value for name, value in mapping.items() if isinstance(value, int | float)}


def _known_phase(phase: Any, status: str) -> MatchPhase:
    return MatchPhase(phase) if phase in set(MatchPhase) else phase_of(status)


def _known_time(updated_at: datetime | None, ticked_at: datetime | None) -> datetime:
    return updated_at or ticked_at or UNKNOWN_MOMENT


# A state in an item of another program. The format of its score, lines and balls may be unknown.
_partial_from = ActiveMatch.decoder.replacing(
    league_code=stored.text("leagueCode", _text_or_empty, missing=""),
    home_team_id=stored.text("homeTeamId", _text_or_empty, missing=""),
    away_team_id=stored.text("awayTeamId", _text_or_empty, missing=""),
    _status=stored.text("previousStatus", _text_or_empty, missing=""),
    _phase_name=stored.text("matchPhase", missing=None),
    _phase=stored.derived(_known_phase, "_phase_name", "_status"),
    _score=_readable("previousScore", StoredScore, StoredScore()),
    _batting=_readable("previousBatting", tuple[BattingLine, ...], ()),
    _bowling=_readable("previousBowling", tuple[BowlingLine, ...], ()),
    _balls=_readable("last30Balls", tuple[Ball, ...], ()),
    version=stored.derived(int),
    _updated_at=stored.moment("updatedAt", missing=None),
    updated_at=stored.derived(_known_time, "_updated_at", "last_tick_at"),
    previous_ball_id=stored.number("previousBallId", _number_or_zero, missing=0),
    announced=stored.derived(tuple),
    events=stored.derived(tuple),
    changed=stored.derived(tuple),
    cooldowns=stored.mapping("cooldowns", _numbers, missing={}),
    expires_at=stored.number("ttl", lambda seconds: None if seconds is None else from_seconds(seconds), missing=None),
    is_partial=stored.derived(lambda: True),
)


def complete_from_fixture(active: ActiveMatch, match: Match) -> ActiveMatch:
    """Return a partial state with the league, teams and version of its fixture, and the score if it has none."""
    initial, live = initial_state(match), active.live
    if not live.innings:
        is_known = live.phase is not MatchPhase.UNKNOWN
        status, phase = (live.status, live.phase) if is_known else (initial.live.status, initial.live.phase)
        live = replace(initial.live, status=status, phase=phase, recent_balls=live.recent_balls)
    updated_at = initial.updated_at if active.updated_at == UNKNOWN_MOMENT else active.updated_at
    return replace(
        active,
        league_code=initial.league_code,
        home_team_id=initial.home_team_id,
        away_team_id=initial.away_team_id,
        live=replace(live, version=initial.version, updated_at=updated_at),
        version=initial.version,
        updated_at=updated_at,
        fence=max(active.fence, initial.fence),
        previous_ball_id=max(active.previous_ball_id, initial.previous_ball_id),
    )
