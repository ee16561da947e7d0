"""The playback of a recorded match: its timeline of states, and the match snapshot in each state."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from datastore.matches.cricket import Match, MatchPhase, MatchSnapshot, ResultKind, Target
from pipelines.matches.providers.recordings import RecordedInnings, Recording
from pipelines.matches.scoring.scorebook import InningsBook

# Seconds of match time.
BEFORE_PLAY = 60.0
BALL = 30.0
CHANGE_OF_ENDS = 30.0
PAUSE = 300.0
NIGHT = 600.0

# A day with fewer balls has no pauses in the playback: the weather took most of it.
MIN_BALLS_PER_DAY = 120
ORDINALS = ("1st", "2nd", "3rd", "4th")


class PlaybackState(NamedTuple):
    """A state of a match on its timeline."""

    status: str
    phase: MatchPhase
    #: The number of balls bowled.
    balls: int
    #: The number of innings that have begun.
    begun: int
    #: The number of innings that are closed.
    closed: int


class Timeline:
    """The states of a match in order: one for each ball, and one for each pause between balls."""

    def __init__(self, recording: Recording) -> None:
        self.states: list[PlaybackState] = []
        #: The second of match time at which each state begins.
        self.moments: list[float] = []
        self._ball_ids = [ball.ball_id for ball in recording.balls]
        moment = 0.0
        for state, seconds in _states(recording):
            self.states.append(state)
            self.moments.append(moment)
            moment += seconds

    @property
    def last(self) -> int:
        return len(self.states) - 1

    def at(self, seconds: float) -> int:
        """Return the index of the state `seconds` after the start of the match."""
        return max(0, bisect_right(self.moments, seconds) - 1)

    def after(self, ball_id: int) -> int:
        """Return the index of the state just after a ball.

        For an unknown id it is the state after the ball before it, and after the last ball the last state.
        """
        balls = bisect_right(self._ball_ids, ball_id)
        if balls == 0:
            return 0
        if balls == len(self._ball_ids):
            return self.last
        return bisect_left(self.states, balls, key=lambda state: state.balls)

    def onwards(self, index: int, balls: int) -> int:
        """Return the index of the state `balls` balls later, or of an earlier break, start of an innings, or end.

        Those states are never skipped.
        """
        start = index
        goal = self.states[start].balls + balls
        while index < self.last and self.states[index].balls < goal:
            if self.states[index + 1].balls == self.states[index].balls:
                return index + 1 if index == start else index
            index += 1
        return index


def _states(recording: Recording) -> Iterator[tuple[PlaybackState, float]]:
    """Yield each state and its duration in seconds."""
    pauses = _pauses(recording)
    yield PlaybackState("NS", MatchPhase.UPCOMING, 0, 0, 0), BEFORE_PLAY
    for index, innings in enumerate(recording.innings):
        status = "Super Over" if innings.super_over else f"{_ordinal(innings.number)} Innings"
        yield PlaybackState(status, MatchPhase.LIVE, innings.first, index + 1, index), BALL
        for balls in range(innings.first + 1, innings.end + 1):
            over_ends = recording.balls[balls - 1].ball_id in recording.over_ends
            yield PlaybackState(status, MatchPhase.LIVE, balls, index + 1, index), BALL + CHANGE_OF_ENDS * over_ends
            if balls in pauses and balls < innings.end:
                pause, phase = pauses[balls]
                yield (
                    PlaybackState(pause, phase, balls, index + 1, index),
                    NIGHT if phase is MatchPhase.STUMPS else PAUSE,
                )
        if index + 1 < len(recording.innings):
            yield PlaybackState("Innings Break", MatchPhase.BREAK, innings.end, index + 1, index + 1), PAUSE
    yield from _end(recording)


def _end(recording: Recording) -> Iterator[tuple[PlaybackState, float]]:
    balls, innings = len(recording.balls), len(recording.innings)
    no_result = recording.result is not None and recording.result.kind is ResultKind.NO_RESULT
    if no_result and innings:
        yield PlaybackState("Int.", MatchPhase.INTERRUPTED, balls, innings, innings - 1), PAUSE
    status, phase = ("Aban.", MatchPhase.ABANDONED) if no_result else ("Finished", MatchPhase.FINISHED)
    yield PlaybackState(status, phase, balls, innings, innings), 0.0


def _ordinal(number: int) -> str:
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}th"


def _pauses(recording: Recording) -> dict[int, tuple[str, MatchPhase]]:
    """Return lunch, tea and stumps by the number of balls before them.

    Files do not hold them, so the balls are divided evenly among the days. A match of limited overs has no pauses: its
    second day is a reserve day.
    """
    days = min(recording.days, len(recording.balls) // MIN_BALLS_PER_DAY)
    if recording.days == 1 or days == 0 or recording.match.scheduled_overs is not None:
        return {}
    over_ends = [n for n, ball in enumerate(recording.balls, 1) if ball.ball_id in recording.over_ends]
    pauses = {}
    for third in range(1, days * 3):
        index = bisect_left(over_ends, len(recording.balls) * third / (days * 3))
        if index < len(over_ends):
            pauses[over_ends[index]] = _pause(third)
    return pauses


def _pause(third: int) -> tuple[str, MatchPhase]:
    day, part = divmod(third, 3)
    if part == 0:
        return f"Stump Day {day}", MatchPhase.STUMPS
    return ("Lunch" if part == 1 else "Tea Break"), MatchPhase.BREAK


class Playback:
    """The snapshots of a recorded match.

    A step forward processes the balls in between; a step back processes the match from its start.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.timeline = Timeline(recording)
        self._index = 0
        self._snapshot: MatchSnapshot | None = None
        self._books: list[InningsBook] = []
        self._balls_added = self._closed = 0
        self._squads: dict[str, dict[str, str]] = {}
        self._rewind()

    def at(self, index: int) -> MatchSnapshot:
        """Return the match in the state with this index."""
        if self._snapshot is None or index != self._index:
            if index < self._index:
                self._rewind()
            state = self.timeline.states[index]
            self._play(state)
            self._index = index
            recording = self.recording
            self._snapshot = MatchSnapshot(self._match(state), recording.balls[: state.balls], recording.lineups)
        return self._snapshot

    def _rewind(self) -> None:
        self._index = 0
        self._snapshot = None
        self._books = []
        self._balls_added = self._closed = 0
        self._squads = {team: dict(squad) for team, squad in self.recording.squads.items()}

    def _play(self, state: PlaybackState) -> None:
        for index, innings in enumerate(self.recording.innings[: state.begun]):
            if index == len(self._books):
                self._books.append(self._open(innings))
            self._add_balls(self._books[index], innings, min(state.balls, innings.end))
            if self._closed == index < state.closed:
                self._close(self._books[index], innings)

    def _open(self, innings: RecordedInnings) -> InningsBook:
        squad: Mapping[str, str] = {} if innings.super_over else self._squads.get(innings.team_id, {})
        return InningsBook(
            innings.number,
            innings.team_id,
            balls_per_over=self.recording.match.balls_per_over,
            super_over=innings.super_over,
            penalty=innings.penalty_before,
            squad=squad.items(),
        )

    def _add_balls(self, book: InningsBook, innings: RecordedInnings, end: int) -> None:
        recording = self.recording
        for ball in recording.balls[self._balls_added : end]:
            for substitution in recording.substitutions.get(ball.ball_id, ()):
                squad = self._squads.setdefault(substitution.team_id, {})
                squad.setdefault(*substitution.incoming)
                if substitution.out_id is not None:
                    squad.pop(substitution.out_id, None)
                if substitution.team_id == innings.team_id and not innings.super_over:
                    book.substitute(substitution.out_id, substitution.incoming)
            book.add(ball, ends_over=ball.ball_id in recording.over_ends)
        self._balls_added = max(self._balls_added, end)

    def _close(self, book: InningsBook, innings: RecordedInnings) -> None:
        book.close(
            declared=innings.declared,
            forfeited=innings.forfeited,
            penalty=innings.penalty_after,
            absent=innings.absent,
        )
        self._closed += 1

    def _match(self, state: PlaybackState) -> Match:
        recording = self.recording
        over = state.phase.is_over
        return replace(
            recording.match,
            status=state.status,
            phase=state.phase,
            note=self._note(state),
            target=self._target(state),
            result=recording.result if over else None,
            follow_on=state.begun > 2 and self._follows_on(),
            player_of_match=recording.player_of_match if over else None,
            innings=tuple(book.score() for book in self._books),
            scorecards=tuple(book.card() for book in self._books),
        )

    def _follows_on(self) -> bool:
        second, third = self.recording.innings[1:3]
        return not third.super_over and second.team_id == third.team_id

    def _target(self, state: PlaybackState) -> Target | None:
        """Return the target of the innings in progress, or of the next innings during a break between innings."""
        current = state.closed if state.closed < len(self.recording.innings) else state.begun - 1
        return self.recording.innings[current].target if current >= 0 else None

    def _note(self, state: PlaybackState) -> str | None:
        recording = self.recording
        if state.phase.is_over:
            outcome = recording.outcome
            return recording.result.text if recording.result else outcome.capitalize() if outcome else None
        target = self._target(state)
        if state.phase is MatchPhase.BREAK and target and state.begun == state.closed:
            team_id = recording.innings[state.closed].team_id
            team = next(team.name for team in recording.teams if team.team_id == team_id)
            return f"{team} need {target.runs} to win"
        return None
