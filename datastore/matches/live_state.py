"""The live state of a match, and its item in the table `active-matches`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.keyspace.matches.active_matches import LIVE
from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    BowlingLine,
    CricketEvent,
    InningsScore,
    Match,
    MatchPhase,
    Partnership,
    Result,
    Target,
    phase_of,
)
from datastore.matches.json_records import Record, from_json, to_json
from datastore.model.timestamps import from_iso, from_seconds, iso

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


class ActiveMatch(Record, frozen=True):
    """A match with its live state."""

    match_id: str
    league_code: str
    home_team_id: str
    away_team_id: str
    status: ActiveStatus
    live: LiveScore
    version: int
    updated_at: datetime
    instance_id: str | None = None
    #: The fencing token of the instance that polls the match.
    fence: int = 0
    last_tick_at: datetime | None = None
    previous_ball_id: int = 0
    #: The published events of kinds that occur once in a match.
    announced: tuple[str, ...] = ()
    events: tuple[CricketEvent, ...] = ()
    changed: tuple[LiveStatePart, ...] = ()
    cooldowns: Mapping[str, float] = {}
    expires_at: datetime | None = None
    #: Another program wrote the item, without version, league and teams. `complete_from_fixture` adds them.
    is_partial: bool = False
    #: The item is in the index of live matches.
    is_listed: bool = False

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
    )


def _at_the_crease(batting: tuple[BattingLine, ...]) -> tuple[BattingLine, ...]:
    return tuple(line for line in batting if line.status is BatterStatus.BATTING)


TICK_ATTRIBUTES = {
    "lastTickAt",
    "live",
    "matchPhase",
    "previousBallId",
    "previousScore",
    "previousStatus",
    "previousBatting",
    "previousBowling",
    "last30Balls",
    "announced",
    "events",
    "changed",
    "cooldowns",
    "version",
    "updatedAt",
}


# Defaults of the attributes that the index of live matches does not project.
_UNPROJECTED_DEFAULTS = {"previousBatting": "[]", "previousBowling": "[]", "last30Balls": "[]"}


class _Score(Record, frozen=True):
    """The attribute `previousScore`."""

    innings: tuple[InningsScore, ...] = ()
    partnership: Partnership | None = None
    target: Target | None = None
    result: Result | None = None
    note: str | None = None


def active_match_item(active: ActiveMatch) -> Item:
    live = active.live
    score = _Score(live.innings, live.partnership, live.target, live.result, live.note)
    item = {
        "matchId": active.match_id,
        "leagueCode": active.league_code,
        "homeTeamId": active.home_team_id,
        "awayTeamId": active.away_team_id,
        "status": active.status.value,
        "live": LIVE if active.status is ActiveStatus.ACTIVE else None,
        "instanceId": active.instance_id,
        "fence": active.fence,
        "lastTickAt": iso(active.last_tick_at) if active.last_tick_at else None,
        "matchPhase": live.phase.value,
        "previousStatus": live.status,
        "previousBallId": active.previous_ball_id,
        "previousScore": to_json(score),
        "previousBatting": to_json(live.batting),
        "previousBowling": to_json(live.bowling),
        "last30Balls": to_json(live.recent_balls),
        "announced": list(active.announced),
        "events": to_json(active.events),
        "changed": [part.value for part in active.changed],
        "cooldowns": dict(active.cooldowns),
        "version": active.version,
        "updatedAt": iso(active.updated_at),
        "ttl": int(active.expires_at.timestamp()) if active.expires_at else None,
    }
    return {name: value for name, value in item.items() if value is not None}


def active_match_from(item: Mapping[str, Any]) -> ActiveMatch:
    """Return the match of an item. Raises one of `records.DAMAGE` for a damaged item.

    Another program wrote an item without `version`. Only `matchId` and `status` are required in it: see
    `ActiveMatch.is_partial`.
    """
    if "version" not in item:
        return _partial_from(item)
    score = from_json(item["previousScore"], _Score)
    return ActiveMatch(
        match_id=item["matchId"],
        league_code=item.get("leagueCode", ""),
        home_team_id=item.get("homeTeamId", ""),
        away_team_id=item.get("awayTeamId", ""),
        status=ActiveStatus(item["status"]),
        live=LiveScore(
            status=item["previousStatus"],
            phase=MatchPhase(item["matchPhase"]),
            innings=score.innings,
            batting=from_json(item["previousBatting"], tuple[BattingLine, ...]),
            bowling=from_json(item["previousBowling"], tuple[BowlingLine, ...]),
            partnership=score.partnership,
            target=score.target,
            result=score.result,
            note=score.note,
            recent_balls=from_json(item["last30Balls"], tuple[Ball, ...]),
            version=item["version"],
            updated_at=from_iso(item["updatedAt"]),
        ),
        version=item["version"],
        updated_at=from_iso(item["updatedAt"]),
        instance_id=item.get("instanceId"),
        fence=item.get("fence", 0),
        last_tick_at=_moment(item.get("lastTickAt")),
        previous_ball_id=item.get("previousBallId", 0),
        announced=tuple(item.get("announced", ())),
        events=from_json(item.get("events", "[]"), tuple[CricketEvent, ...]),
        changed=tuple(LiveStatePart(part) for part in item.get("changed", ())),
        cooldowns=item.get("cooldowns", {}),
        expires_at=from_seconds(item["ttl"]) if "ttl" in item else None,
        is_listed="live" in item,
    )


class ActiveMatchParser:
    """A parser of changes of `active-matches` that parses a change once for all subscribers."""

    def __init__(self) -> None:
        self._change: Change | None = None
        self._active: ActiveMatch | None = None

    def parse(self, change: Change) -> ActiveMatch | None:
        """Return the match after the change, None if it was removed. Subscribers receive a change one after another."""
        if change is not self._change:
            self._active = None if change.new is None else active_match_from(change.new)
            self._change = change
        return self._active


def summary_from(item: Mapping[str, Any]) -> ActiveMatch:
    """Return the match of an item of the index, without lines and balls. Raises as `active_match_from`."""
    return active_match_from({**_UNPROJECTED_DEFAULTS, **item})


def _partial_from(item: Mapping[str, Any]) -> ActiveMatch:
    """Return the state in an item of another program; the format of its score, lines and balls may be unknown."""
    ticked = _moment(item.get("lastTickAt"))
    updated_at = _moment(item.get("updatedAt")) or ticked or UNKNOWN_MOMENT
    status = item.get("previousStatus") or ""
    score = _readable(item.get("previousScore"), _Score, _Score())
    return ActiveMatch(
        match_id=item["matchId"],
        league_code=item.get("leagueCode") or "",
        home_team_id=item.get("homeTeamId") or "",
        away_team_id=item.get("awayTeamId") or "",
        status=ActiveStatus(item["status"]),
        live=LiveScore(
            status=status,
            phase=_phase(item.get("matchPhase"), status),
            innings=score.innings,
            batting=_readable(item.get("previousBatting"), tuple[BattingLine, ...], ()),
            bowling=_readable(item.get("previousBowling"), tuple[BowlingLine, ...], ()),
            partnership=score.partnership,
            target=score.target,
            result=score.result,
            note=score.note,
            recent_balls=_readable(item.get("last30Balls"), tuple[Ball, ...], ()),
            updated_at=updated_at,
        ),
        version=0,
        updated_at=updated_at,
        instance_id=item.get("instanceId"),
        fence=item.get("fence", 0),
        last_tick_at=ticked,
        previous_ball_id=_number(item.get("previousBallId")),
        cooldowns=_numbers(item.get("cooldowns")),
        expires_at=from_seconds(item["ttl"]) if item.get("ttl") is not None else None,
        is_partial=True,
        is_listed="live" in item,
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


def _moment(text: str | None) -> datetime | None:
    return from_iso(text) if text else None


def _phase(stored: Any, status: str) -> MatchPhase:
    return MatchPhase(stored) if stored in set(MatchPhase) else phase_of(status)


def _readable(text: Any, kind: type[T], default: T) -> T:
    """Return the value of a JSON text of this type, or `default`."""
    try:
        return from_json(text, kind) if isinstance(text, str) else default
    except ValueError:
        return default


def _number(value: Any) -> int:
    return int(value) if str(value).isdecimal() else 0


def _numbers(values: Any) -> dict[str, float]:
    mapping = values if isinstance(values, Mapping) else {}
    return {name: value for name, value in mapping.items() if isinstance(value, int | float)}
