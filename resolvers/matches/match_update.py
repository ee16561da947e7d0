"""Events of `matchUpdates` and `liveScores`: a match at one of its versions, and several of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datastore.errors import Internal
from datastore.matches.cricket import CricketEvent, EventKind
from datastore.matches.live_state import ActiveMatch, ActiveStatus, LiveScore, Part

# These may wait for the interval; all others are told at once.
PATIENT = {EventKind.FOUR, EventKind.SIX, EventKind.MAIDEN}


@dataclass(frozen=True, slots=True)
class MatchUpdate:
    """A match at a version. `conflated` versions before it were left out: their events are in this one's.

    A snapshot is how the match stands, without the events that led to it: apply it as it is. `left`: the match is no
    longer live; when that is all there is to tell, nothing else differs from the update before. `is_final`: the match
    is over and is not polled any more, so no version follows.
    """

    match_id: str
    league_code: str
    version: int
    live: LiveScore
    is_snapshot: bool = False
    changed: tuple[Part, ...] = ()
    events: tuple[CricketEvent, ...] = ()
    conflated: int = 0
    left: bool = False
    is_final: bool = False

    @property
    def is_urgent(self) -> bool:
        return self.is_snapshot or self.left or self.is_final or any(event.kind not in PATIENT for event in self.events)

    @property
    def tells_more(self) -> bool:
        return self.is_snapshot or not self.left or bool(self.changed or self.events)

    def then(self, later: "MatchUpdate") -> "MatchUpdate":
        """This update and a later one as one. A snapshot takes the place of what came before, but for the events."""
        if not later.tells_more:
            return replace(self, left=True)
        if later.is_snapshot:
            return replace(later, events=self.events + later.events)
        return MatchUpdate(
            later.match_id,
            later.league_code,
            later.version,
            later.live,
            self.is_snapshot,
            tuple(dict.fromkeys(self.changed + later.changed)),
            self.events + later.events,
            self.conflated + 1 + later.conflated,
            later.left,
            later.is_final,
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A change of a match that cannot be read: subscribers receive the error in the place of an update.

    `version` is that of the damaged item, -1 where it has none. The error waits for no interval, and takes the place of
    no update: those that wait keep their events.
    """

    of_match: str
    error: Internal
    version: int = -1
    is_urgent: bool = True

    @property
    def match_id(self) -> str:
        """The name under which it waits, which no match has: ids hold no control characters."""
        return f"\0{self.of_match}"

    def then(self, later: "Update") -> "Update":
        return later


Update = MatchUpdate | Unreadable
Updates = Sequence[Update]


@dataclass(frozen=True, slots=True)
class LiveScores:
    """Updates of some matches. The snapshot is every match that is live; `ended` are those that are no longer."""

    is_snapshot: bool
    updates: Sequence[MatchUpdate]
    ended: Sequence[str] = ()


def snapshot_of(active: ActiveMatch) -> MatchUpdate:
    """Return the update that shows a state as it is."""
    return MatchUpdate(
        active.match_id, active.league_code, active.version, active.live, is_snapshot=True, is_final=is_over(active)
    )


def is_over(active: ActiveMatch) -> bool:
    """Whether a match is over and is not polled any more. One that was taken off the list may be registered again."""
    return active.status is ActiveStatus.ENDED and active.live.phase.is_over
