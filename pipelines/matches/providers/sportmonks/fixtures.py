"""Conversion of SportMonks fixtures to matches, with or without balls and scorecards."""

import logging
import re
from collections.abc import Mapping

import msgspec

from datastore.matches.cricket import (
    Ball,
    InningsScore,
    LineupPlayer,
    Match,
    MatchPhase,
    MatchSnapshot,
    Target,
    Toss,
    Venue,
    phase_of,
)
from datastore.model.identifiers import ascii_upper
from pipelines.matches.providers.sportmonks.balls import PlayerNames, Scores, balls_in_over, balls_of, player_name
from pipelines.matches.providers.sportmonks.innings import Play, innings_of, scorecards_of
from pipelines.matches.providers.sportmonks.reference import league_code
from pipelines.matches.providers.sportmonks.results import WICKETS, result_of
from pipelines.matches.providers.sportmonks.values import (
    Row,
    UnreadableRow,
    convert_rows,
    count,
    flag,
    ident,
    moment,
    overs,
    required_id,
    required_text,
    row,
    text,
)

SEVERAL_DAYS = re.compile(r"test|\d ?-?days?", re.IGNORECASE)
# The overs of an innings by format, for fixtures that do not state them.
OVERS = (("t20", 20), ("t10", 10), ("odi", 50), ("list a", 50), ("100", 20))
ELECTED = {"batting": "bat", "bowling": "field"}

logger = logging.getLogger(__name__)


def match_of(fixture: Row, codes: Mapping[str, str]) -> Match:
    """Convert a fixture of a list: its facts and totals. `codes` are the leagues' codes by id.

    Raises: `UnreadableRow`.
    """
    return _match(fixture, codes, PlayerNames(()), {}).match


def snapshot_of(fixture: Row, codes: Mapping[str, str], scores: Scores) -> MatchSnapshot:
    """Convert a fixture with all its includes. Parts that cannot be read are left out.

    Raises: `UnreadableRow` when it is not a fixture.
    """
    lineups = tuple(convert_rows("player", fixture.get("lineup"), _lineup_player))
    names = PlayerNames(lineups)
    snapshot = _match(fixture, codes, names, scores)
    return msgspec.structs.replace(snapshot, lineups=lineups)


def _match(fixture: Row, codes: Mapping[str, str], names: PlayerNames, scores: Scores) -> MatchSnapshot:
    start = moment(fixture.get("starting_at"))
    if start is None:
        raise UnreadableRow("starting_at is not a time")
    status = required_text(fixture, "status")
    match_format = text(fixture.get("type"))
    balls = balls_of(fixture, names, scores)
    match = Match(
        match_id=required_id(fixture, "id"),
        league_id=required_id(fixture, "league_id"),
        league_code=_code(fixture, codes),
        home_team_id=required_id(fixture, "localteam_id"),
        away_team_id=required_id(fixture, "visitorteam_id"),
        start_time=start,
        status=status,
        phase=phase_of(status),
        season_id=ident(fixture.get("season_id")),
        round=text(fixture.get("round")),
        format=match_format,
        note=text(fixture.get("note")),
        venue=_venue(fixture),
        toss=_toss(fixture),
        scheduled_overs=_overs(fixture, match_format),
        balls_per_over=balls_in_over(balls, match_format),
        follow_on=flag(fixture.get("follow_on")),
        player_of_match=_player_of_match(fixture, names),
    )
    if match.phase is MatchPhase.UNKNOWN:
        logger.warning("SportMonks: fixture %s has the unknown status %.40r", match.match_id, status)
    return MatchSnapshot(_played(match, fixture, names, scores, balls), balls)


def _played(match: Match, fixture: Row, names: PlayerNames, scores: Scores, balls: tuple[Ball, ...]) -> Match:
    several_days = _takes_days(match.format)
    play = Play(
        names=names,
        scores=scores,
        balls=balls,
        balls_per_over=match.balls_per_over,
        regular=4 if several_days else 2,
        over=match.phase.is_over or match.status.lower().startswith("innings break"),
    )
    innings = innings_of(fixture, play)
    has_figures = any(name in fixture for name in ("batting", "bowling", "balls"))
    target = _target(fixture, match, innings, several_days)
    return msgspec.structs.replace(
        match,
        innings=innings,
        scorecards=scorecards_of(fixture, innings, play) if has_figures else None,
        target=target,
        result=result_of(fixture, match, innings, target),
    )


def _takes_days(match_format: str | None) -> bool:
    return SEVERAL_DAYS.search(match_format or "") is not None


def _overs(fixture: Row, match_format: str | None) -> int | None:
    """Return the overs of an innings, or None when only the days are limited."""
    if _takes_days(match_format):
        return None
    usual = (overs for word, overs in OVERS if word in (match_format or "").lower())
    return count(fixture.get("total_overs_played")) or next(usual, None)


def _code(fixture: Row, codes: Mapping[str, str]) -> str:
    """Return the league's code, or its id when the code is unknown: matches are listed by it."""
    league_id = required_id(fixture, "league_id")
    return ascii_upper(league_code(row(fixture.get("league"))) or codes.get(league_id) or league_id)


def _venue(fixture: Row) -> Venue | None:
    venue = row(fixture.get("venue"))
    name = text(venue.get("name")) or text(venue.get("city"))
    if name is None:
        return None
    venue_id = ident(venue.get("id")) or ident(fixture.get("venue_id"))
    return Venue(name=name, venue_id=venue_id, city=text(venue.get("city")))


def _toss(fixture: Row) -> Toss | None:
    team_id = ident(fixture.get("toss_won_team_id"))
    if team_id is None:
        return None
    elected = text(fixture.get("elected"))
    return Toss(team_id, None if elected is None else ELECTED.get(elected.lower(), elected))


def _player_of_match(fixture: Row, names: PlayerNames) -> str | None:
    player_id = ident(fixture.get("man_of_match_id"))
    return None if player_id is None else names.known(player_id, fixture.get("manofmatch"))


def _lineup_player(player: Row) -> LineupPlayer:
    """Convert a player of the lineup. With concussion or impact substitutes a team has more than eleven."""
    player_id, lineup = required_id(player, "id"), row(player.get("lineup"))
    return LineupPlayer(
        player_id=player_id,
        name=player_name(player) or f"Player {player_id}",
        team_id=required_id(lineup, "team_id"),
        captain=flag(lineup.get("captain")),
        wicketkeeper=flag(lineup.get("wicketkeeper")),
        substitute=flag(lineup.get("substitution")),
    )


def _target(fixture: Row, match: Match, innings: tuple[InningsScore, ...], several_days: bool) -> Target | None:
    """Return the target: the one revised for rain, else one more than the lead of the other side.

    It is None before the last regular innings is due.
    """
    revised = overs(fixture.get("rpc_target"))
    if revised is not None and revised[0]:
        return Target(revised[0], _revised_overs(fixture) or _scheduled(match), "D/L")
    regular = {total.number: total for total in innings if not total.super_over}
    last = 4 if several_days else 2
    if set(regular) == set(range(1, last + 1)):
        side = regular[last].team_id
    elif set(regular) == set(range(1, last)) and _is_due(match, last, regular[last - 1]):
        side = _other(match, regular[last - 1])
    else:
        return None
    others = sum(total.runs for total in regular.values() if total.team_id != side)
    own = sum(total.runs for number, total in regular.items() if total.team_id == side and number < last)
    return Target(others - own + 1, _scheduled(match)) if others >= own else None


def _is_due(match: Match, last: int, before: InningsScore) -> bool:
    """Return whether the last innings is next: the innings before it is over, also while rain delays the start."""
    begun = match.status.lower().startswith(("innings break", f"{last}nd innings", f"{last}th innings"))
    bowled = match.scheduled_overs is not None and before.completed_overs >= match.scheduled_overs
    return begun or bowled or before.wickets >= WICKETS


def _other(match: Match, total: InningsScore) -> str:
    return match.away_team_id if total.team_id == match.home_team_id else match.home_team_id


def _scheduled(match: Match) -> str | None:
    return None if match.scheduled_overs is None else str(match.scheduled_overs)


def _revised_overs(fixture: Row) -> str | None:
    revised = overs(fixture.get("rpc_overs"))
    if revised is None or not any(revised):
        return None
    return f"{revised[0]}.{revised[1]}" if revised[1] else str(revised[0])
