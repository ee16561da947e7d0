"""The score and scorecard of an innings, updated ball by ball; they can be read after each ball.

Adding a ball takes constant time, reading takes time linear in the number of players. Lines unchanged since the last
reading are the same objects.
"""

from collections.abc import Iterable

from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    Extras,
    FallOfWicket,
    InningsScore,
    Partnership,
    Scorecard,
    Wicket,
)
from pipelines.matches.scoring.player_stats import Batter, Bowler, conceded

Player = tuple[str, str]  # id and name


class _OverInProgress:
    """The over in progress."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.legal_balls = 0
        self.conceded = 0
        self.bowlers: set[str] = set()
        self.ended = False

    def add(self, ball: Ball) -> None:
        self.legal_balls += ball.legal
        self.conceded += conceded(ball)
        self.bowlers.add(ball.bowler_id)


class InningsBook:
    """The score and scorecard of one innings.

    It starts with `penalty` runs. `squad` lists the players who may bat, in batting order.
    """

    def __init__(
        self,
        number: int,
        team_id: str,
        *,
        balls_per_over: int = 6,
        super_over: bool = False,
        penalty: int = 0,
        squad: Iterable[Player] = (),
    ) -> None:
        self._base_score = InningsScore(number, team_id, super_over=super_over)
        self._balls_per_over = balls_per_over
        self._squad = dict(squad)
        self._runs = self._penalty = penalty
        self._wickets = self._legal_balls = self._completed_overs = 0
        self._byes = self._leg_byes = self._wides = self._no_balls = 0
        self._partnership_runs = self._partnership_balls = 0
        self._batters: dict[str, Batter] = {}
        self._bowlers: dict[str, Bowler] = {}
        self._crease: tuple[str, ...] = ()
        self._over: _OverInProgress | None = None
        self._falls: list[FallOfWicket] = []
        self._declared = self._forfeited = self._closed = False
        self._score: InningsScore | None = None
        self._card: Scorecard | None = None

    def add(self, ball: Ball, *, ends_over: bool | None = None) -> None:
        """Count a ball. `ends_over` overrides the count of legal balls, because umpires miscount.

        A ball of a later over ends the one in progress.
        """
        self._score = self._card = None
        over = self._over_of(ball)
        self._count_runs(ball)
        self._come_in(ball)
        self._batters[ball.batter_id].face(ball)
        self._bowler_of(ball).bowl(ball)
        over.add(ball)
        for wicket in ball.wickets:
            self._fall(wicket, ball)
        if not over.ended and (over.legal_balls >= self._balls_per_over if ends_over is None else ends_over):
            self._end_over(over)
        self._update_strike(ball, over.ended)

    def substitute(self, out_id: str | None, incoming: Player) -> None:
        """Replace a player in the squad."""
        self._squad = {id: name for id, name in self._squad.items() if id != out_id}
        self._squad.setdefault(*incoming)
        self._card = None

    def close(
        self, *, declared: bool = False, forfeited: bool = False, penalty: int = 0, absent: Iterable[Player] = ()
    ) -> None:
        """End the innings. `penalty` runs are awarded after it; `absent` players could not bat."""
        self._score = self._card = None
        self._closed, self._declared, self._forfeited = True, declared, forfeited
        self._runs += penalty
        self._penalty += penalty
        for batter in self._batters.values():
            batter.close()
        for bowler in self._bowlers.values():
            bowler.set_bowling(False)
        for player_id, name in absent:
            self._batter(player_id, name).mark_absent()

    def score(self) -> InningsScore:
        if self._score is None:
            over = self._over
            self._score = InningsScore(
                self._base_score.number,
                self._base_score.team_id,
                self._runs,
                self._wickets,
                self._completed_overs,
                over.legal_balls if over and not over.ended else 0,
                self._legal_balls,
                Extras(self._byes, self._leg_byes, self._wides, self._no_balls, self._penalty),
                self._declared,
                self._forfeited,
                self._base_score.super_over,
            )
        return self._score

    def card(self) -> Scorecard:
        """Return the card: batters in batting order, then the players who did not bat; bowlers in order of use."""
        if self._card is None:
            self._card = Scorecard(
                self._base_score.number,
                (*(batter.line() for batter in self._batters.values()), *self._unbatted()),
                tuple(bowler.line(self._balls_per_over) for bowler in self._bowlers.values()),
                tuple(self._falls),
                self._partnership(),
            )
        return self._card

    def _count_runs(self, ball: Ball) -> None:
        self._runs += ball.runs
        self._partnership_runs += ball.runs
        self._legal_balls += ball.legal
        self._partnership_balls += ball.legal
        extras = ball.extras
        self._byes += extras.byes
        self._leg_byes += extras.leg_byes
        self._wides += extras.wides
        self._no_balls += extras.no_balls
        self._penalty += extras.penalty

    def _over_of(self, ball: Ball) -> _OverInProgress:
        if self._over is None or self._over.index != ball.over:
            if self._over and not self._over.ended:
                self._end_over(self._over)
            self._over = _OverInProgress(ball.over)
        return self._over

    def _end_over(self, over: _OverInProgress) -> None:
        over.ended = True
        self._completed_overs = over.index + 1
        if len(over.bowlers) == 1:
            bowler = self._bowlers[next(iter(over.bowlers))]
            bowler.finish_over(over.legal_balls, maiden=over.conceded == 0)

    def _come_in(self, ball: Ball) -> None:
        pair = (ball.batter_id, ball.non_striker_id)
        for player_id in self._crease:
            if player_id not in pair:
                self._batters[player_id].retire()
        self._batter(ball.batter_id, ball.batter).come_in()
        self._batter(ball.non_striker_id, ball.non_striker).come_in()
        self._crease = pair

    def _batter(self, player_id: str, name: str) -> Batter:
        batter = self._batters.get(player_id)
        if batter is None:
            batter = self._batters[player_id] = Batter(player_id, name, len(self._batters) + 1)
        return batter

    def _bowler_of(self, ball: Ball) -> Bowler:
        bowler = self._bowlers.get(ball.bowler_id)
        if bowler is None:
            bowler = self._bowlers[ball.bowler_id] = Bowler(ball.bowler_id, ball.bowler)
        if not bowler.bowling:
            for other in self._bowlers.values():
                other.set_bowling(other is bowler)
        return bowler

    def _fall(self, wicket: Wicket, ball: Ball) -> None:
        self._batter(wicket.player_id, wicket.name).dismiss(wicket, ball)
        self._crease = tuple(player_id for player_id in self._crease if player_id != wicket.player_id)
        if wicket.is_out:
            self._wickets += 1
            self._partnership_runs = self._partnership_balls = 0
            self._falls.append(FallOfWicket(self._wickets, self._runs, ball.label, wicket.player_id, wicket.name))

    def _update_strike(self, ball: Ball, over_ended: bool) -> None:
        """Mark the striker of the next ball. After a wicket the next ball decides."""
        crossed = runs_run(ball) % 2 == 1
        striker = ball.batter_id if crossed == over_ended else ball.non_striker_id
        is_known = len(self._crease) == 2
        for player_id in (ball.batter_id, ball.non_striker_id):
            self._batters[player_id].strike(is_known and player_id == striker)

    def _unbatted(self) -> list[BattingLine]:
        status = BatterStatus.DID_NOT_BAT if self._closed else BatterStatus.YET_TO_BAT
        waiting = [(id, name) for id, name in self._squad.items() if id not in self._batters]
        first = len(self._batters) + 1
        return [BattingLine(id, name, first + offset, status=status) for offset, (id, name) in enumerate(waiting)]

    def _partnership(self) -> Partnership | None:
        if self._closed or not self._crease:
            return None
        return Partnership(self._partnership_runs, self._partnership_balls, self._crease)


def runs_run(ball: Ball) -> int:
    """Return how often the batters crossed, by the runs: not for boundaries, nor for the wide or no-ball itself."""
    extras = ball.extras
    hit = 0 if ball.four or ball.six else ball.batter_runs
    return hit + extras.byes + extras.leg_byes + max(0, extras.wides - 1) + max(0, extras.no_balls - 1)
