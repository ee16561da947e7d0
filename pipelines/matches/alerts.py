"""Which events may ring on a phone, and how often."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from datastore.matches.cricket import CricketEvent, EventKind

# Given a match id and events, answers those that may ring now.
AlertFilter = Callable[[str, Sequence[CricketEvent]], Awaitable[Sequence[CricketEvent]]]

COOLDOWNS: Mapping[EventKind, timedelta] = {
    EventKind.WICKET: timedelta(seconds=30),
    EventKind.FIFTY: timedelta(seconds=30),
    EventKind.HUNDRED: timedelta(seconds=30),
    EventKind.MILESTONE: timedelta(seconds=30),
    EventKind.INNINGS_BREAK: timedelta(minutes=10),
    EventKind.SUPER_OVER: timedelta(minutes=10),
    EventKind.RESULT: timedelta(hours=1),
}


class AlertCooldowns:
    """An `AlertFilter`: after an event of a kind rang, that kind of the match is silent for a while."""

    def __init__(self, now: Callable[[], datetime], cooldowns: Mapping[EventKind, timedelta] = COOLDOWNS) -> None:
        self._now = now
        self._cooldowns = cooldowns
        self._silent_until: dict[tuple[str, EventKind], datetime] = {}

    async def __call__(self, match_id: str, events: Sequence[CricketEvent]) -> Sequence[CricketEvent]:
        now = self._now()
        self._silent_until = {key: until for key, until in self._silent_until.items() if until > now}
        allowed = [event for event in events if (match_id, event.kind) not in self._silent_until]
        for event in allowed:
            if event.kind in self._cooldowns:
                self._silent_until[match_id, event.kind] = now + self._cooldowns[event.kind]
        return allowed


async def all_alerts(_: str, events: Sequence[CricketEvent]) -> Sequence[CricketEvent]:
    """An `AlertFilter` that lets everything ring."""
    return events
