"""The scorecard lines of batters and bowlers, counted ball by ball.

Each function returns the line after an event. A line that does not change stays the same object.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore.matches.cricket import Ball, BatterStatus, BattingLine, BowlingLine, Wicket
from pipelines.matches.scoring.dismissals import ABSENT, dismissal_text


def faced(line: BattingLine, ball: Ball) -> BattingLine:
    """Count a ball as the striker's. A wide is not faced, a no-ball is."""
    return replace(
        line,
        runs=line.runs + ball.batter_runs,
        balls=line.balls + (not ball.extras.wides),
        fours=line.fours + ball.four,
        sixes=line.sixes + ball.six,
    )


def at_crease(line: BattingLine) -> BattingLine:
    """Let a batter bat, perhaps again after retiring."""
    if line.status is not BatterStatus.RETIRED:
        return line
    return replace(line, status=BatterStatus.BATTING, how_out=None, dismissal=None)


def retired(line: BattingLine) -> BattingLine:
    """Let a batter leave the crease for an unreported reason."""
    return replace(line, status=BatterStatus.RETIRED, dismissal="retired")


def dismissed(line: BattingLine, wicket: Wicket, ball: Ball) -> BattingLine:
    """Record a wicket, or the retirement of a batter."""
    status = BatterStatus.OUT if wicket.is_out else BatterStatus.RETIRED
    return replace(
        line,
        status=BatterStatus.ABSENT if wicket.kind == ABSENT else status,
        how_out=wicket.kind,
        dismissal=dismissal_text(wicket, ball.bowler),
        bowler_id=ball.bowler_id if wicket.bowler_credited else None,
        fielders=wicket.fielders,
    )


def absent(line: BattingLine) -> BattingLine:
    """Record that the batter will not bat."""
    return replace(line, status=BatterStatus.ABSENT, how_out=ABSENT, dismissal=ABSENT)


def with_strike(line: BattingLine, on_strike: bool) -> BattingLine:
    return line if line.on_strike == on_strike else replace(line, on_strike=on_strike)


def at_close(line: BattingLine) -> BattingLine:
    """End the innings of a batter."""
    line = with_strike(line, False)
    return replace(line, status=BatterStatus.NOT_OUT) if line.status is BatterStatus.BATTING else line


def bowled(line: BowlingLine, ball: Ball, balls_per_over: int) -> BowlingLine:
    """Count a ball as the bowler's."""
    overs, balls = divmod(line.balls + ball.legal, balls_per_over)
    return replace(
        line,
        completed_overs=line.completed_overs + overs,
        balls=balls,
        runs=line.runs + conceded(ball),
        wickets=line.wickets + sum(wicket.bowler_credited for wicket in ball.wickets),
        wides=line.wides + ball.extras.wides,
        no_balls=line.no_balls + ball.extras.no_balls,
    )


def with_whole_over(line: BowlingLine, legal_balls: int, balls_per_over: int, *, maiden: bool) -> BowlingLine:
    """Count an over bowled alone, with its `legal_balls`, as one over, however many balls the umpire allowed."""
    before = line.completed_overs * balls_per_over + line.balls - legal_balls
    overs, balls = divmod(before + balls_per_over, balls_per_over)
    return replace(line, completed_overs=overs, balls=balls, maidens=line.maidens + maiden)


def with_bowling(line: BowlingLine, bowling: bool) -> BowlingLine:
    return line if line.bowling == bowling else replace(line, bowling=bowling)


@dataclass(slots=True)
class OverInProgress:
    """The counts of an over."""

    index: int
    legal_balls: int = 0
    conceded: int = 0
    bowlers: set[str] = field(default_factory=set)
    ended: bool = False

    def add(self, ball: Ball) -> None:
        self.legal_balls += ball.legal
        self.conceded += conceded(ball)
        self.bowlers.add(ball.bowler_id)


def conceded(ball: Ball) -> int:
    """Return the runs charged to the bowler: byes, leg byes and penalties are not."""
    return ball.batter_runs + ball.extras.wides + ball.extras.no_balls
