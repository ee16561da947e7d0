"""What a tick finds: how a match stands now, against the state that was stored, and what happened in between."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore.matches.cricket import (
    RECENT_BALLS,
    Ball,
    CricketEvent,
    EventKind,
    InningsScore,
    Match,
    MatchPhase,
    MatchSnapshot,
)
from datastore.matches.live_state import ActiveMatch, LiveScore, Part, at_the_crease
from pipelines.matches.ball_events import BallWalk, boundary_and_wickets
from pipelines.matches.corrections import Amendments, amendments, corrections

PARTS: Mapping[Part, tuple[str, ...]] = {
    Part.STATUS: ("status", "phase"),
    Part.SCORE: ("innings", "partnership", "recent_balls"),
    Part.BATTING: ("batting",),
    Part.BOWLING: ("bowling",),
    Part.TARGET: ("target",),
    Part.RESULT: ("result",),
    Part.NOTE: ("note",),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What changed: the state as it is now, the parts that differ, the events, and all that was announced so far."""

    live: LiveScore
    parts: tuple[Part, ...]
    events: tuple[CricketEvent, ...]
    announced: tuple[str, ...]
    last_ball_id: int

    @property
    def nothing(self) -> bool:
        return not self.parts and not self.events


@dataclass(slots=True)
class MatchWatch:
    """One match as its poller remembers it. `previous` is what the provider said when the state was written, if known.

    `team_name` tells the name of a team by its id.
    """

    match_id: str
    previous: MatchSnapshot | None = None
    team_name: Callable[[str], str] = str
    _walk: BallWalk | None = None
    _walked: tuple[Ball, ...] = ()
    _penalties: dict[int, int] = field(default_factory=dict)

    def compare(self, active: ActiveMatch, snapshot: MatchSnapshot) -> Found:
        """What the snapshot tells that is new. The watch moves on; after a write that failed, begin with a new one."""
        snapshot = self._with_balls(snapshot)
        live = live_score(snapshot)
        known = self._known_balls(active) if snapshot.balls else ()
        amended = amendments(known, snapshot.balls)
        once = _Announcer(active, snapshot.match, self.team_name)
        events = [*corrections(active, self.previous, snapshot, amended)]
        events += [
            event for ball in amended.now_more_dramatic for event in boundary_and_wickets(self.match_id, ball, None)
        ]
        if amended:
            self._walk = None
        events += self._walk_on(active, snapshot, amended, once)
        events += once.state_events()
        parts = [part for part, names in PARTS.items() if any(_differs(active.live, live, name) for name in names)]
        if self.previous is not None and _details(self.previous.match) != _details(snapshot.match):
            parts.append(Part.SCORECARDS)
        self.previous = snapshot
        last = snapshot.balls[-1].ball_id if snapshot.balls else 0
        if not amended.removed:
            last = max(last, active.previous_ball_id)
        return Found(live, tuple(parts), tuple(events), tuple(once.announced), last)

    def _with_balls(self, snapshot: MatchSnapshot) -> MatchSnapshot:
        """An answer that has innings and not one ball lacks them: they were not all taken back."""
        if snapshot.balls or self.previous is None or not any(score.legal_balls for score in snapshot.match.innings):
            return snapshot
        return replace(snapshot, balls=self.previous.balls)

    def _known_balls(self, active: ActiveMatch) -> Sequence[Ball]:
        return active.live.recent_balls if self.previous is None else self.previous.balls

    def _walk_on(
        self, active: ActiveMatch, snapshot: MatchSnapshot, amended: Amendments, once: "_Announcer"
    ) -> Iterator[CricketEvent]:
        """The events of balls that were not told; those before them are walked in silence."""
        self._penalties.update(_penalties_without_ball(snapshot))
        balls = snapshot.balls
        if self._walk is None or balls[: len(self._walked)] != self._walked:
            self._walk = BallWalk(self.match_id, snapshot.match.balls_per_over, lambda n: self._penalties.get(n, 0))
            self._walked = ()
        for ball in balls[len(self._walked) :]:
            found = self._walk.feed(ball)
            if ball.ball_id > active.previous_ball_id or ball.ball_id in amended.inserted:
                yield from once.innings_events(ball)
                yield from found
        self._walked = balls


def live_score(snapshot: MatchSnapshot) -> LiveScore:
    match = snapshot.match
    card = match.scorecards[-1] if match.scorecards else None
    return LiveScore(
        status=match.status,
        phase=match.phase,
        innings=match.innings,
        batting=at_the_crease(card.batting) if card else (),
        bowling=tuple(line for line in card.bowling if line.bowling) if card else (),
        partnership=card.partnership if card else None,
        target=match.target,
        result=match.result,
        note=match.note,
        recent_balls=snapshot.balls[-RECENT_BALLS:],
    )


def _differs(before: LiveScore, after: LiveScore, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def _details(match: Match) -> Match:
    """A match without what its live score and its bookkeeping tell."""
    return replace(
        match,
        status="",
        phase=MatchPhase.UNKNOWN,
        innings=(),
        target=None,
        result=None,
        note=None,
        version=0,
        fence=0,
        last_ball_id=0,
        updated_at=None,
        live_updated_at=None,
        archived_at=None,
    )


def _penalties_without_ball(snapshot: MatchSnapshot) -> dict[int, int]:
    """Penalty runs that were awarded between balls: a running score from balls alone would lack them."""
    total = {score.number: score.extras.penalty for score in snapshot.match.innings if score.extras.penalty}
    for ball in snapshot.balls if total else ():
        if ball.innings in total:
            total[ball.innings] -= ball.extras.penalty
    return {number: max(0, runs) for number, runs in total.items()}


class _Announcer:
    """Events that come once in a match: `announced` keeps what was told, whatever happens in between."""

    def __init__(self, active: ActiveMatch, match: Match, team_name: Callable[[str], str]) -> None:
        self._active = active
        self._match = match
        self._team_name = team_name
        self._scores = {score.number: score for score in match.innings}
        self.announced = list(active.announced)

    def innings_events(self, ball: Ball) -> Iterator[CricketEvent]:
        """At a ball: the innings before is over, this one begins."""
        number = ball.innings
        score = self._scores.get(number)
        if number > 1:
            yield from self._break_after(number - 1)
        if score is not None and score.super_over and not self._is_second_super_over(number):
            yield from self._once(f"super:{number}", EventKind.SUPER_OVER, "Super over!", number)
        side = f"{self._side(score)} bat: " if score is not None else ""
        yield from self._once(f"start:{number}", EventKind.INNINGS_START, f"{side}innings {number} begins", number)

    def state_events(self) -> Iterator[CricketEvent]:
        """What the match says of itself now."""
        match, before = self._match, self._active.live.phase
        if match.innings and match.status.strip().lower() == "innings break":
            yield from self._break_after(match.innings[-1].number)
        if match.target is not None:
            yield from self._target()
        if match.phase is MatchPhase.INTERRUPTED and before is not MatchPhase.INTERRUPTED and match.innings:
            yield self._event(
                f"rain:{self._active.version + 1}", EventKind.RAIN, f"Play is interrupted ({match.status})"
            )
        if match.phase is MatchPhase.LIVE and before is MatchPhase.INTERRUPTED:
            yield self._event(f"resumption:{self._active.version + 1}", EventKind.RESUMPTION, "Play resumes")
        if match.result is not None:
            yield from self._once(f"result:{match.result.text}", EventKind.RESULT, match.result.text)
        elif match.phase.is_over:
            yield from self._once(f"over:{match.phase.value}", EventKind.RESULT, match.note or match.status)

    def _break_after(self, number: int) -> Iterator[CricketEvent]:
        score = self._scores.get(number)
        if score is not None:
            text = f"Innings break: {self._side(score)} {_total(score)}"
            yield from self._once(f"break:{number}", EventKind.INNINGS_BREAK, text, number, _total(score))

    def _target(self) -> Iterator[CricketEvent]:
        target = self._match.target
        assert target is not None
        revised = any(key.startswith("target:") for key in self.announced)
        overs = f" from {target.overs} overs" if target.overs else ""
        by = f" ({target.method})" if target.method else ""
        text = f"Target {'revised to ' if revised else ''}{target.runs}{overs}{by}"
        key = f"target:{target.runs}:{target.overs}"
        yield from self._once(key, EventKind.TARGET, text, value=target.runs)

    def _side(self, score: InningsScore) -> str:
        return self._team_name(score.team_id)

    def _is_second_super_over(self, number: int) -> bool:
        """Super overs come in pairs; the event is told at the first of each."""
        first = min(score.number for score in self._scores.values() if score.super_over)
        return (number - first) % 2 == 1

    def _once(
        self,
        key: str,
        kind: EventKind,
        text: str,
        innings: int | None = None,
        score: str | None = None,
        value: int | None = None,
    ) -> Iterator[CricketEvent]:
        if key not in self.announced:
            self.announced.append(key)
            yield self._event(key, kind, text, innings, score, value)

    def _event(
        self,
        key: str,
        kind: EventKind,
        text: str,
        innings: int | None = None,
        score: str | None = None,
        value: int | None = None,
    ) -> CricketEvent:
        event_id = f"{self._match.match_id}:{key}"
        return CricketEvent(event_id=event_id, kind=kind, text=text, innings=innings, score=score, value=value)


def _total(score: InningsScore) -> str:
    return f"{score.runs}/{score.wickets}" + ("d" if score.declared else "")
