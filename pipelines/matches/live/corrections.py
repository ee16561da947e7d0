"""Corrections of the scorer, reported as correction events, never as balls or negative runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from datastore.matches.cricket import Ball, BatterStatus, BattingLine, MatchSnapshot
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import ActiveMatch

MAX_CORRECTIONS = 12  # reported one by one, of balls and of batters


@dataclass(frozen=True, slots=True)
class Amendments:
    """The differences of balls that were known before."""

    #: Pairs of the old and the new ball.
    changed: tuple[tuple[Ball, Ball], ...] = ()
    removed: tuple[Ball, ...] = ()
    #: New ids of balls that are otherwise unchanged.
    renumbered: frozenset[int] = frozenset()

    @property
    def innings(self) -> set[int]:
        return {new.innings for _, new in self.changed} | {ball.innings for ball in self.removed}

    @property
    def batters(self) -> set[tuple[int, str]]:
        """The innings and player id of each batter whose figures the amended balls explain."""
        balls = [*self.removed, *(ball for pair in self.changed for ball in pair)]
        faced = {(ball.innings, ball.batter_id) for ball in balls}
        return faced | {(ball.innings, wicket.player_id) for ball in balls for wicket in ball.wickets}


def amendments(known: Sequence[Ball], balls: Sequence[Ball]) -> Amendments:
    """Compare the balls. `known` may be the last balls only; earlier balls are not compared."""
    old = {ball.ball_id: ball for ball in known}
    now = {ball.ball_id: ball for ball in balls}
    gone = {id: ball for id, ball in old.items() if id not in now}
    renumbered = _renumbered(gone, [ball for id, ball in now.items() if id not in old]) if gone else {}
    return Amendments(
        changed=tuple((before, now[id]) for id, before in old.items() if id in now and now[id] != before),
        removed=tuple(ball for id, ball in gone.items() if id not in renumbered),
        renumbered=frozenset(renumbered.values()),
    )


def _renumbered(gone: Mapping[int, Ball], new: Sequence[Ball]) -> Mapping[int, int]:
    """Map the ids of missing balls to the ids under which the same balls returned."""
    returned: dict[Ball, list[int]] = {}
    for ball in new:
        returned.setdefault(replace(ball, ball_id=0), []).append(ball.ball_id)
    renumbered: dict[int, int] = {}
    for id, ball in gone.items():
        if ids := returned.get(replace(ball, ball_id=0)):
            renumbered[id] = ids.pop(0)
    return renumbered


def corrections(
    active: ActiveMatch, previous: MatchSnapshot | None, snapshot: MatchSnapshot, amended: Amendments
) -> Iterator[CricketEvent]:
    """Yield an event for each amended ball and withdrawn innings; then for unexplained totals and batters."""
    gone = _gone(active, snapshot, amended)
    for number in sorted(gone):
        yield correction(active, f"innings:{number}", f"Correction: innings {number} was taken back", number)
    yield from _of_balls(active, amended, gone)
    yield from _of_totals(active, snapshot, gone | amended.innings)
    if previous is not None:
        yield from _of_batters(active, previous, snapshot, amended.batters)


def is_lower(active: ActiveMatch, snapshot: MatchSnapshot) -> bool:
    """Return whether an innings has fewer runs, wickets or balls than before."""
    return any(True for _ in _lower(active, snapshot))


def correction(
    active: ActiveMatch, key: str, text: str, innings: int | None = None, ball: Ball | None = None
) -> CricketEvent:
    # The version distinguishes repeated corrections of the same subject.
    event_id = f"{active.match_id}:correction:{active.version + 1}:{key}"
    return CricketEvent(event_id=event_id, kind=CricketEventKind.CORRECTION, text=text, innings=innings, ball=ball)


def _gone(active: ActiveMatch, snapshot: MatchSnapshot, amended: Amendments) -> set[int]:
    """Return the innings that were withdrawn as a whole."""
    present = {ball.innings for ball in snapshot.balls}
    present |= {score.number for score in snapshot.match.innings if score.legal_balls or score.forfeited}
    before = {ball.innings for ball in amended.removed} | {
        score.number for score in active.live.innings if score.legal_balls or score.runs
    }
    return before - present


def _of_balls(active: ActiveMatch, amended: Amendments, gone: set[int]) -> Iterator[CricketEvent]:
    changes = [(new, f"Correction at {new.label}: {_difference(old, new)}") for old, new in amended.changed]
    changes += [
        (ball, f"Correction: the ball at {ball.label} ({_describe(ball)}) was taken back")
        for ball in amended.removed
        if ball.innings not in gone
    ]
    for ball, text in changes[:MAX_CORRECTIONS]:
        yield correction(active, f"ball:{ball.ball_id}", text, ball.innings, ball)
    if len(changes) > MAX_CORRECTIONS:
        more = len(changes) - MAX_CORRECTIONS
        yield correction(active, "balls", f"Correction: {more} more balls were amended", changes[-1][0].innings)


def _of_totals(active: ActiveMatch, snapshot: MatchSnapshot, explained: set[int]) -> Iterator[CricketEvent]:
    for number, text in _lower(active, snapshot):
        if number not in explained:
            yield correction(active, f"total:{number}", text, number)


def _lower(active: ActiveMatch, snapshot: MatchSnapshot) -> Iterator[tuple[int, str]]:
    """Yield the innings that have fewer runs, wickets or balls than before."""
    now = {score.number: score for score in snapshot.match.innings}
    for old in active.live.innings:
        new = now.get(old.number)
        if new is not None and (new.runs < old.runs or new.wickets < old.wickets or new.legal_balls < old.legal_balls):
            before, after = (f"{score.runs}/{score.wickets} ({score.overs})" for score in (old, new))
            yield old.number, f"Correction: {before} is now {after}"


def _of_batters(
    active: ActiveMatch, previous: MatchSnapshot, snapshot: MatchSnapshot, explained: set[tuple[int, str]]
) -> Iterator[CricketEvent]:
    """Yield amended dismissals, batters who are in again, and reduced runs."""
    now = _lines(snapshot)
    changes = [
        (innings, player_id, text)
        for (innings, player_id), old in _lines(previous).items()
        if (innings, player_id) not in explained and (text := _amended(old, now.get((innings, player_id))))
    ]
    for innings, player_id, text in changes[:MAX_CORRECTIONS]:
        yield correction(active, f"batter:{innings}:{player_id}", f"Correction: {text}", innings)
    if len(changes) > MAX_CORRECTIONS:
        more = len(changes) - MAX_CORRECTIONS
        yield correction(active, "batters", f"Correction: {more} more batters were amended", changes[-1][0])


def _amended(old: BattingLine, new: BattingLine | None) -> str | None:
    if new is None or new == old:
        return None
    if old.status is BatterStatus.OUT and (new.status, new.dismissal) != (old.status, old.dismissal):
        return f"{old.name}, {old.dismissal}, is now {new.dismissal or 'not out'}"
    return f"{old.name} has {new.runs}, not {old.runs}" if new.runs < old.runs else None


def _lines(snapshot: MatchSnapshot) -> Mapping[tuple[int, str], BattingLine]:
    cards = snapshot.match.scorecards or ()
    return {(card.number, line.player_id): line for card in cards for line in card.batting}


def _difference(old: Ball, new: Ball) -> str:
    before, after = _describe(old), _describe(new)
    if before != after:
        return f"{before}, now {after}"
    players = (
        ("batter", old.batter, new.batter),
        ("non-striker", old.non_striker, new.non_striker),
        ("bowler", old.bowler, new.bowler),
    )
    return ", ".join(f"the {role} is {now}, not {before}" for role, before, now in players if before != now) or after


def _describe(ball: Ball) -> str:
    parts = [f"{ball.batter_runs} off the bat"] if ball.batter_runs else []
    extras = ball.extras
    kinds = {
        "wide": extras.wides,
        "no-ball": extras.no_balls,
        "bye": extras.byes,
        "leg bye": extras.leg_byes,
        "penalty": extras.penalty,
    }
    parts += [
        f"{runs} {kind}" + ("s" if runs > 1 and kind != "penalty" else "") for kind, runs in kinds.items() if runs
    ]
    for wicket in ball.wickets:
        by = f" by {'/'.join(wicket.fielders)}" if wicket.fielders else ""
        parts.append(f"{wicket.name} {wicket.kind}{by}")
    return ", ".join(parts) or "no run"
