"""What a tick finds: how a match stands now, against the state that was stored, and what happened in between."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore.matches.cricket import RECENT_BALLS, Ball, CricketEvent, CricketEventKind, Match, MatchSnapshot
from datastore.matches.live_state import ActiveMatch, LiveScore, LiveStatePart, live_score_of
from pipelines.matches.live.announcements import Announcer
from pipelines.matches.live.ball_events import BallWalk, fallen, told_as
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
    """What changed: the state as it is now, the parts that differ, the events, and all that was announced so far.

    `last_ball_id` is the last ball whose events were told. It never goes back: a ball that was taken back was told.
    `doubtful`: the snapshot looks older than the state, and must not be written anywhere.
    """

    live: LiveScore
    parts: tuple[LiveStatePart, ...]
    events: tuple[CricketEvent, ...]
    announced: tuple[str, ...]
    last_ball_id: int
    doubtful: bool = False

    @property
    def nothing(self) -> bool:
        return not self.parts and not self.events


@dataclass(slots=True)
class MatchWatch:
    """One match as its poller remembers it. `previous` is what the provider said when the state was written, if known.

    `previous` may have the last balls only; earlier ones are taken to be as they are now. `team_name` tells the name
    of a team by its id. `settled`: since the watch began, the fixture was written as the state is.
    """

    match_id: str
    previous: MatchSnapshot | None = None
    team_name: Callable[[str], str] = str
    settled: bool = False
    _walk: BallWalk | None = None
    _walked: tuple[Ball, ...] = ()
    _told: set[Hashable] = field(default_factory=set)
    _taken_back: set[int] = field(default_factory=set)
    _penalties: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _ball_penalties: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _super_overs: set[int] = field(default_factory=set)
    _doubted: bool = False

    def compare(self, active: ActiveMatch, snapshot: MatchSnapshot) -> MatchDiff:
        """What the snapshot tells that is new. The watch moves on; after a write that failed, begin with a new one."""
        known = active.live.recent_balls if self.previous is None else self.previous.balls
        lacks_balls = _lacks_balls(snapshot)
        if lacks_balls:
            snapshot = replace(snapshot, balls=known)
        has_grown = snapshot.balls[: len(known)] == known
        if self._is_doubtful(active, known, snapshot, has_grown):
            return MatchDiff(active.live, (), (), active.announced, active.previous_ball_id, doubtful=True)
        if has_grown:  # the same balls are compared once; what is the same object after that costs nothing
            snapshot = replace(snapshot, balls=known + snapshot.balls[len(known) :])
        amended = Amendments() if has_grown else amendments(known, snapshot.balls)
        self._super_overs.update(score.number for score in snapshot.match.innings if score.super_over)
        once = Announcer(active, snapshot.match, self.team_name)
        events = [*corrections(active, self.previous, snapshot, amended)]
        self._taken_back.update(ball.ball_id for ball in amended.removed)
        if not lacks_balls:
            events += self._walk_on(active, known, snapshot, once, amended)
        events += once.state_events()
        live = live_score_of(snapshot.match, snapshot.balls[-RECENT_BALLS:])
        parts = [part for part, names in PARTS.items() if any(_differs(active.live, live, name) for name in names)]
        if self.previous is not None and _details(self.previous.match) != _details(snapshot.match):
            parts.append(LiveStatePart.SCORECARDS)
        self.previous = snapshot
        last = snapshot.balls[-1].ball_id if snapshot.balls else 0
        return MatchDiff(live, tuple(parts), tuple(events), tuple(once.announced), max(last, active.previous_ball_id))

    def _is_doubtful(
        self, active: ActiveMatch, known: tuple[Ball, ...], snapshot: MatchSnapshot, has_grown: bool
    ) -> bool:
        """Whether it looks like an answer that is older than the one before. Told twice running, it is believed."""
        balls = snapshot.balls
        is_earlier = not has_grown and len(balls) < len(known) and known[: len(balls)] == balls
        is_older_state = is_earlier or (has_grown and is_lower(active, snapshot))
        has_before = self._walk is not None or self.previous is not None
        self._doubted = is_older_state and has_before and not self._doubted
        return self._doubted

    def _walk_in_silence(self, active: ActiveMatch, known: tuple[Ball, ...], snapshot: MatchSnapshot) -> None:
        """Walk what was told by somebody else, or before a restart."""
        before = [ball for ball in snapshot.balls if not known or ball.ball_id < known[0].ball_id]
        old = tuple(ball for ball in (*before, *known) if ball.ball_id <= active.previous_ball_id)
        for _, events in self._walked_through(replace(snapshot, balls=old)):
            self._told.update(map(told_as, events))

    def _walk_on(
        self,
        active: ActiveMatch,
        known: tuple[Ball, ...],
        snapshot: MatchSnapshot,
        once: Announcer,
        amended: Amendments,
    ) -> Iterator[CricketEvent]:
        """The events of balls that were not told, and what balls that were told tell now and did not."""
        compared_from = 0
        if self._walk is None:
            self._walk_in_silence(active, known, snapshot)
            compared_from = known[0].ball_id if known else active.previous_ball_id + 1
        for ball, events in self._walked_through(snapshot):
            if ball.ball_id in amended.renumbered:
                pass  # was told under its old id
            elif ball.ball_id > active.previous_ball_id:
                yield from once.innings_events(ball)
                yield from events
            elif ball.ball_id >= compared_from:
                yield from self._late(active, ball, events)
            self._told.update(map(told_as, events))

    def _walked_through(self, snapshot: MatchSnapshot) -> Iterator[tuple[Ball, list[CricketEvent]]]:
        """The balls that were not walked and their events; all of them, when one that was walked has changed."""
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
        """Penalty runs that were awarded between balls: a running score from balls alone would lack them."""
        for ball in new:
            self._ball_penalties[ball.innings] += ball.extras.penalty
        self._penalties.clear()
        for score in match.innings:
            self._penalties[score.number] = max(0, score.extras.penalty - self._ball_penalties[score.number])

    def _late(self, active: ActiveMatch, ball: Ball, events: list[CricketEvent]) -> Iterator[CricketEvent]:
        """What an amended or inserted ball tells that was not told: with an id of its own, for the ball's may be used.

        A ball that is back after it was taken back is told once more only for its wicket.
        """
        for event in events:
            if told_as(event) not in self._told:
                yield replace(event, event_id=f"{event.event_id}@{active.version + 1}")
        if ball.ball_id in self._taken_back:
            self._taken_back.discard(ball.ball_id)
            for number, wicket in enumerate(fallen(ball)):
                if (CricketEventKind.WICKET, ball.innings, wicket.player_id, None) in self._told:
                    text = f"Correction: {wicket.name} is out after all"
                    yield correction(active, f"back:{ball.ball_id}:{number}", text, ball.innings, ball)


def _lacks_balls(snapshot: MatchSnapshot) -> bool:
    """Innings and not one ball of them: they were not all taken back, the provider leaves them out."""
    return not snapshot.balls and any(score.legal_balls for score in snapshot.match.innings)


def _differs(before: LiveScore, after: LiveScore, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def _details(match: Match) -> tuple[object, ...]:
    """What is written of a match at a change, besides its live score."""
    return match.scorecards or (), match.toss, match.follow_on, match.player_of_match
