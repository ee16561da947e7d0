"""The reader of Cricsheet's JSON format: it makes a `Recording` of a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path

import msgspec

from datastore.matches.cricket import Ball, Extras, LineupPlayer, Match, Target, Toss, Venue, Wicket
from datastore.matches.leagues import League
from pipelines.matches.providers.cricsheet import format as written
from pipelines.matches.providers.cricsheet.names import INTERNATIONAL, league_of, slug, team_of
from pipelines.matches.providers.cricsheet.results import result_of
from pipelines.matches.providers.provider import Malformed, ProviderError
from pipelines.matches.providers.recordings import RecordedInnings, Recording, Substitution
from pipelines.matches.scoring.dismissals import CREDITED_TO_BOWLER
from pipelines.matches.scoring.scorebook import Player

MAX_FILE_BYTES = 20_000_000
NO_EXTRAS = Extras()
RAIN_RULES = ("D/L", "DLS", "VJD")
START_OF_PLAY = time(11, 0, tzinfo=UTC)  # files hold days only


def load(path: Path, *, match_id: str | None = None) -> Recording:
    """Read a file. The id is `match_id`, or the name of the file without its extension. Raises `ProviderError`."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise Malformed(f"{path.name}: {size:,} bytes are more than the limit of {MAX_FILE_BYTES:,}.")
        text = path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{path.name}: cannot be read: {error.strerror}.") from error
    return parse(text, match_id=match_id or path.stem, name=path.name)


def parse(text: bytes | str, *, match_id: str, name: str) -> Recording:
    """Read a match. Raises `Malformed` with `name` and the reason."""
    try:
        file = msgspec.json.decode(text, type=written.File)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Malformed(f"{name}: not a match in Cricsheet's format: {error}") from error
    return _read(file, match_id, name)


def read(document: Mapping[str, object], *, match_id: str, name: str = "match") -> Recording:
    """Read a match from decoded JSON. Raises `Malformed`, as `parse` does."""
    try:
        file = msgspec.convert(document, type=written.File)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"{name}: not a match in Cricsheet's format: {error}") from error
    return _read(file, match_id, name)


def _read(file: written.File, match_id: str, name: str) -> Recording:
    try:
        return _CricsheetReader(file, match_id).recording()
    except _Contradiction as problem:
        raise Malformed(f"{name}: {problem}") from None


class _Contradiction(Exception):
    """Two parts of a file contradict each other."""


@dataclass(slots=True)
class _CricsheetReader:
    """The state of one pass over a file."""

    file: written.File
    match_id: str
    balls: list[Ball] = field(default_factory=list)
    over_ends: set[int] = field(default_factory=set)
    substitutions: dict[int, tuple[Substitution, ...]] = field(default_factory=dict)
    totals: list[int] = field(default_factory=list)

    def recording(self) -> Recording:
        info = self.file.info
        innings = tuple(self._innings(number, innings) for number, innings in enumerate(self.file.innings, 1))
        league = league_of(info)
        return Recording(
            match=self._fixture(league),
            teams=(team_of(info.teams[0], info), team_of(info.teams[1], info)),
            league=league,
            season=None if info.season is None else str(info.season),
            days=len(info.dates),
            balls=tuple(self.balls),
            over_ends=frozenset(self.over_ends),
            innings=innings,
            squads=self._squads(),
            lineups=self._lineups(),
            substitutions=self.substitutions,
            result=result_of(info.outcome, self._team_id, super_over_tied=self._super_over_tied()),
            outcome=info.outcome.result,
            player_of_match=", ".join(info.player_of_match) or None,
            revision=self.file.meta.revision,
        )

    def _fixture(self, league: League) -> Match:
        info = self.file.info
        home, away = (self._team_id(team) for team in info.teams)
        return Match(
            match_id=self.match_id,
            league_id=league.league_id,
            league_code=league.code,
            home_team_id=home,
            away_team_id=away,
            start_time=datetime.combine(info.dates[0], START_OF_PLAY),
            season_id=None if info.season is None else f"{league.league_id}-{slug(str(info.season))}",
            round=_round(info.event),
            format="T20I" if (info.match_type, info.team_type) == ("T20", INTERNATIONAL) else info.match_type,
            venue=Venue(info.venue, city=info.city) if info.venue else None,
            toss=self._toss(info.toss),
            scheduled_overs=info.overs,
            balls_per_over=info.balls_per_over,
        )

    def _toss(self, toss: written.CricsheetToss | None) -> Toss | None:
        return Toss(self._team_id(toss.winner), toss.decision) if toss and toss.winner else None

    def _team_id(self, name: str) -> str:
        if name not in self.file.info.teams:
            raise _Contradiction(f"{name!r} is not one of the two teams.")
        return team_of(name, self.file.info).team_id

    def _player(self, name: str) -> Player:
        return self._person_id(name), name

    def _person_id(self, name: str) -> str:
        return self.file.info.registry.people.get(name) or f"name-{slug(name)}"

    def _innings(self, number: int, innings: written.CricsheetInnings) -> RecordedInnings:
        first = len(self.balls)
        last_over = -1
        for over in innings.overs:
            if over.over <= last_over:
                raise _Contradiction(f"innings {number}: over {over.over} comes after over {last_over}.")
            last_over = over.over
            self._over(number, innings, over)
        penalties = innings.penalty_runs
        target = self._target(innings)
        self.totals.append(sum(ball.runs for ball in self.balls[first:]) + penalties.pre + penalties.post)
        return RecordedInnings(
            number,
            self._team_id(innings.team),
            first,
            len(self.balls),
            super_over=innings.super_over,
            declared=innings.declared,
            forfeited=innings.forfeited,
            penalty_before=penalties.pre,
            penalty_after=penalties.post,
            absent=tuple(self._player(name) for name in innings.absent_hurt),
            target=target,
        )

    def _over(self, number: int, innings: written.CricsheetInnings, over: written.Over) -> None:
        legal_balls = 0
        ball_id = 0
        for position, delivery in enumerate(over.deliveries, 1):
            ball_id = (number * 1000 + over.over) * 100 + position
            ball = self._ball(ball_id, number, over.over, legal_balls + 1, delivery)
            self.balls.append(ball)
            legal_balls += ball.legal
            if delivery.replacements and delivery.replacements.match:
                self.substitutions[ball_id] = tuple(map(self._substitution, delivery.replacements.match))
        if over is not innings.overs[-1] or legal_balls >= self._legal_balls_due(innings, over):
            self.over_ends.add(ball_id)

    def _legal_balls_due(self, innings: written.CricsheetInnings, over: written.Over) -> int:
        """Return the number of legal balls after which the umpires end an over."""
        miscount = innings.miscounted_overs.get(str(over.over))
        if miscount is None:
            return self.file.info.balls_per_over
        try:
            return int(miscount.balls)
        except ValueError:
            raise _Contradiction(f"miscounted over {over.over}: {miscount.balls!r} is not a number.") from None

    def _ball(self, ball_id: int, innings: int, over: int, number: int, delivery: written.CricsheetDelivery) -> Ball:
        runs, extras = delivery.runs, NO_EXTRAS
        if delivery.extras:
            parts = delivery.extras
            extras = Extras(parts.byes, parts.legbyes, parts.wides, parts.noballs, parts.penalty)
        if extras.total != runs.extras or runs.batter + runs.extras != runs.total:
            raise _Contradiction(f"innings {innings}, over {over}, ball {ball_id % 100}: its runs do not add up.")
        return Ball(
            ball_id,
            innings,
            over,
            number,
            *self._player(delivery.batter),
            *self._player(delivery.non_striker),
            *self._player(delivery.bowler),
            batter_runs=runs.batter,
            extras=extras,
            legal=not (extras.wides or extras.no_balls),
            four=runs.batter == 4 and not runs.non_boundary,
            six=runs.batter == 6 and not runs.non_boundary,
            wickets=tuple(map(self._wicket, delivery.wickets)),
        )

    def _wicket(self, wicket: written.CricsheetWicket) -> Wicket:
        return Wicket(
            *self._player(wicket.player_out),
            kind=wicket.kind,
            fielders=tuple(map(_fielder, wicket.fielders)),
            bowler_credited=wicket.kind in CREDITED_TO_BOWLER,
        )

    def _substitution(self, replacement: written.Replacement) -> Substitution:
        out = replacement.out
        return Substitution(
            self._team_id(replacement.team),
            self._person_id(out) if out else None,
            self._player(replacement.incoming),
        )

    def _target(self, innings: written.CricsheetInnings) -> Target | None:
        """Return the target of an innings, as stated in the file or computed.

        It names the rain rule where it is not one more than the other side's lead.
        """
        computed = self._computed_target(innings)
        stated = innings.target
        if stated is None or stated.runs is None:
            return Target(computed, "1" if innings.super_over else None) if computed else None
        method = self.file.info.outcome.method if self.file.info.outcome.method in RAIN_RULES else None
        overs = None if stated.overs is None else f"{stated.overs:g}"
        return Target(stated.runs, overs, method or (None if stated.runs == computed else "D/L"))

    def _computed_target(self, innings: written.CricsheetInnings) -> int | None:
        """Return one more than the other side's lead in an innings that can be the last; None in other innings."""
        played = zip(self.file.innings[: len(self.totals)], self.totals, strict=True)
        earlier = [(other.team, total) for other, total in played if other.super_over == innings.super_over]
        if innings.super_over:
            earlier = earlier[len(earlier) // 2 * 2 :]
        two_innings = self.file.info.overs is None and not innings.super_over
        if len(earlier) != (3 if two_innings else 1):
            return None
        lead = sum(total if team != innings.team else -total for team, total in earlier)
        return lead + 1 if lead >= 0 else None

    def _super_over_tied(self) -> bool:
        over = bool(self.file.innings) and self.file.innings[-1].super_over
        return over and len(self.totals) > 1 and self.totals[-1] == self.totals[-2]

    def _substitutes(self) -> frozenset[str]:
        return frozenset(change.incoming[0] for changes in self.substitutions.values() for change in changes)

    def _squads(self) -> dict[str, tuple[Player, ...]]:
        """Return the players who may bat from the start, by team."""
        substitutes = self._substitutes()
        players = {self._team_id(team): names for team, names in self.file.info.players.items()}
        named = {team: [self._player(name) for name in names] for team, names in players.items()}
        return {
            team: tuple(player for player in squad if player[0] not in substitutes) for team, squad in named.items()
        }

    def _lineups(self) -> tuple[LineupPlayer, ...]:
        """Return the players who are named for the match, and the substitutes."""
        substitutes = self._substitutes()
        lineup: dict[str, LineupPlayer] = {}
        for team, names in self.file.info.players.items():
            for player_id, name in map(self._player, names):
                substitute = player_id in substitutes
                lineup[player_id] = LineupPlayer(player_id, name, self._team_id(team), substitute=substitute)
        for substitutions in self.substitutions.values():
            for substitution in substitutions:
                player_id, name = substitution.incoming
                lineup.setdefault(player_id, LineupPlayer(player_id, name, substitution.team_id, substitute=True))
        return tuple(lineup.values())


def _fielder(fielder: written.Fielder) -> str:
    name = fielder.name or ""
    return (f"sub ({name})" if name else "sub") if fielder.substitute or not name else name


def _round(event: written.CricsheetEvent | None) -> str | None:
    """Return a text such as `Final` or `Match 5, Group B`."""
    if event is None:
        return None
    parts = []
    if event.stage is not None:
        parts.append(str(event.stage))
    if event.match_number is not None:
        parts.append(f"Match {event.match_number}")
    if event.group is not None:
        parts.append(f"Group {event.group}")
    return ", ".join(parts) or None
