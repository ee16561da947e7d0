"""What is not told, or does not ring, again and again (AM-5).

The moments until which kinds rest are kept in the active match and written with its versions: whoever takes a match
over goes by them too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from datastore.matches.cricket import CricketEvent, CricketEventKind

# What may flap with the provider's status text is told once in a while.
TOLD: Mapping[CricketEventKind, timedelta] = {
    CricketEventKind.RAIN: timedelta(minutes=5),
    CricketEventKind.RESUMPTION: timedelta(minutes=5),
}
# Phones ring for these kinds, and then not again for so long.
RUNG: Mapping[CricketEventKind, timedelta] = {
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
    """The events to tell, the ids of those that ring, and until when (epoch seconds) what rests from now on."""

    events: tuple[CricketEvent, ...]
    rings: frozenset[str]
    cooldowns: Mapping[str, float]


def cool(events: Sequence[CricketEvent], cooldowns: Mapping[str, float], now: datetime) -> ThrottledEvents:
    """Leave out the events whose kind rests. Of several of a kind that come together all are told, and all ring."""
    resting = {what: until for what, until in cooldowns.items() if until > now.timestamp()}
    told = tuple(event for event in events if event.kind.value not in resting)
    rings = [event for event in told if event.kind in RUNG and _ring(event.kind) not in resting]
    resting |= {event.kind.value: _until(now, TOLD[event.kind]) for event in told if event.kind in TOLD}
    resting |= {_ring(event.kind): _until(now, RUNG[event.kind]) for event in rings}
    return ThrottledEvents(told, frozenset(event.event_id for event in rings), resting)


def _ring(kind: CricketEventKind) -> str:
    return f"ring:{kind.value}"


def _until(now: datetime, rest: timedelta) -> float:
    return round((now + rest).timestamp(), 3)
