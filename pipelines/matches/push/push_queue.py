"""What is to be delivered of matches: changes, the desk of each match where they wait, and batches on their way."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from datastore.matches.cricket import CricketEvent, CricketEventKind, Match
from datastore.matches.display import DisplayState
from datastore.matches.live_activities import LiveActivity
from pipelines.matches.push.apns_payload import ALERTED
from pipelines.matches.push.push_delivery import Sent

MOST_ALERTS = 20  # that wait
# A change that is delivered so long after it was made may have been superseded by another instance's.
LATE = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class MatchChange:
    """A version of a match as phones are told of it: both teams' display states, and the events it brought.

    `rings` are the ids of the events that may ring.
    """

    match: Match
    states: Mapping[str, DisplayState]
    events: Sequence[CricketEvent] = ()
    rings: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return max((state.version for state in self.states.values()), default=0)

    @property
    def alerts(self) -> list[CricketEvent]:
        return [event for event in self.events if event.event_id in self.rings and event.kind in ALERTED]

    def is_late(self, now: datetime) -> bool:
        return any(now - state.updated_at >= LATE for state in self.states.values())


@dataclass(slots=True)
class MatchPushQueue:
    """What is to be delivered of one match. One at a time: a phone must not see an older state after a newer one.

    `rings` wait to be sent; `begins` tells that the match has begun and followers without a session are still to be
    asked in; `ends` counts who waits to end the match.
    """

    waiting: MatchChange | None = None
    rings: list[CricketEvent] = field(default_factory=list)
    begins: bool = False
    ends: int = 0
    task: asyncio.Task[None] | None = None
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0

    def add(self, change: MatchChange) -> None:
        """Only the newest change waits; of those before it, the events that ring."""
        if self.waiting is None or change.version >= self.waiting.version:
            self.waiting = change
        self.rings += change.alerts
        del self.rings[:-MOST_ALERTS]
        self.begins |= any(
            event.kind is CricketEventKind.INNINGS_START and event.innings == 1 for event in change.events
        )


@dataclass(slots=True)
class PushBatch:
    """One reading of the sessions: whose they are, and what becomes of each once its push has ended.

    It is broken off when it no longer `goes_on`; `left` are those of the page at hand that had no turn then. Whose they
    are, `holders`, is kept only for a match that `begins`.
    """

    match: Match
    settle: Callable[[LiveActivity, Sent], Awaitable[None]]
    goes_on: Callable[[], bool]
    rings: list[CricketEvent]
    begins: bool = False
    holders: set[str] = field(default_factory=set)
    begun: bool = False
    left: int = 0
