"""Display states: the view of a match from one team's side, which widgets and Live Activities show.

The functions are pure: the same match, live state and names give the same display state.
"""

from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from datastore.matches.cricket import Ball, BatterStatus, BowlingLine, InningsScore, Match, MatchPhase, Record
from datastore.matches.leagues import League
from datastore.matches.live_state import ActiveMatch, LiveScore, initial_state
from datastore.matches.run_chase import ALL_OUT, Chase, balls_bowled, chase_of, is_closed, rate
from datastore.matches.teams import Team

RECENT_SHOWN = 12
# The provider's status is shown, unless it is an abbreviation ("NS", "Aban."). Then these texts are.
PHASES = {phase: phase.value.capitalize() for phase in MatchPhase} | {MatchPhase.UPCOMING: "Not started"}
SHORTEST_STATUS = 4


@dataclass(frozen=True, slots=True)
class MatchNames:
    """The teams and the league of a match; None for a record that is not stored."""

    home: Team | None = None
    away: Team | None = None
    league: League | None = None


class DisplayInnings(Record, frozen=True):
    """The score of an innings as text (see `score_text`), and its overs and balls, `17.4`."""

    number: int
    score: str
    overs: str
    super_over: bool = False


class DisplaySide(Record, frozen=True):
    """A team's name and scores.

    `score` joins its innings except super overs (245 & 120/3), and `overs` are those of the last of them.
    """

    team_id: str
    name: str
    code: str
    image_url: str | None = None
    score: str | None = None
    overs: str | None = None
    innings: tuple[DisplayInnings, ...] = ()
    batting: bool = False


class DisplayBatter(Record, frozen=True):
    """A batter at the crease."""

    name: str
    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    on_strike: bool = False

    @property
    def figures(self) -> str:
        """The runs and balls: `45 (30)`."""
        return f"{self.runs} ({self.balls})"


class DisplayBowler(Record, frozen=True):
    """The current bowler."""

    name: str
    overs: str = "0"
    maidens: int = 0
    runs: int = 0
    wickets: int = 0

    @property
    def figures(self) -> str:
        """The wickets, runs and overs: `2/34 (8)`."""
        return f"{self.wickets}/{self.runs} ({self.overs})"


class DisplayState(Record, frozen=True):
    """A match from one team's side. Rates are in runs per over. `recent` has the last balls, the latest last."""

    match_id: str
    team_id: str
    version: int
    phase: MatchPhase
    status: str
    headline: str
    situation: str
    team: DisplaySide
    opponent: DisplaySide
    start_time: datetime
    updated_at: datetime
    league: str | None = None
    batters: tuple[DisplayBatter, ...] = ()
    bowler: DisplayBowler | None = None
    recent: str = ""
    target: int | None = None
    required_runs: int | None = None
    balls_left: int | None = None
    required_rate: float | None = None
    run_rate: float | None = None
    last_event: str | None = None

    @property
    def batting_team_id(self) -> str | None:
        return next((side.team_id for side in (self.team, self.opponent) if side.batting), None)


def display_state(match: Match, active: ActiveMatch | None, names: MatchNames, team_id: str) -> DisplayState:
    """Return the view of a match from the side of `team_id`, one of its teams.

    Without `active`, or if it is older than the match, the score stored in the match is shown. A `team_id` of neither
    team counts as the home team.
    """
    if active is None or active.version < match.version:
        active = initial_state(match)
    live = active.live
    batting = _batting_team(match, live)
    home = _side(match.home_team_id, names.home, live.innings, batting)
    away = _side(match.away_team_id, names.away, live.innings, batting)
    team, opponent = (away, home) if team_id == match.away_team_id else (home, away)
    has_current_innings = not live.phase.is_over and bool(live.innings)
    current = live.innings[-1] if has_current_innings else None
    chase = chase_of(match, live) if has_current_innings else None
    return DisplayState(
        match_id=match.match_id,
        team_id=team_id,
        version=active.version,
        phase=live.phase,
        status=_status(live),
        headline=_headline(home, away, live),
        situation=_situation(match, live, (team, opponent), chase),
        team=team,
        opponent=opponent,
        start_time=match.start_time,
        updated_at=active.updated_at,
        league=names.league.name if names.league else match.league_code or None,
        batters=_batters(live) if current else (),
        bowler=_bowler(live.bowling) if current else None,
        recent=_recent(live.recent_balls, current) if current else "",
        target=live.target.runs if live.target else None,
        required_runs=chase.required if chase else None,
        balls_left=chase.balls_left if chase else None,
        required_rate=chase.rate(match.balls_per_over) if chase else None,
        run_rate=rate(current.runs, balls_bowled(current, match.balls_per_over), match.balls_per_over)
        if current
        else None,
        last_event=active.events[-1].text if active.events else None,
    )


def _side(team_id: str, team: Team | None, all_innings: tuple[InningsScore, ...], batting: str | None) -> DisplaySide:
    own = [innings for innings in all_innings if innings.team_id == team_id]
    lines = tuple(
        DisplayInnings(innings.number, score_text(innings), innings.overs, innings.super_over) for innings in own
    )
    scores = [line.score for line in lines if not line.super_over]
    name = team.name if team and team.name else f"Team {team_id}"
    return DisplaySide(
        team_id=team_id,
        name=name,
        code=(team.code if team else team_id) or name[:3].upper(),
        image_url=team.image_url if team else None,
        score=" & ".join(scores) or None,
        overs=next((line.overs for line in reversed(lines) if not line.super_over), None),
        innings=lines,
        batting=team_id == batting,
    )


def score_text(innings: InningsScore) -> str:
    """Return the score of an innings: `120/3`, `120` when all out, `320/7d` when declared, `forfeited`."""
    if innings.forfeited:
        return "forfeited"
    if innings.wickets >= ALL_OUT:
        return str(innings.runs)
    return f"{innings.runs}/{innings.wickets}" + ("d" if innings.declared else "")


def _batting_team(match: Match, live: LiveScore) -> str | None:
    """Return the batting side; None between innings.

    In matches without a limit of overs, a break (lunch, tea) is not between innings.
    """
    if live.phase.is_over or not live.innings or is_closed(live.innings[-1]):
        return None
    is_between_innings = live.phase is MatchPhase.BREAK and match.scheduled_overs is not None
    return None if is_between_innings else live.innings[-1].team_id


def _status(live: LiveScore) -> str:
    in_words = len(live.status) >= SHORTEST_STATUS and not live.status.endswith(".")
    return live.status if in_words else PHASES[live.phase]


def _headline(home: DisplaySide, away: DisplaySide, live: LiveScore) -> str:
    """Return `AAA v BBB` before the start, the latest innings during a match, then both sides in batting order."""
    if not live.innings:
        return f"{home.code} v {away.code}"
    current = live.innings[-1]
    if live.phase.is_over:
        first, second = (home, away) if live.innings[0].team_id == home.team_id else (away, home)
        return ", ".join(f"{side.code} {side.score}" for side in (first, second) if side.score)
    side = home if current.team_id == home.team_id else away
    score = f"{score_text(current)} (super over)" if current.super_over else f"{side.score} ({current.overs})"
    return f"{side.code} {score}"


def _batters(live: LiveScore) -> tuple[DisplayBatter, ...]:
    at_the_crease = [line for line in live.batting if line.status is BatterStatus.BATTING]
    return tuple(
        DisplayBatter(line.name, line.runs, line.balls, line.fours, line.sixes, line.on_strike)
        for line in sorted(at_the_crease, key=attrgetter("position"))
    )


def _bowler(bowling: tuple[BowlingLine, ...]) -> DisplayBowler | None:
    line = next((line for line in bowling if line.bowling), None)
    return DisplayBowler(line.name, line.overs, line.maidens, line.runs, line.wickets) if line else None


def _recent(balls: tuple[Ball, ...], current: InningsScore) -> str:
    shown = [ball_text(ball) for ball in balls if ball.innings == current.number]
    return " ".join(shown[-RECENT_SHOWN:])


def ball_text(ball: Ball) -> str:
    """Return a ball in the scorers' notation.

    `.` is no run, `4` four runs, `2wd` two wides, `5nb` five runs of a no-ball, `1lb` a leg bye. `W` for a wicket comes
    first: `W1` is a run out after one run.
    """
    extras, out = ball.extras, any(wicket.is_out for wicket in ball.wickets)
    if extras.wides:
        text = f"{extras.wides if extras.wides > 1 else ''}wd"
    elif extras.no_balls:
        text = f"{ball.runs if ball.runs > 1 else ''}nb"
    elif extras.leg_byes or extras.byes:
        text = f"{extras.leg_byes}lb" if extras.leg_byes else f"{extras.byes}b"
    else:
        text = str(ball.runs) if ball.runs else ("" if out else ".")
    return f"W{text}" if out else text


def _situation(match: Match, live: LiveScore, sides: tuple[DisplaySide, DisplaySide], chase: Chase | None) -> str:
    """Return the result, the toss or start, the chase, the side's innings, or its lead, from the first side's view."""
    team, _ = sides
    if live.phase.is_over:
        return live.result.text if live.result else live.note or PHASES[live.phase]
    if not live.innings:
        return _before_start(match, sides)
    if chase is not None:
        name = next(side.name for side in sides if side.team_id == chase.team_id)
        method = f" ({live.target.method})" if live.target and live.target.method and not chase.super_over else ""
        return f"{chase.summary(name)}{method}"
    current = live.innings[-1]
    if match.scheduled_overs or len(live.innings) == 1:
        return ("Batting" if current.team_id == team.team_id else "Bowling") + (
            " in the super over" if current.super_over else " first"
        )
    return _lead(team.team_id, live)


def _before_start(match: Match, sides: tuple[DisplaySide, DisplaySide]) -> str:
    if match.toss:
        winner = next((side.name for side in sides if side.team_id == match.toss.team_id), None)
        if winner:
            elected = match.toss.elected
            return f"{winner} won the toss" + (f" and chose to {_elected_verb(elected)}" if elected else "")
    return f"Starts on {match.start_time.day} {match.start_time:%b at %H:%M} UTC"


def _elected_verb(elected: str) -> str:
    """Return `bat`, or `field` for everything else. Providers write `batting`, `bat`, `bowling` or `field`."""
    return "bat" if elected.lower().startswith("bat") else "field"


def _lead(team_id: str, live: LiveScore) -> str:
    lead = sum(innings.runs if innings.team_id == team_id else -innings.runs for innings in live.innings)
    return f"Lead by {lead}" if lead > 0 else f"Trail by {-lead}" if lead < 0 else "Scores level"
