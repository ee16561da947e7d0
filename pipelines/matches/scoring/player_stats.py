"""The figures of one batter and one bowler in an innings, counted ball by ball.

A line is rebuilt only after a change, so unchanged lines are the same objects.
"""

from datastore.matches.cricket import Ball, BatterStatus, BattingLine, BowlingLine, Wicket
from pipelines.matches.scoring.dismissals import ABSENT, dismissal_text


class Batter:
    """A batter's figures, and the scorecard line with them."""

    def __init__(self, player_id: str, name: str, position: int) -> None:
        self.player_id = player_id
        self.name = name
        self.position = position
        self.runs = self.balls = self.fours = self.sixes = 0
        self.status = BatterStatus.BATTING
        self.how_out: str | None = None
        self.dismissal: str | None = None
        self.bowler_id: str | None = None
        self.fielders: tuple[str, ...] = ()
        self.on_strike = False
        self._line: BattingLine | None = None

    def face(self, ball: Ball) -> None:
        """Count a ball as the striker's. A wide is not faced, a no-ball is."""
        self.runs += ball.batter_runs
        self.balls += not ball.extras.wides
        self.fours += ball.four
        self.sixes += ball.six
        self._line = None

    def come_in(self) -> None:
        """Bat, perhaps again after retiring."""
        if self.status is BatterStatus.RETIRED:
            self._set_status(BatterStatus.BATTING)
            self.how_out = self.dismissal = None

    def retire(self) -> None:
        """Leave the crease for an unreported reason."""
        self._set_status(BatterStatus.RETIRED)
        self.dismissal = "retired"

    def dismiss(self, wicket: Wicket, ball: Ball) -> None:
        if wicket.kind == ABSENT:
            self._set_status(BatterStatus.ABSENT)
        else:
            self._set_status(BatterStatus.OUT if wicket.is_out else BatterStatus.RETIRED)
        self.how_out = wicket.kind
        self.dismissal = dismissal_text(wicket, ball.bowler)
        self.bowler_id = ball.bowler_id if wicket.bowler_credited else None
        self.fielders = wicket.fielders

    def mark_absent(self) -> None:
        """Record that the batter will not bat."""
        self._set_status(BatterStatus.ABSENT)
        self.how_out = self.dismissal = ABSENT

    def close(self) -> None:
        self.strike(False)
        if self.status is BatterStatus.BATTING:
            self._set_status(BatterStatus.NOT_OUT)

    def strike(self, on_strike: bool) -> None:
        if self.on_strike != on_strike:
            self.on_strike = on_strike
            self._line = None

    def _set_status(self, status: BatterStatus) -> None:
        self.status = status
        self._line = None

    def line(self) -> BattingLine:
        if self._line is None:
            self._line = BattingLine(
                self.player_id,
                self.name,
                self.position,
                self.runs,
                self.balls,
                self.fours,
                self.sixes,
                self.status,
                self.how_out,
                self.dismissal,
                self.bowler_id,
                self.fielders,
                self.on_strike,
            )
        return self._line


class Bowler:
    """A bowler's figures. An over bowled alone counts as one over, however many balls the umpire allowed."""

    def __init__(self, player_id: str, name: str) -> None:
        self.player_id = player_id
        self.name = name
        self.whole_overs = self.loose_balls = self.maidens = 0
        self.runs = self.wickets = self.wides = self.no_balls = 0
        self.bowling = False
        self._line: BowlingLine | None = None

    def bowl(self, ball: Ball) -> None:
        self.loose_balls += ball.legal
        self.runs += conceded(ball)
        self.wides += ball.extras.wides
        self.no_balls += ball.extras.no_balls
        self.wickets += sum(wicket.bowler_credited for wicket in ball.wickets)
        self._line = None

    def finish_over(self, balls: int, *, maiden: bool) -> None:
        """Count the balls of an over bowled alone as one over."""
        self.loose_balls -= balls
        self.whole_overs += 1
        self.maidens += maiden
        self._line = None

    def set_bowling(self, bowling: bool) -> None:
        if self.bowling != bowling:
            self.bowling = bowling
            self._line = None

    def line(self, balls_per_over: int) -> BowlingLine:
        if self._line is None:
            overs, balls = divmod(self.loose_balls, balls_per_over)
            self._line = BowlingLine(
                self.player_id,
                self.name,
                self.whole_overs + overs,
                balls,
                self.maidens,
                self.runs,
                self.wickets,
                self.wides,
                self.no_balls,
                self.bowling,
            )
        return self._line


def conceded(ball: Ball) -> int:
    """Return the runs charged to the bowler: byes, leg byes and penalties are not."""
    return ball.batter_runs + ball.extras.wides + ball.extras.no_balls
