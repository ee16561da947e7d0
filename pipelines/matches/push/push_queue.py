"""The changes of matches to be delivered, the queue of each match, and the batches in progress."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from datastore.matches.cricket import Match
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display import DisplayState
from datastore.matches.live_activities import LiveActivity
from pipelines.matches.push.apns_payload import ALERTED
from pipelines.matches.push.push_service import Sent

MAX_ALERTS = 20  # per queue
# A change that is delivered this long after its write may be superseded by another instance's.
LATE_AFTER = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class MatchChange:
    """A version of a match: the display states of both teams, and its events."""

    match: Match
    states: Mapping[str, DisplayState]
    events: Sequence[CricketEvent] = ()
    #: The ids of the events that may ring.
    rings: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return max((state.version for state in self.states.values()), default=0)

    @property
    def alerts(self) -> list[CricketEvent]:
        return [event for event in self.events if event.event_id in self.rings and event.kind in ALERTED]

    def may_be_superseded(self, now: datetime) -> bool:
        """Whether newer states may be stored: the change is late, or another writer's state is among its own."""
        states = self.states.values()
        return any(now - state.updated_at >= LATE_AFTER for state in states) or len({s.version for s in states}) > 1


@dataclass(slots=True)
class MatchPushQueue:
    """The pending delivery of one match. `lock` serialises deliveries: a phone must not see states go backwards."""

    pending: MatchChange | None = None
    #: The events that have not rung yet.
    rings: list[CricketEvent] = field(default_factory=list)
    #: The match has started, and followers without a session have not been sent a start yet.
    start_sessions: bool = False
    #: The number of callers that wait to end the match.
    endings: int = 0
    task: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0

    def add(self, change: MatchChange) -> None:
        """Replace an older pending change, and collect the events that ring."""
        if self.pending is None or change.version >= self.pending.version:
            self.pending = change
        self.rings += change.alerts
        del self.rings[:-MAX_ALERTS]
        self.start_sessions |= any(
            event.kind is CricketEventKind.INNINGS_START and event.innings == 1 for event in change.events
        )


@dataclass(slots=True)
class PushBatch:
    """One pass over the sessions of a match."""

    match: Match
    #: Records the result of each session's push.
    settle: Callable[[LiveActivity, Sent], Awaitable[None]]
    #: The pass stops when this returns False.
    may_continue: Callable[[], bool]
    rings: list[CricketEvent]
    start_sessions: bool = False
    #: The users that have a session; collected only with `start_sessions`.
    session_users: set[str] = field(default_factory=set)
    has_started: bool = False
    #: The sessions of the current page that were not reached when the pass stopped.
    unsent: int = 0
