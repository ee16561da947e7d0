"""The differences between a provider's snapshot and the stored state of a match, and the events between them."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore.matches.cricket import RECENT_BALLS, Ball, Match, MatchSnapshot
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import ActiveMatch, LiveScore, LiveStatePart, live_score_of
from pipelines.matches.live.announcements import Announcer
from pipelines.matches.live.ball_events import BallWalk, event_identity, fallen
from pipelines.matches.live.corrections import Amendments, amendments, correction, corrections, is_lower

PARTS: Mapping[LiveStatePart, tuple[str, ...]] = {
    LiveStatePart.STATUS: ("status", "phase"),
    LiveStatePart.SCORE: ("innings", "partnership", "recent_balls"),
    LiveStatePart.BATTING: ("batting",),
    LiveStatePart.BOWLING: ("bowling",),
    LiveStatePart.TARGET: ("target",),
    LiveStatePart.RESULT: ("result",),
    LiveStatePart.NOTE: ("note",),
}


@dataclass(frozen=True, slots=True)
class MatchDiff:
    """The differences that one tick found."""

    #: The present state.
    live: LiveScore
    #: The parts of the state that differ.
    parts: tuple[LiveStatePart, ...]
    events: tuple[CricketEvent, ...]
    #: The keys of all announced events, including those of this diff.
    announced: tuple[str, ...]
    #: The last ball whose events were reported. It never decreases, even when that ball is withdrawn.
    last_ball_id: int
    #: The snapshot looks older than the state and must not be written.
    is_stale: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.parts and not self.events


@dataclass(slots=True)
class MatchWatch:
    """The poller's memory of one match. After a failed write the poller must start with a new watch."""

    match_id: str
    #: The provider's snapshot when the state was written, if known. It may have the last balls only; earlier balls
    #: are assumed to be unchanged.
    previous: MatchSnapshot | None = None
    #: Returns the name of a team by its id.
    team_name: Callable[[str], str] = str
    #: The fixture was written to match the state since the watch started.
    fixture_is_current: bool = False
    _walk: BallWalk | None = None
    _walked: tuple[Ball, ...] = ()
    _reported: set[Hashable] = field(default_factory=set)
    _withdrawn: set[int] = field(default_factory=set)
    _penalties: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _ball_penalties: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _super_overs: set[int] = field(default_factory=set)
    _suspected_stale: bool = False

    def compare(self, active: ActiveMatch, snapshot: MatchSnapshot) -> MatchDiff:
        """Return what differs in the snapshot, and advance the watch."""
        known = active.live.recent_balls if self.previous is None else self.previous.balls
        lacks_balls = _lacks_balls(snapshot)
        if lacks_balls:
            snapshot = replace(snapshot, balls=known)
        has_grown = snapshot.balls[: len(known)] == known
        if self._is_stale(active, known, snapshot, has_grown):
            return MatchDiff(active.live, (), (), active.announced, active.previous_ball_id, is_stale=True)
        if has_grown:  # keep the known objects: comparing the same object again costs nothing
            snapshot = replace(snapshot, balls=known + snapshot.balls[len(known) :])
        amended = Amendments() if has_grown else amendments(known, snapshot.balls)
        self._super_overs.update(score.number for score in snapshot.match.innings if score.super_over)
        announcer = Announcer(active, snapshot.match, self.team_name)
        events = [*corrections(active, self.previous, snapshot, amended)]
        self._withdrawn.update(ball.ball_id for ball in amended.removed)
        if not lacks_balls:
            events += self._ball_events(active, known, snapshot, announcer, amended)
        events += announcer.state_events()
        live = live_score_of(snapshot.match, snapshot.balls[-RECENT_BALLS:])
        changed = {name for name in live.__struct_fields__ if getattr(active.live, name) != getattr(live, name)}
        parts = [part for part, names in PARTS.items() if not changed.isdisjoint(names)]
        if self.previous is not None and _details(self.previous.match) != _details(snapshot.match):
            parts.append(LiveStatePart.SCORECARDS)
        self.previous = snapshot
        last = snapshot.balls[-1].ball_id if snapshot.balls else 0
        announced = tuple(announcer.announced)
        return MatchDiff(live, tuple(parts), tuple(events), announced, max(last, active.previous_ball_id))

    def _is_stale(self, active: ActiveMatch, known: tuple[Ball, ...], snapshot: MatchSnapshot, has_grown: bool) -> bool:
        """Return whether the snapshot looks older than the previous one. A second one in a row is accepted."""
        balls = snapshot.balls
        is_earlier = not has_grown and len(balls) < len(known) and known[: len(balls)] == balls
        is_older_state = is_earlier or (has_grown and is_lower(active, snapshot))
        has_before = self._walk is not None or self.previous is not None
        self._suspected_stale = is_older_state and has_before and not self._suspected_stale
        return self._suspected_stale

    def _walk_reported(self, active: ActiveMatch, known: tuple[Ball, ...], snapshot: MatchSnapshot) -> None:
        """Walk the balls that another process, or this one before a restart, has already reported."""
        before = [ball for ball in snapshot.balls if not known or ball.ball_id < known[0].ball_id]
        old = tuple(ball for ball in (*before, *known) if ball.ball_id <= active.previous_ball_id)
        for _, events in self._walked_through(replace(snapshot, balls=old)):
            self._reported.update(map(event_identity, events))

    def _ball_events(
        self,
        active: ActiveMatch,
        known: tuple[Ball, ...],
        snapshot: MatchSnapshot,
        announcer: Announcer,
        amended: Amendments,
    ) -> Iterator[CricketEvent]:
        """Yield the events of unreported balls, and new events of balls that were reported and amended."""
        compared_from = 0
        if self._walk is None:
            self._walk_reported(active, known, snapshot)
            compared_from = known[0].ball_id if known else active.previous_ball_id + 1
        for ball, events in self._walked_through(snapshot):
            if ball.ball_id in amended.renumbered:
                pass  # reported under its old id
            elif ball.ball_id > active.previous_ball_id:
                yield from announcer.innings_events(ball)
                yield from events
            elif ball.ball_id >= compared_from:
                yield from self._late_events(active, ball, events)
            self._reported.update(map(event_identity, events))

    def _walked_through(self, snapshot: MatchSnapshot) -> Iterator[tuple[Ball, list[CricketEvent]]]:
        """Yield each new ball with its events, or all balls when a ball that was walked has changed."""
        balls, walked = snapshot.balls, self._walked
        if self._walk is None or balls[: len(walked)] != walked:
            walked = ()
            self._ball_penalties.clear()
            self._walk = BallWalk(
                self.match_id,
                snapshot.match.balls_per_over,
                self._penalties.__getitem__,
                self._super_overs.__contains__,
            )
        new = balls[len(walked) :]
        self._count_penalties(snapshot.match, new)
        self._walked = balls
        for ball in new:
            yield ball, self._walk.feed(ball)

    def _count_penalties(self, match: Match, new: tuple[Ball, ...]) -> None:
        """Count the penalty runs awarded between balls: no ball includes them."""
        for ball in new:
            self._ball_penalties[ball.innings] += ball.extras.penalty
        self._penalties.clear()
        for score in match.innings:
            self._penalties[score.number] = max(0, score.extras.penalty - self._ball_penalties[score.number])

    def _late_events(self, active: ActiveMatch, ball: Ball, events: list[CricketEvent]) -> Iterator[CricketEvent]:
        """Yield the unreported events of an amended or inserted ball, with new ids: the usual ids may be in use.

        Of a ball that returned after it was withdrawn, only the wicket is reported again.
        """
        for event in events:
            if event_identity(event) not in self._reported:
                yield replace(event, event_id=f"{event.event_id}@{active.version + 1}")
        if ball.ball_id in self._withdrawn:
            self._withdrawn.discard(ball.ball_id)
            for number, wicket in enumerate(fallen(ball)):
                if (CricketEventKind.WICKET, ball.innings, wicket.player_id, None) in self._reported:
                    text = f"Correction: {wicket.name} is out after all"
                    yield correction(active, f"back:{ball.ball_id}:{number}", text, ball.innings, ball)


def _lacks_balls(snapshot: MatchSnapshot) -> bool:
    """Return whether the snapshot has innings but no ball: the provider omitted the balls, no scorer removed them."""
    return not snapshot.balls and any(score.legal_balls for score in snapshot.match.innings)


def _details(match: Match) -> tuple[object, ...]:
    """Return the stored fields of a match besides its live score."""
    return match.scorecards or (), match.toss, match.follow_on, match.player_of_match
