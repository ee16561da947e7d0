"""Match-level events, each announced once: innings, breaks, targets, super overs, interruptions, the result.

`announced` is the log of the keys of announced events. It is stored with the state, so a restart repeats no event.
"""

from collections.abc import Callable, Iterator

from datastore.matches.cricket import Ball, InningsScore, Match, MatchPhase, Target
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import ActiveMatch

IN_BETWEEN = "innings break"
ENDINGS = {
    MatchPhase.FINISHED: "Match finished",
    MatchPhase.ABANDONED: "Match abandoned",
    MatchPhase.CANCELLED: "Match cancelled",
    MatchPhase.POSTPONED: "Match postponed",
}
# Limits on the announcements for a provider that keeps changing its data.
MAX_TARGETS = 12
MAX_RESULTS = 12


class Announcer:
    """The announcements of one tick: the events that follow from the fields of the match, not from its balls."""

    def __init__(self, active: ActiveMatch, match: Match, team_name: Callable[[str], str]) -> None:
        self._active = active
        self._match = match
        self._team_name = team_name
        self._scores = {score.number: score for score in match.innings}
        #: The keys of all announced events, including those of this tick.
        self.announced = list(active.announced) or _announced_before(active)

    def innings_events(self, ball: Ball) -> Iterator[CricketEvent]:
        """Yield the end of the previous innings and the start of this one, at a ball."""
        number = ball.innings
        score = self._scores.get(number)
        if number > 1:
            yield from self._break_after(number - 1)
        if score is not None and score.super_over and not _is_second_super_over(number, self._match.innings):
            yield from self._once(f"super:{number}", CricketEventKind.SUPER_OVER, "Super over!", number)
        side = f"{self._side(score)} bat: " if score is not None else ""
        yield from self._once(
            f"start:{number}", CricketEventKind.INNINGS_START, f"{side}innings {number} begins", number
        )

    def state_events(self) -> Iterator[CricketEvent]:
        """Yield the events that follow from the present state of the match."""
        match, before = self._match, self._active.live.phase
        closed = _last_played(match.innings)
        if closed is not None and match.status.strip().lower() == IN_BETWEEN:
            yield from self._break_after(closed.number)
        if match.target is not None:
            yield from self._target(match.target)
        if match.phase is MatchPhase.INTERRUPTED and before is not MatchPhase.INTERRUPTED and match.innings:
            yield self._repeatable("rain", CricketEventKind.RAIN, f"Play is interrupted ({match.status})")
        if match.phase is MatchPhase.LIVE and before is MatchPhase.INTERRUPTED:
            yield self._repeatable("resumption", CricketEventKind.RESUMPTION, "Play resumes")
        yield from self._result()

    def _break_after(self, number: int) -> Iterator[CricketEvent]:
        score = self._scores.get(number)
        if score is not None:
            text = f"Innings break: {self._side(score)} {_total(score)}"
            yield from self._once(f"break:{number}", CricketEventKind.INNINGS_BREAK, text, number, _total(score))

    def _target(self, target: Target) -> Iterator[CricketEvent]:
        """Announce a target that differs from the last one. Two super overs may have the same target."""
        stage = _stage(self._match.innings)
        announced = self._announced_values("target")
        last = announced[-1] if announced else None
        value = f"{target.runs}:{target.overs}"
        is_same = last is not None and last.partition(":")[2] == value
        if is_same and (last == f"{stage}:{value}" or self._active.live.target is not None):
            return
        if len(announced) >= MAX_TARGETS:
            return
        is_revised = any(earlier.startswith(f"{stage}:") for earlier in announced)
        key = f"target:{len(announced)}:{stage}:{value}"
        yield from self._once(key, CricketEventKind.TARGET, _target_text(target, stage, is_revised), value=target.runs)

    def _result(self) -> Iterator[CricketEvent]:
        """Announce a result that differs from the last one, or its withdrawal when the match continues."""
        match = self._match
        announced = self._announced_values("result")
        last = announced[-1] if announced else ""
        now = _ending(match)
        if now == last or len(announced) >= MAX_RESULTS:
            return
        key = f"result:{len(announced)}:{now}"
        if now:
            # A provider may drop the result of a finished match for a while. That is not another result.
            if match.result is not None or not last:
                yield from self._once(key, CricketEventKind.RESULT, now)
        elif match.phase is not MatchPhase.UNKNOWN:
            yield from self._once(key, CricketEventKind.CORRECTION, f"Correction: the match goes on ({last})")

    def _announced_values(self, topic: str) -> list[str]:
        """Return the values that were announced for `topic`, oldest first."""
        return [key.split(":", 2)[2] for key in self.announced if key.startswith(f"{topic}:")]

    def _side(self, score: InningsScore) -> str:
        return self._team_name(score.team_id)

    def _once(
        self,
        key: str,
        kind: CricketEventKind,
        text: str,
        innings: int | None = None,
        score: str | None = None,
        value: int | None = None,
    ) -> Iterator[CricketEvent]:
        if key not in self.announced:
            self.announced.append(key)
            event_id = f"{self._match_id}:{key}"
            yield CricketEvent(event_id=event_id, kind=kind, text=text, innings=innings, score=score, value=value)

    def _repeatable(self, key: str, kind: CricketEventKind, text: str) -> CricketEvent:
        """Return an event that may happen several times: its id carries the version."""
        return CricketEvent(event_id=f"{self._match_id}:{key}:{self._active.version + 1}", kind=kind, text=text)

    @property
    def _match_id(self) -> str:
        return self._active.match_id


def _announced_before(active: ActiveMatch) -> list[str]:
    """Rebuild the log of a match that was listed again without one, from its stored state."""
    live = active.live
    if active.announced or not active.previous_ball_id:
        return []
    played = [score for score in live.innings if score.legal_balls or score.runs]
    keys = [f"start:{score.number}" for score in played]
    keys += [
        f"super:{score.number}"
        for score in played
        if score.super_over and not _is_second_super_over(score.number, live.innings)
    ]
    is_in_break = live.status.strip().lower() == IN_BETWEEN
    keys += [f"break:{score.number}" for score in (played if is_in_break else played[:-1])]
    if live.target is not None:
        keys.append(f"target:0:{_stage(live.innings)}:{live.target.runs}:{live.target.overs}")
    if live.phase.is_over:
        keys.append(f"result:0:{live.result.text if live.result else live.note or ENDINGS[live.phase]}")
    return keys


def _last_played(innings: tuple[InningsScore, ...]) -> InningsScore | None:
    """Return the innings before the break: the next innings may already be listed."""
    played = [score for score in innings if score.legal_balls or score.runs or score.forfeited]
    return played[-1] if played else None


def _is_second_super_over(number: int, innings: tuple[InningsScore, ...]) -> bool:
    """Return whether a super over is the second of its pair: the event is announced at the first."""
    first = min(score.number for score in innings if score.super_over)
    return (number - first) % 2 == 1


def _stage(innings: tuple[InningsScore, ...]) -> int:
    """Return 0 for the match itself, else the number of the super over."""
    return (sum(score.super_over for score in innings) + 1) // 2


def _target_text(target: Target, stage: int, revised: bool) -> str:
    if stage:
        return f"Target {'revised to ' if revised else ''}{target.runs} in the super over"
    overs = f" from {target.overs} overs" if target.overs else ""
    by = f" ({target.method})" if target.method else ""
    return f"Target {'revised to ' if revised else ''}{target.runs}{overs}{by}"


def _ending(match: Match) -> str:
    """Return how the match ended, in one line; empty while it is played."""
    if match.result is not None:
        return match.result.text
    return (match.note or ENDINGS[match.phase]) if match.phase.is_over else ""


def _total(score: InningsScore) -> str:
    return f"{score.runs}/{score.wickets}" + ("d" if score.declared else "")
