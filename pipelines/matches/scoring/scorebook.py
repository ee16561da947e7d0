"""The score and scorecard of an innings, updated ball by ball; they can be read after each ball.

Adding a ball takes constant time, reading takes time linear in the number of players. Lines unchanged since the last
reading are the same objects.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    BowlingLine,
    Extras,
    FallOfWicket,
    InningsScore,
    Partnership,
    Scorecard,
    Wicket,
)
from pipelines.matches.scoring import player_stats as stats

Player = tuple[str, str]  # id and name


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
        self._score = InningsScore(number, team_id, runs=penalty, extras=Extras(penalty=penalty), super_over=super_over)
        self._balls_per_over = balls_per_over
        self._squad = dict(squad)
        self._stand = Partnership(0, 0)
        self._batters: dict[str, BattingLine] = {}
        self._bowlers: dict[str, BowlingLine] = {}
        self._crease: tuple[str, ...] = ()
        self._over: stats.OverInProgress | None = None
        self._falls: list[FallOfWicket] = []
        self._closed = False
        self._card: Scorecard | None = None

    def add(self, ball: Ball, *, ends_over: bool | None = None) -> None:
        """Count a ball. `ends_over` overrides the count of legal balls, because umpires miscount.

        A ball of a later over ends the one in progress.
        """
        self._card = None
        over = self._over_of(ball)
        self._count_runs(ball)
        self._come_in(ball)
        self._batters[ball.batter_id] = stats.faced(self._batters[ball.batter_id], ball)
        self._bowl(ball)
        over.add(ball)
        for wicket in ball.wickets:
            self._fall(wicket, ball)
        if not over.ended and (over.legal_balls >= self._balls_per_over if ends_over is None else ends_over):
            self._end_over(over)
        self._score = replace(self._score, balls=0 if over.ended else over.legal_balls)
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
        self._card = None
        self._closed = True
        score, extras = self._score, total_extras([self._score.extras, Extras(penalty=penalty)])
        self._score = replace(score, runs=score.runs + penalty, extras=extras, declared=declared, forfeited=forfeited)
        self._batters = {id: stats.at_close(line) for id, line in self._batters.items()}
        self._set_bowling(None)
        for player_id, name in absent:
            self._batters[player_id] = stats.absent(self._batter(player_id, name))

    def score(self) -> InningsScore:
        return self._score

    def card(self) -> Scorecard:
        """Return the card: batters in batting order, then the players who did not bat; bowlers in order of use."""
        if self._card is None:
            self._card = Scorecard(
                self._score.number,
                (*self._batters.values(), *self._unbatted()),
                tuple(self._bowlers.values()),
                tuple(self._falls),
                None if self._closed or not self._crease else replace(self._stand, batter_ids=self._crease),
            )
        return self._card

    def _count_runs(self, ball: Ball) -> None:
        score, stand = self._score, self._stand
        self._score = replace(
            score,
            runs=score.runs + ball.runs,
            legal_balls=score.legal_balls + ball.legal,
            extras=total_extras([score.extras, ball.extras]),
        )
        self._stand = replace(stand, runs=stand.runs + ball.runs, balls=stand.balls + ball.legal)

    def _over_of(self, ball: Ball) -> stats.OverInProgress:
        if self._over is None or self._over.index != ball.over:
            if self._over and not self._over.ended:
                self._end_over(self._over)
            self._over = stats.OverInProgress(ball.over)
        return self._over

    def _end_over(self, over: stats.OverInProgress) -> None:
        over.ended = True
        self._score = replace(self._score, completed_overs=over.index + 1)
        if len(over.bowlers) == 1:
            [bowler_id] = over.bowlers
            self._bowlers[bowler_id] = stats.with_whole_over(
                self._bowlers[bowler_id], over.legal_balls, self._balls_per_over, maiden=over.conceded == 0
            )

    def _come_in(self, ball: Ball) -> None:
        pair = (ball.batter_id, ball.non_striker_id)
        for player_id in self._crease:
            if player_id not in pair:
                self._batters[player_id] = stats.retired(self._batters[player_id])
        for player_id, name in zip(pair, (ball.batter, ball.non_striker), strict=True):
            self._batters[player_id] = stats.at_crease(self._batter(player_id, name))
        self._crease = pair

    def _batter(self, player_id: str, name: str) -> BattingLine:
        return self._batters.get(player_id) or BattingLine(player_id, name, len(self._batters) + 1)

    def _bowl(self, ball: Ball) -> None:
        line = self._bowlers.get(ball.bowler_id) or BowlingLine(ball.bowler_id, ball.bowler)
        self._bowlers[ball.bowler_id] = stats.bowled(line, ball, self._balls_per_over)
        if not line.bowling:
            self._set_bowling(ball.bowler_id)

    def _set_bowling(self, bowler_id: str | None) -> None:
        self._bowlers = {id: stats.with_bowling(line, id == bowler_id) for id, line in self._bowlers.items()}

    def _fall(self, wicket: Wicket, ball: Ball) -> None:
        line = self._batter(wicket.player_id, wicket.name)
        self._batters[wicket.player_id] = stats.dismissed(line, wicket, ball)
        self._crease = tuple(player_id for player_id in self._crease if player_id != wicket.player_id)
        if wicket.is_out:
            score = self._score = replace(self._score, wickets=self._score.wickets + 1)
            self._stand = Partnership(0, 0)
            self._falls.append(FallOfWicket(score.wickets, score.runs, ball.label, wicket.player_id, wicket.name))

    def _update_strike(self, ball: Ball, over_ended: bool) -> None:
        """Mark the striker of the next ball. After a wicket the next ball decides."""
        crossed = runs_run(ball) % 2 == 1
        striker = ball.batter_id if crossed == over_ended else ball.non_striker_id
        is_known = len(self._crease) == 2
        for player_id in (ball.batter_id, ball.non_striker_id):
            self._batters[player_id] = stats.with_strike(self._batters[player_id], is_known and player_id == striker)

    def _unbatted(self) -> list[BattingLine]:
        status = BatterStatus.DID_NOT_BAT if self._closed else BatterStatus.YET_TO_BAT
        waiting = [(id, name) for id, name in self._squad.items() if id not in self._batters]
        first = len(self._batters) + 1
        return [BattingLine(id, name, first + offset, status=status) for offset, (id, name) in enumerate(waiting)]


def total_extras(parts: Iterable[Extras]) -> Extras:
    """Return the sum of extras."""
    columns = zip(*[(part.byes, part.leg_byes, part.wides, part.no_balls, part.penalty) for part in parts], strict=True)
    return Extras(*map(sum, columns))


def runs_run(ball: Ball) -> int:
    """Return how often the batters crossed, by the runs: not for boundaries, nor for the wide or no-ball itself."""
    extras = ball.extras
    hit = 0 if ball.four or ball.six else ball.batter_runs
    return hit + extras.byes + extras.leg_byes + max(0, extras.wides - 1) + max(0, extras.no_balls - 1)
