"""Events that a match tells of itself, each once: innings, breaks, targets, super overs, interruptions, the result.

What was told is a log of keys, `announced`: it is stored with the state, whatever happens in between.
"""

from collections.abc import Callable, Iterator

from datastore.matches.cricket import Ball, CricketEvent, CricketEventKind, InningsScore, Match, MatchPhase, Target
from datastore.matches.live_state import ActiveMatch

IN_BETWEEN = "innings break"
ENDINGS = {
    MatchPhase.FINISHED: "Match finished",
    MatchPhase.ABANDONED: "Match abandoned",
    MatchPhase.CANCELLED: "Match cancelled",
    MatchPhase.POSTPONED: "Match postponed",
}
# A provider that cannot make up its mind is not repeated for ever.
MOST_TARGETS = 12
MOST_RESULTS = 12


class Announcer:
    """`announced` are the keys of all that was told, those of the events found here included."""

    def __init__(self, active: ActiveMatch, match: Match, team_name: Callable[[str], str]) -> None:
        self._active = active
        self._match = match
        self._team_name = team_name
        self._scores = {score.number: score for score in match.innings}
        self.announced = list(active.announced) or _told_before(active)

    def innings_events(self, ball: Ball) -> Iterator[CricketEvent]:
        """At a ball: the innings before is over, this one begins."""
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
        """What the match says of itself now."""
        match, before = self._match, self._active.live.phase
        closed = _last_played(match.innings)
        if closed is not None and match.status.strip().lower() == IN_BETWEEN:
            yield from self._break_after(closed.number)
        if match.target is not None:
            yield from self._target(match.target)
        if match.phase is MatchPhase.INTERRUPTED and before is not MatchPhase.INTERRUPTED and match.innings:
            yield self._of_version("rain", CricketEventKind.RAIN, f"Play is interrupted ({match.status})")
        if match.phase is MatchPhase.LIVE and before is MatchPhase.INTERRUPTED:
            yield self._of_version("resumption", CricketEventKind.RESUMPTION, "Play resumes")
        yield from self._result()

    def _break_after(self, number: int) -> Iterator[CricketEvent]:
        score = self._scores.get(number)
        if score is not None:
            text = f"Innings break: {self._side(score)} {_total(score)}"
            yield from self._once(f"break:{number}", CricketEventKind.INNINGS_BREAK, text, number, _total(score))

    def _target(self, target: Target) -> Iterator[CricketEvent]:
        """A target that is not the one told last; a super over after a super over may have the same again."""
        stage = _stage(self._match.innings)
        told = self._log("target")
        last = told[-1] if told else None
        value = f"{target.runs}:{target.overs}"
        again = last is not None and last.partition(":")[2] == value
        if again and (last == f"{stage}:{value}" or self._active.live.target is not None):
            return
        if len(told) >= MOST_TARGETS:
            return
        revised = any(one.startswith(f"{stage}:") for one in told)
        key = f"target:{len(told)}:{stage}:{value}"
        yield from self._once(key, CricketEventKind.TARGET, _target_text(target, stage, revised), value=target.runs)

    def _result(self) -> Iterator[CricketEvent]:
        """A result that is not the one told last; or that it was taken back, for the match goes on."""
        match = self._match
        told = self._log("result")
        last = told[-1] if told else ""
        now = _ending(match)
        if now == last or len(told) >= MOST_RESULTS:
            return
        key = f"result:{len(told)}:{now}"
        if now:
            # A match that is over may lose its result for a while: that is no other result.
            if match.result is not None or not last:
                yield from self._once(key, CricketEventKind.RESULT, now)
        elif match.phase is not MatchPhase.UNKNOWN:
            yield from self._once(key, CricketEventKind.CORRECTION, f"Correction: the match goes on ({last})")

    def _log(self, what: str) -> list[str]:
        """What was told of this, oldest first."""
        return [key.split(":", 2)[2] for key in self.announced if key.startswith(f"{what}:")]

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

    def _of_version(self, key: str, kind: CricketEventKind, text: str) -> CricketEvent:
        """What may happen many times."""
        return CricketEvent(event_id=f"{self._match_id}:{key}:{self._active.version + 1}", kind=kind, text=text)

    @property
    def _match_id(self) -> str:
        return self._active.match_id


def _told_before(active: ActiveMatch) -> list[str]:
    """What a match that was put on the list again has told, by the state it goes on from: its log is gone."""
    live = active.live
    if active.announced or not active.previous_ball_id:
        return []
    played = [score for score in live.innings if score.legal_balls or score.runs]
    told = [f"start:{score.number}" for score in played]
    told += [
        f"super:{score.number}"
        for score in played
        if score.super_over and not _is_second_super_over(score.number, live.innings)
    ]
    between = live.status.strip().lower() == IN_BETWEEN
    told += [f"break:{score.number}" for score in (played if between else played[:-1])]
    if live.target is not None:
        told.append(f"target:0:{_stage(live.innings)}:{live.target.runs}:{live.target.overs}")
    if live.phase.is_over:
        told.append(f"result:0:{live.result.text if live.result else live.note or ENDINGS[live.phase]}")
    return told


def _last_played(innings: tuple[InningsScore, ...]) -> InningsScore | None:
    """The innings that a break comes after: the next one may be listed already."""
    played = [score for score in innings if score.legal_balls or score.runs or score.forfeited]
    return played[-1] if played else None


def _is_second_super_over(number: int, innings: tuple[InningsScore, ...]) -> bool:
    """Super overs come in pairs; the event is told at the first of each."""
    first = min(score.number for score in innings if score.super_over)
    return (number - first) % 2 == 1


def _stage(innings: tuple[InningsScore, ...]) -> int:
    """0 for the match itself, then the number of the super over."""
    return (sum(score.super_over for score in innings) + 1) // 2


def _target_text(target: Target, stage: int, revised: bool) -> str:
    if stage:
        return f"Target {'revised to ' if revised else ''}{target.runs} in the super over"
    overs = f" from {target.overs} overs" if target.overs else ""
    by = f" ({target.method})" if target.method else ""
    return f"Target {'revised to ' if revised else ''}{target.runs}{overs}{by}"


def _ending(match: Match) -> str:
    """How a match ended in a line; empty while it goes on."""
    if match.result is not None:
        return match.result.text
    return (match.note or ENDINGS[match.phase]) if match.phase.is_over else ""


def _total(score: InningsScore) -> str:
    return f"{score.runs}/{score.wickets}" + ("d" if score.declared else "")
