"""Throttling of repeated events and of repeated rings on phones (AM-5).

The cooldowns are stored in the active match and written with its versions, so an instance that takes the match over
applies them too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from datastore.matches.cricket_events import CricketEvent, CricketEventKind

# Kinds that may flap with the provider's status text.
EVENT_COOLDOWNS: Mapping[CricketEventKind, timedelta] = {
    CricketEventKind.RAIN: timedelta(minutes=5),
    CricketEventKind.RESUMPTION: timedelta(minutes=5),
}
# Kinds that ring on phones, and for how long they then do not ring again.
RING_COOLDOWNS: Mapping[CricketEventKind, timedelta] = {
    CricketEventKind.WICKET: timedelta(seconds=30),
    CricketEventKind.FIFTY: timedelta(seconds=30),
    CricketEventKind.HUNDRED: timedelta(seconds=30),
    CricketEventKind.MILESTONE: timedelta(seconds=30),
    CricketEventKind.HAT_TRICK: timedelta(seconds=30),
    CricketEventKind.INNINGS_BREAK: timedelta(minutes=10),
    CricketEventKind.SUPER_OVER: timedelta(minutes=10),
    CricketEventKind.RESULT: timedelta(hours=1),
}


@dataclass(frozen=True, slots=True)
class ThrottledEvents:
    """The events that are not throttled."""

    events: tuple[CricketEvent, ...]
    #: The ids of the events that ring.
    rings: frozenset[str]
    #: The end of each cooldown in epoch seconds, by kind or `ring:kind`.
    cooldowns: Mapping[str, float]


def throttle(events: Sequence[CricketEvent], cooldowns: Mapping[str, float], now: datetime) -> ThrottledEvents:
    """Drop the events whose kind is cooling down. Events of one kind that arrive together all pass and all ring."""
    active = {key: until for key, until in cooldowns.items() if until > now.timestamp()}
    passed = tuple(event for event in events if event.kind.value not in active)
    rings = [event for event in passed if event.kind in RING_COOLDOWNS and _ring(event.kind) not in active]
    active |= {
        event.kind.value: _until(now, EVENT_COOLDOWNS[event.kind]) for event in passed if event.kind in EVENT_COOLDOWNS
    }
    active |= {_ring(event.kind): _until(now, RING_COOLDOWNS[event.kind]) for event in rings}
    return ThrottledEvents(passed, frozenset(event.event_id for event in rings), active)


def _ring(kind: CricketEventKind) -> str:
    return f"ring:{kind.value}"


def _until(now: datetime, cooldown: timedelta) -> float:
    return round((now + cooldown).timestamp(), 3)
