"""The events of `matchUpdates` and `liveScores`: an update of one match, and the updates of several matches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datastore.errors import Internal
from datastore.matches.cricket import Match
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import UNKNOWN_MOMENT, ActiveMatch, ActiveStatus, LiveScore, LiveStatePart

# Events of these kinds may wait for the subscriber's interval. All others are delivered at once.
CONFLATABLE = {CricketEventKind.FOUR, CricketEventKind.SIX, CricketEventKind.MAIDEN}


@dataclass(frozen=True, slots=True)
class MatchUpdate:
    """A match at a version."""

    match_id: str
    league_code: str
    version: int
    live: LiveScore
    #: Whether the update contains the whole state without the events that led to it. The client replaces its state.
    is_snapshot: bool = False
    changed: tuple[LiveStatePart, ...] = ()
    events: tuple[CricketEvent, ...] = ()
    #: The number of earlier versions that this update replaces. `events` includes their events.
    conflated: int = 0
    #: Whether the match is no longer live. Without changes and events, the other fields equal the previous update.
    left: bool = False
    #: Whether the match has ended and is no longer polled: no version follows.
    is_final: bool = False

    @property
    def is_urgent(self) -> bool:
        return (
            self.is_snapshot
            or self.left
            or self.is_final
            or any(event.kind not in CONFLATABLE for event in self.events)
        )

    @property
    def has_content(self) -> bool:
        """Whether the update contains more than the fact that the match has left."""
        return self.is_snapshot or not self.left or bool(self.changed or self.events)

    def then(self, later: "MatchUpdate") -> "MatchUpdate":
        """Return this update merged with a later one. A snapshot replaces the state. The events of both are kept."""
        if not later.has_content:
            return replace(self, left=True)
        if later.is_snapshot:
            return replace(later, events=self.events + later.events)
        return replace(
            later,
            is_snapshot=self.is_snapshot,
            changed=tuple(dict.fromkeys(self.changed + later.changed)),
            events=self.events + later.events,
            conflated=self.conflated + 1 + later.conflated,
        )


@dataclass(frozen=True, slots=True)
class UnreadableUpdate:
    """A change of a match that cannot be read: subscribers receive the error instead of an update.

    `version` is that of the damaged item, or -1 if it has none. The error is delivered without waiting for the
    subscriber's interval. It replaces no waiting update.
    """

    of_match: str
    error: Internal
    version: int = -1
    is_urgent: bool = True

    @property
    def match_id(self) -> str:
        """The key in the queue. It is never equal to the id of a match: ids contain no control characters."""
        return f"\0{self.of_match}"

    def then(self, later: "Update") -> "Update":
        return later


Update = MatchUpdate | UnreadableUpdate
Updates = Sequence[Update]


@dataclass(frozen=True, slots=True)
class LiveScores:
    """Updates of matches. A snapshot contains every live match. `ended` are the ids of matches no longer live."""

    is_snapshot: bool
    updates: Sequence[MatchUpdate]
    ended: Sequence[str] = ()


# The fields of a match that an update contains: those that each version of a poller writes.
UPDATED_FIELDS = frozenset(
    {
        *("__typename", "id", "matchId", "leagueCode", "version"),
        *("status", "phase", "innings", "target", "result", "note"),
    }
)


def updated_match(update: MatchUpdate) -> Match:
    """Return the match of an update. Only the values of `UPDATED_FIELDS` are those of the match."""
    live = update.live
    return Match(
        update.match_id,
        league_id="",
        league_code=update.league_code,
        home_team_id="",
        away_team_id="",
        start_time=UNKNOWN_MOMENT,
        version=update.version,
        status=live.status,
        phase=live.phase,
        innings=live.innings,
        target=live.target,
        result=live.result,
        note=live.note,
    )


def snapshot_of(active: ActiveMatch) -> MatchUpdate:
    """Return a snapshot of a state."""
    return MatchUpdate(
        active.match_id, active.league_code, active.version, active.live, is_snapshot=True, is_final=is_over(active)
    )


def is_over(active: ActiveMatch) -> bool:
    """Return whether a match has ended and is no longer polled. An operator may register any other match again."""
    return active.status is ActiveStatus.ENDED and active.live.phase.is_over
