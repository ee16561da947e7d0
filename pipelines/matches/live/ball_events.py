"""Ball-by-ball events: wickets, boundaries, milestones, maidens.

A walk belongs to one match. It processes every ball once, in order, including the balls whose events were reported
before a restart: later events depend on them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from datastore.matches.cricket import Ball, Wicket
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from pipelines.matches.scoring.dismissals import dismissal_text
from pipelines.matches.scoring.player_stats import OverInProgress

MILESTONE = 50
HAT_TRICK = 3
VALUE_IN_ID = (CricketEventKind.PARTNERSHIP, CricketEventKind.MILESTONE)
ONCE_PER_BALL = (CricketEventKind.FOUR, CricketEventKind.SIX, CricketEventKind.HAT_TRICK)


@dataclass(slots=True)
class _InningsBalls:
    runs: int = 0
    wickets: int = 0
    batters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pair: frozenset[str] | None = None
    partnership_runs: int = 0
    over: OverInProgress = field(default_factory=lambda: OverInProgress(-1))


@dataclass(slots=True)
class BallWalk:
    """The running counts of a match, updated ball by ball."""

    match_id: str
    balls_per_over: int
    #: Returns the penalty runs of an innings that came without a ball.
    penalties: Callable[[int], int] = lambda _: 0
    #: Whether an innings is a super over, which does not count for hat-tricks.
    super_overs: Callable[[int], bool] = lambda _: False
    _innings: dict[int, _InningsBalls] = field(default_factory=dict)
    _streaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def feed(self, ball: Ball) -> list[CricketEvent]:
        """Return the events of the next ball."""
        innings = self._innings.get(ball.innings)
        if innings is None:
            innings = self._innings[ball.innings] = _InningsBalls()
        _track_pair(innings, ball)
        before = innings.batters[ball.batter_id], innings.partnership_runs
        self._count(innings, ball)
        if not _is_notable(innings, ball, *before, self.balls_per_over):
            return []
        score = f"{innings.runs + self.penalties(ball.innings)}/{innings.wickets}"
        events = [
            *_boundary_and_wickets(self.match_id, ball, score),
            *self._milestones(innings, ball, score, *before),
            *self._bowling(innings, ball, score),
        ]
        if ball.wickets:  # a batter who retires ends the partnership too
            innings.pair, innings.partnership_runs = None, 0
        return events

    def _count(self, innings: _InningsBalls, ball: Ball) -> None:
        runs = ball.runs
        innings.runs += runs
        innings.partnership_runs += runs
        innings.batters[ball.batter_id] += ball.batter_runs
        if ball.over != innings.over.index:
            innings.over = OverInProgress(ball.over)
        innings.over.add(ball)
        out = fallen(ball) if ball.wickets else ()
        innings.wickets += len(out)
        if not self.super_overs(ball.innings):
            credited = any(wicket.bowler_credited for wicket in out)
            self._streaks[ball.bowler_id] = self._streaks[ball.bowler_id] + 1 if credited else 0

    def _milestones(
        self, innings: _InningsBalls, ball: Ball, score: str, runs_before: int, partnership_before: int
    ) -> Iterator[CricketEvent]:
        runs = innings.batters[ball.batter_id]
        for value in _passed(runs_before, runs):
            kind = {50: CricketEventKind.FIFTY, 100: CricketEventKind.HUNDRED}.get(value, CricketEventKind.MILESTONE)
            text = f"{ball.batter} reaches {value}"
            yield _event(self.match_id, ball, kind, text, score, (ball.batter_id, ball.batter), value)
        for value in _passed(partnership_before, innings.partnership_runs):
            between = f" between {ball.batter} and {ball.non_striker}" if ball.non_striker else ""
            yield _event(
                self.match_id, ball, CricketEventKind.PARTNERSHIP, f"{value} partnership{between}", score, value=value
            )

    def _bowling(self, innings: _InningsBalls, ball: Ball, score: str) -> Iterator[CricketEvent]:
        bowler = ball.bowler_id, ball.bowler
        streak = 0 if self.super_overs(ball.innings) else self._streaks[ball.bowler_id]
        if streak and streak % HAT_TRICK == 0:
            yield _event(
                self.match_id, ball, CricketEventKind.HAT_TRICK, f"Hat-trick for {ball.bowler}!", score, bowler
            )
        if _is_maiden(innings, ball, self.balls_per_over):
            yield _event(
                self.match_id, ball, CricketEventKind.MAIDEN, f"A maiden over from {ball.bowler}", score, bowler
            )


def fallen(ball: Ball) -> tuple[Wicket, ...]:
    """Return the wickets of a ball without batters who retired or did not bat."""
    return tuple(wicket for wicket in ball.wickets if wicket.is_out)


def event_identity(event: CricketEvent) -> Hashable:
    """Return the key by which a repeated ball event is recognised: a batter reaches 50 in an innings once."""
    ball = event.ball
    assert ball is not None
    if event.kind in ONCE_PER_BALL:
        return event.kind, ball.ball_id
    if event.kind is CricketEventKind.MAIDEN:
        return event.kind, ball.innings, ball.over
    if event.kind is CricketEventKind.PARTNERSHIP:
        return event.kind, ball.innings, frozenset((ball.batter_id, ball.non_striker_id)), event.value
    return event.kind, ball.innings, event.player_id, event.value


def _track_pair(innings: _InningsBalls, ball: Ball) -> None:
    """Start another partnership when a batter was replaced without a wicket."""
    if not ball.non_striker_id:
        return
    pair = frozenset((ball.batter_id, ball.non_striker_id))
    if innings.pair is not None and innings.pair != pair:
        innings.partnership_runs = 0
    innings.pair = pair


def _is_notable(
    innings: _InningsBalls, ball: Ball, runs_before: int, partnership_before: int, balls_per_over: int
) -> bool:
    """Return whether the ball may have events. Most balls have none and need no score."""
    return bool(
        ball.wickets
        or ball.four
        or ball.six
        or runs_before // MILESTONE != innings.batters[ball.batter_id] // MILESTONE
        or partnership_before // MILESTONE != innings.partnership_runs // MILESTONE
        or _is_maiden(innings, ball, balls_per_over)
    )


def _is_maiden(innings: _InningsBalls, ball: Ball, balls_per_over: int) -> bool:
    """Return whether the ball completes a maiden over. An over that the umpires miscounted is not recognised."""
    over = innings.over
    return ball.legal and over.legal_balls == balls_per_over and not over.conceded and len(over.bowlers) == 1


def _boundary_and_wickets(match_id: str, ball: Ball, score: str) -> Iterator[CricketEvent]:
    """Yield the events that need only the ball itself."""
    batter = ball.batter_id, ball.batter
    off = f" off {ball.bowler}" if ball.bowler else ""
    if ball.four:
        yield _event(match_id, ball, CricketEventKind.FOUR, f"FOUR! {ball.batter}{off}", score, batter, 4)
    if ball.six:
        yield _event(match_id, ball, CricketEventKind.SIX, f"SIX! {ball.batter}{off}", score, batter, 6)
    for number, wicket in enumerate(fallen(ball)):
        text = f"WICKET! {wicket.name} {dismissal_text(wicket, ball.bowler)}"
        out = wicket.player_id, wicket.name
        yield _event(match_id, ball, CricketEventKind.WICKET, text, score, out, suffix=f":{number}" if number else "")


def _passed(before: int, after: int) -> range:
    """Return the multiples of 50 reached between two scores."""
    return range((before // MILESTONE + 1) * MILESTONE, after + 1, MILESTONE)


def _event(
    match_id: str,
    ball: Ball,
    kind: CricketEventKind,
    text: str,
    score: str,
    player: tuple[str | None, str | None] = (None, None),
    value: int | None = None,
    suffix: str = "",
) -> CricketEvent:
    return CricketEvent(
        event_id=f"{match_id}:{ball.ball_id}:{kind.value}{suffix}" + (f":{value}" if kind in VALUE_IN_ID else ""),
        kind=kind,
        text=text,
        innings=ball.innings,
        score=score,
        ball=ball,
        player_id=player[0],
        player=player[1],
        value=value,
    )
