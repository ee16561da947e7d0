"""What the scorer took back or changed: told as corrections, never as balls or negative runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from datastore.matches.cricket import Ball, BatterStatus, BattingLine, CricketEvent, EventKind, MatchSnapshot
from datastore.matches.live_state import ActiveMatch

MOST_BALLS_TOLD = 12


@dataclass(frozen=True, slots=True)
class Amendments:
    """How balls that were known differ now. `inserted` are ids that came late, between balls that were known."""

    changed: tuple[tuple[Ball, Ball], ...] = ()
    removed: tuple[Ball, ...] = ()
    inserted: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed or self.inserted)

    @property
    def innings(self) -> set[int]:
        touched = [new for _, new in self.changed] + list(self.removed)
        return {ball.innings for ball in touched}

    @property
    def now_more_dramatic(self) -> list[Ball]:
        """Of balls that a wicket, a four or a six was added to, what nobody has been told yet, and nothing else."""
        return [ball for old, new in self.changed if (ball := _gained(old, new)) is not None]


def amendments(known: Sequence[Ball], balls: Sequence[Ball]) -> Amendments:
    """`known` may be the last balls only: what lies before them is not compared."""
    if not known or tuple(balls[: len(known)]) == tuple(known):
        return Amendments()
    first, last = known[0].ball_id, known[-1].ball_id
    old = {ball.ball_id: ball for ball in known}
    now = {ball.ball_id: ball for ball in balls if first <= ball.ball_id <= last}
    return Amendments(
        changed=tuple((old[id], ball) for id, ball in now.items() if id in old and old[id] != ball),
        removed=tuple(ball for id, ball in old.items() if id not in now),
        inserted=frozenset(now.keys() - old.keys()),
    )


def _gained(old: Ball, new: Ball) -> Ball | None:
    had = {wicket.player_id for wicket in old.wickets if wicket.is_out}
    wickets = tuple(wicket for wicket in new.wickets if wicket.is_out and wicket.player_id not in had)
    gained = replace(new, four=new.four and not old.four, six=new.six and not old.six, wickets=wickets)
    return gained if gained.four or gained.six or wickets else None


def corrections(
    active: ActiveMatch, previous: MatchSnapshot | None, snapshot: MatchSnapshot, amended: Amendments
) -> Iterator[CricketEvent]:
    """One event for each ball that was amended or taken back; for the rest, for each total and batter."""
    yield from _of_balls(active, amended)
    told = amended.innings
    yield from _of_totals(active, snapshot, told)
    if previous is not None:
        yield from _of_batters(active, previous, snapshot, told)


def _of_balls(active: ActiveMatch, amended: Amendments) -> Iterator[CricketEvent]:
    changes = [(new, f"Correction at {new.label}: {_told(old)}, now {_told(new)}") for old, new in amended.changed]
    changes += [
        (ball, f"Correction: the ball at {ball.label} ({_told(ball)}) was taken back") for ball in amended.removed
    ]
    for ball, text in changes[:MOST_BALLS_TOLD]:
        yield _correction(active, f"ball:{ball.ball_id}", text, ball.innings, ball)
    if len(changes) > MOST_BALLS_TOLD:
        more = len(changes) - MOST_BALLS_TOLD
        yield _correction(active, "balls", f"Correction: {more} more balls were amended", changes[-1][0].innings)


def _of_totals(active: ActiveMatch, snapshot: MatchSnapshot, told: set[int]) -> Iterator[CricketEvent]:
    now = {score.number: score for score in snapshot.match.innings}
    for old in active.live.innings:
        new = now.get(old.number)
        if old.number in told:
            continue
        if new is None:
            yield _correction(
                active, f"innings:{old.number}", f"Correction: innings {old.number} was taken back", old.number
            )
        elif (new.runs, new.wickets, new.legal_balls) != (old.runs, old.wickets, old.legal_balls) and (
            new.runs < old.runs or new.wickets < old.wickets or new.legal_balls < old.legal_balls
        ):
            text = f"Correction: {old.runs}/{old.wickets} ({old.overs}) is now {new.runs}/{new.wickets} ({new.overs})"
            yield _correction(active, f"total:{old.number}", text, old.number)


def _of_batters(
    active: ActiveMatch, previous: MatchSnapshot, snapshot: MatchSnapshot, told: set[int]
) -> Iterator[CricketEvent]:
    """A dismissal that reads otherwise, a batter who is in again, runs that were taken from one."""
    now = _lines(snapshot)
    for (innings, player_id), old in _lines(previous).items():
        new = now.get((innings, player_id))
        if innings in told or new is None or new == old:
            continue
        if old.status is BatterStatus.OUT and (new.status, new.dismissal) != (old.status, old.dismissal):
            text = f"Correction: {old.name}, {old.dismissal}, is now {new.dismissal or 'not out'}"
            yield _correction(active, f"batter:{innings}:{player_id}", text, innings)
        elif new.runs < old.runs:
            text = f"Correction: {old.name} has {new.runs}, not {old.runs}"
            yield _correction(active, f"runs:{innings}:{player_id}", text, innings)


def _lines(snapshot: MatchSnapshot) -> Mapping[tuple[int, str], BattingLine]:
    cards = snapshot.match.scorecards or ()
    return {(card.number, line.player_id): line for card in cards for line in card.batting}


def _told(ball: Ball) -> str:
    parts = [f"{ball.batter_runs} off the bat"] if ball.batter_runs else []
    extras = ball.extras
    kinds = {
        "wide": extras.wides,
        "no-ball": extras.no_balls,
        "bye": extras.byes,
        "leg bye": extras.leg_byes,
        "penalty": extras.penalty,
    }
    parts += [f"{runs} {kind}{'s' if runs > 1 else ''}" for kind, runs in kinds.items() if runs]
    for wicket in ball.wickets:
        by = f" by {' / '.join(wicket.fielders)}" if wicket.fielders else ""
        parts.append(f"{wicket.name} {wicket.kind}{by}")
    return ", ".join(parts) or "no run"


def _correction(
    active: ActiveMatch, key: str, text: str, innings: int | None = None, ball: Ball | None = None
) -> CricketEvent:
    # A thing may be corrected twice: the version tells which time it was.
    event_id = f"{active.match_id}:correction:{active.version + 1}:{key}"
    return CricketEvent(event_id=event_id, kind=EventKind.CORRECTION, text=text, innings=innings, ball=ball)
