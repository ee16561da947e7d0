"""Walks through a match ball by ball and tells what is worth telling: wickets, boundaries, milestones, maidens.

One walk belongs to one match. It is fed every ball once, in order; balls whose events were told before a restart are
fed too, for what comes after depends on them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from datastore.matches.cricket import Ball, CricketEvent, EventKind, Wicket

MILESTONE = 50
HAT_TRICK = 3


@dataclass(slots=True)
class _Innings:
    runs: int = 0
    wickets: int = 0
    batters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    partnership: int = 0
    over: int = -1
    legal_balls: int = 0
    conceded: int = 0
    bowlers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class BallWalk:
    """Where the walk is. `penalties` tells the penalty runs of an innings that came with no ball."""

    match_id: str
    balls_per_over: int
    penalties: Callable[[int], int] = lambda _: 0
    _innings: dict[int, _Innings] = field(default_factory=dict)
    _streaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def feed(self, ball: Ball) -> list[CricketEvent]:
        """The events of the next ball."""
        innings = self._innings.setdefault(ball.innings, _Innings())
        before = innings.batters[ball.batter_id], innings.partnership
        self._count(innings, ball)
        score = f"{innings.runs + self.penalties(ball.innings)}/{innings.wickets}"
        events = [
            *boundary_and_wickets(self.match_id, ball, score),
            *self._milestones(innings, ball, score, *before),
            *self._bowling(innings, ball, score),
        ]
        if ball.wickets:  # who retires ends the stand too
            innings.partnership = 0
        return events

    def _count(self, innings: _Innings, ball: Ball) -> None:
        innings.runs += ball.runs
        innings.wickets += sum(wicket.is_out for wicket in ball.wickets)
        innings.batters[ball.batter_id] += ball.batter_runs
        innings.partnership += ball.runs
        if ball.over != innings.over:
            innings.over, innings.legal_balls, innings.conceded, innings.bowlers = ball.over, 0, 0, set()
        innings.legal_balls += ball.legal
        innings.conceded += ball.batter_runs + ball.extras.wides + ball.extras.no_balls
        innings.bowlers.add(ball.bowler_id)
        credited = any(wicket.bowler_credited and wicket.is_out for wicket in ball.wickets)
        self._streaks[ball.bowler_id] = self._streaks[ball.bowler_id] + 1 if credited else 0

    def _milestones(
        self, innings: _Innings, ball: Ball, score: str, runs_before: int, stand_before: int
    ) -> Iterator[CricketEvent]:
        runs = innings.batters[ball.batter_id]
        for value in _passed(runs_before, runs):
            kind = {50: EventKind.FIFTY, 100: EventKind.HUNDRED}.get(value, EventKind.MILESTONE)
            text = f"{ball.batter} reaches {value}"
            yield _event(self.match_id, ball, kind, text, score, (ball.batter_id, ball.batter), value)
        for value in _passed(stand_before, innings.partnership):
            text = f"{value} partnership between {ball.batter} and {ball.non_striker}"
            yield _event(self.match_id, ball, EventKind.PARTNERSHIP, text, score, value=value)

    def _bowling(self, innings: _Innings, ball: Ball, score: str) -> Iterator[CricketEvent]:
        bowler = ball.bowler_id, ball.bowler
        streak = self._streaks[ball.bowler_id]
        if streak and streak % HAT_TRICK == 0:
            yield _event(self.match_id, ball, EventKind.HAT_TRICK, f"Hat-trick for {ball.bowler}!", score, bowler)
        complete = ball.legal and innings.legal_balls == self.balls_per_over
        if complete and not innings.conceded and len(innings.bowlers) == 1:
            yield _event(self.match_id, ball, EventKind.MAIDEN, f"A maiden over from {ball.bowler}", score, bowler)


def boundary_and_wickets(match_id: str, ball: Ball, score: str | None) -> Iterator[CricketEvent]:
    """What a ball tells by itself."""
    batter = ball.batter_id, ball.batter
    if ball.four:
        yield _event(match_id, ball, EventKind.FOUR, f"FOUR! {ball.batter} off {ball.bowler}", score, batter, 4)
    if ball.six:
        yield _event(match_id, ball, EventKind.SIX, f"SIX! {ball.batter} off {ball.bowler}", score, batter, 6)
    for number, wicket in enumerate(wicket for wicket in ball.wickets if wicket.is_out):
        text = f"WICKET! {wicket.name} {dismissal(wicket, ball.bowler)}"
        out = wicket.player_id, wicket.name
        yield _event(match_id, ball, EventKind.WICKET, text, score, out, suffix=f":{number}" if number else "")


def dismissal(wicket: Wicket, bowler: str) -> str:
    """How scorecards write it: c Smith b Jones."""
    kind, fielders = wicket.kind.lower(), " / ".join(wicket.fielders)
    if kind in ("caught and bowled", "caught & bowled"):
        return f"c & b {bowler}"
    if kind == "caught":
        return f"c {fielders} b {bowler}" if fielders else f"caught b {bowler}"
    if kind == "stumped":
        return f"st {fielders} b {bowler}" if fielders else f"stumped b {bowler}"
    if kind == "run out":
        return f"run out ({fielders})" if fielders else "run out"
    if kind == "bowled":
        return f"b {bowler}"
    return f"{kind} b {bowler}" if wicket.bowler_credited else kind


def _passed(before: int, after: int) -> range:
    """The multiples of 50 that were reached between two scores."""
    return range((before // MILESTONE + 1) * MILESTONE, after + 1, MILESTONE)


def _event(
    match_id: str,
    ball: Ball,
    kind: EventKind,
    text: str,
    score: str | None,
    player: tuple[str | None, str | None] = (None, None),
    value: int | None = None,
    suffix: str = "",
) -> CricketEvent:
    return CricketEvent(
        event_id=f"{match_id}:{ball.ball_id}:{kind.value}{suffix}" + (f":{value}" if kind in VALUED else ""),
        kind=kind,
        text=text,
        innings=ball.innings,
        score=score,
        ball=ball,
        player_id=player[0],
        player=player[1],
        value=value,
    )


VALUED = (EventKind.PARTNERSHIP, EventKind.MILESTONE)
