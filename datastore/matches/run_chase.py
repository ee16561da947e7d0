"""The run chase of the side that bats last: the required runs and rate, and the remaining balls."""

from dataclasses import dataclass

from datastore.matches.cricket import InningsScore, Match, MatchPhase, Target
from datastore.matches.live_state import LiveScore

ALL_OUT = 10


@dataclass(frozen=True, slots=True)
class Chase:
    """A run chase by the side that bats last."""

    team_id: str
    #: The number of runs to win, 0 once won.
    required: int
    #: None without a limit of overs.
    balls_left: int | None
    wickets_left: int
    super_over: bool = False

    def rate(self, balls_per_over: int) -> float | None:
        """Return the required run rate, in runs per over."""
        return None if self.balls_left is None else rate(self.required, self.balls_left, balls_per_over)

    def summary(self, name: str) -> str:
        """Return the chase as a line of text. `name` is the name of the side."""
        if self.required <= 0:
            return f"{name} have made the runs"
        if self.balls_left is None:
            return f"{name} need {self.required} with {counted(self.wickets_left, 'wicket')} left"
        if self.balls_left <= 0:
            return "Scores level" if self.required == 1 else f"{name} are {self.required - 1} short"
        where = " in the super over" if self.super_over else ""
        return f"{name} need {self.required} from {counted(self.balls_left, 'ball')}{where}"


def chase_of(match: Match, live: LiveScore) -> Chase | None:
    """Return the chase in progress, or the chase that begins after the break; None before that."""
    current = live.innings[-1]
    if current.super_over:
        return _super_over(match, live, current)
    if live.target is None:
        return None
    last = 2 if match.scheduled_overs else 4
    if current.number >= last:
        return _chase(match, live.target, current)
    if current.number == last - 1 and (live.phase is MatchPhase.BREAK or is_closed(current)):
        return _chase(match, live.target, InningsScore(last, _other_team(match, current.team_id)))
    return None


def is_closed(innings: InningsScore) -> bool:
    """Return whether the innings ended before its limit of overs. The provider reports innings that reach the limit."""
    return innings.declared or innings.forfeited or innings.wickets >= ALL_OUT


def balls_bowled(innings: InningsScore, balls_per_over: int) -> int:
    """Return the balls bowled by the number of overs: an over that the umpire miscounted counts as a full over."""
    return innings.completed_overs * balls_per_over + innings.balls


def rate(runs: int, balls: int, balls_per_over: int) -> float | None:
    return round(runs * balls_per_over / balls, 2) if balls > 0 else None


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _chase(match: Match, target: Target, innings: InningsScore) -> Chase:
    limit = _limit(match, target)
    bowled = balls_bowled(innings, match.balls_per_over)
    return Chase(
        innings.team_id,
        max(0, target.runs - innings.runs),
        None if limit is None else max(0, limit - bowled),
        max(0, ALL_OUT - innings.wickets),
    )


def _super_over(match: Match, live: LiveScore, current: InningsScore) -> Chase | None:
    overs = [innings for innings in live.innings if innings.super_over]
    if len(overs) % 2:
        return None
    required = overs[-2].runs + 1 - current.runs
    balls = match.balls_per_over - balls_bowled(current, match.balls_per_over)
    return Chase(current.team_id, max(0, required), max(0, balls), max(0, 2 - current.wickets), super_over=True)


def _limit(match: Match, target: Target) -> int | None:
    """Return the number of balls in the target's overs (15.2), else in the overs of the match."""
    if match.scheduled_overs is None:
        return None
    overs, _, balls = (target.overs or str(match.scheduled_overs)).partition(".")
    try:
        return int(overs) * match.balls_per_over + int(balls or 0)
    except ValueError:
        return match.scheduled_overs * match.balls_per_over


def _other_team(match: Match, team_id: str) -> str:
    return match.away_team_id if team_id == match.home_team_id else match.home_team_id
