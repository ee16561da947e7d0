"""Matches as items of the table `cricket-fixtures`, and of its index."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import msgspec

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, derived, flag, number, text, texts
from datastore.matches.cricket import InningsScore, Match, MatchPhase, Result, Scorecard, Target, Toss, Venue, phase_of
from datastore.matches.json_records import to_json
from datastore.matches.operator_fields import OPERATOR_FIELDS, operator_fields_from
from datastore.model.timestamps import from_iso, iso
from datastore.model.versioning import REVISION
from datastore.session.optimistic_locking import version

PHASE_NAMES = {phase.value: phase for phase in MatchPhase}
# The stored values of an unknown phase.
NO_PHASE = ("", MatchPhase.UNKNOWN.value)


def _json_decoder(kind: Any) -> Callable[[str | None], Any]:
    """Return a function that decodes a JSON attribute."""
    decode = msgspec.json.Decoder(kind).decode
    return lambda text: None if text is None else decode(text)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)


def _status(stored: str | None) -> str:
    return stored or "NS"


def _phase(status: str, stored: str | None) -> MatchPhase:
    """Return the stored phase, or the phase implied by the status if an earlier release stored an unknown one."""
    return phase_of(status) if stored is None or stored in NO_PHASE else PHASE_NAMES[stored]


def _unknown() -> None:
    return None


def _innings(stored: tuple[InningsScore, ...] | None) -> tuple[InningsScore, ...]:
    return stored or ()


def _follow_on(stored: bool | None, innings: tuple[InningsScore, ...]) -> bool:
    return _has_follow_on(innings) if stored is None else stored


def _has_follow_on(innings: tuple[InningsScore, ...]) -> bool:
    """Return whether a side batted twice in a row. A super over is no follow-on: the chasing side bats first in it."""
    return any(later.team_id == earlier.team_id and not later.super_over for earlier, later in pairwise(innings))


def match_item(match: Match, now: datetime) -> Item:
    """Return the complete item, without attributes that are None."""
    item = {
        "matchId": match.match_id,
        **fact_attributes(match),
        **state_attributes(match),
        "version": match.version,
        "fence": match.fence,
        "lastBallId": match.last_ball_id,
        REVISION: match.revision,
        "updatedAt": iso(now),
    }
    return {name: value for name, value in item.items() if value is not None}


def fact_attributes(match: Match) -> Item:
    """Return the attributes that are set before the first ball."""
    return {
        "leagueId": match.league_id,
        "leagueCode": match.league_code,
        "homeTeamId": match.home_team_id,
        "awayTeamId": match.away_team_id,
        "startTime": iso(match.start_time),
        "seasonId": match.season_id,
        "round": match.round,
        "format": match.format,
        "venue": _json(match.venue),
        "scheduledOvers": match.scheduled_overs,
        "ballsPerOver": match.balls_per_over,
    }


def state_attributes(match: Match) -> Item:
    """Return the attributes that change while a match is played."""
    return {
        "status": match.status,
        "phase": match.phase.value,
        "note": match.note,
        "toss": _json(match.toss),
        "target": _json(match.target),
        "result": _json(match.result),
        "followOn": match.follow_on,
        "playerOfMatch": match.player_of_match,
        "scores": to_json(match.innings),
        "scorecards": to_json(match.scorecards or ()),
    }


def live_attributes(match: Match, now: datetime) -> Item:
    return {
        **state_attributes(match),
        "version": match.version,
        "fence": match.fence,
        "lastBallId": match.last_ball_id,
        "updatedAt": iso(now),
        "liveUpdatedAt": iso(now),
        "archivedAt": None,
    }


def _json(value: object | None) -> str | None:
    return None if value is None else to_json(value)


# A match from the table, or from its index, which projects no scorecards, phase or follow-on.
match_from = RecordDecoder(
    Match,
    match_id=text("matchId"),
    # Only the key attributes of the table and of its index are required in items of other programs.
    league_id=text("leagueId", default=""),
    league_code=text("leagueCode"),
    home_team_id=text("homeTeamId", default=""),
    away_team_id=text("awayTeamId", default=""),
    start_time=text("startTime", from_iso),
    status=text("status", _status, default="NS"),
    _phase=text("phase", default=None),
    phase=derived(_phase, "status", "_phase"),
    season_id=text("seasonId", default=None),
    round=text("round", default=None),
    format=text("format", default=None),
    note=text("note", default=None),
    venue=text("venue", _json_decoder(Venue), default=None),
    toss=text("toss", _json_decoder(Toss), default=None),
    scheduled_overs=number("scheduledOvers", default=None),
    balls_per_over=number("ballsPerOver", default=6),
    target=text("target", _json_decoder(Target), default=None),
    result=text("result", _json_decoder(Result), default=None),
    _innings=text("scores", _json_decoder(tuple[InningsScore, ...]), default=None),
    innings=derived(_innings, "_innings"),
    _follow_on=flag("followOn", default=None),
    follow_on=derived(_follow_on, "_follow_on", "innings"),
    player_of_match=text("playerOfMatch", default=None),
    scorecards=text("scorecards", _json_decoder(tuple[Scorecard, ...]), default=None),
    version=number("version", default=0),
    fence=number("fence", default=0),
    last_ball_id=number("lastBallId", default=0),
    updated_at=text("updatedAt", _moment, default=None),
    live_updated_at=text("liveUpdatedAt", _moment, default=None),
    archived_at=text("archivedAt", _moment, default=None),
    revision=number(REVISION, version, default=0),
    operator_fields=texts(OPERATOR_FIELDS, operator_fields_from, default=()),
)
# The attributes of a fixture that a poll reads.
tick_from = match_from.without(
    frozenset({"toss", "target", "result", "_innings", "innings", "_follow_on", "follow_on", "scorecards"})
)


# The parts of a match that are decoded only if the query selects them: the API fields of each part, and its fields in
# the record. There are few parts, so each combination has its own decoder.
_PARTS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("venue",): ("venue",),
    ("result",): ("result",),
    ("toss", "target"): ("toss", "target"),
    ("innings", "followOn"): ("_innings", "innings", "_follow_on", "follow_on"),
    ("scorecards",): ("scorecards",),
    ("season", "note", "playerOfMatch", "scheduledOvers", "ballsPerOver"): (
        *("season_id", "note", "player_of_match", "scheduled_overs", "balls_per_over"),
    ),
    ("operatorFields",): ("operator_fields",),
    ("version", "revision"): ("version", "fence", "last_ball_id", "revision"),
    ("updatedAt", "liveUpdatedAt", "archivedAt"): ("updated_at", "live_updated_at", "archived_at"),
}
# The API fields that need none of these parts, or read them again.
_OTHERS = (
    *("__typename", "id", "matchId", "leagueId", "leagueCode", "league", "homeTeamId", "homeTeam"),
    *("awayTeamId", "awayTeam", "startTime", "status", "phase", "round", "format", "lineups", "liveScore"),
    *("active", "isFollowed", "followers", "liveActivities"),
)
_ALL_FIELDS = frozenset(chain(_OTHERS, *_PARTS))


@lru_cache(256)
def decoder_for(fields: frozenset[str]) -> RecordDecoder[Match]:
    """Return the decoder of the table's items for a query that selects these fields."""
    if not fields <= _ALL_FIELDS:
        return match_from  # a display state needs the complete match
    omitted = [values for shown_by, values in _PARTS.items() if fields.isdisjoint(shown_by)]
    return match_from.without(frozenset(chain.from_iterable(omitted)))


# A match from the index, which does not project the revision: it is None, not 0.
summary_from = match_from.replacing(revision=derived(_unknown), operator_fields=derived(_unknown))
