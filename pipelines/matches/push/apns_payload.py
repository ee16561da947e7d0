"""Payloads of Live Activities for APNs, shortened to fit into 4,096 bytes."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import orjson

from datastore.matches.cricket import MatchPhase
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display import DisplaySide, DisplayState

PAYLOAD_BYTES = 4096
COLLAPSE_BYTES = 64
ATTRIBUTES_TYPE = "MatchActivityAttributes"

PRIORITY_IMMEDIATE = 10
PRIORITY_LOW = 5  # saves the device's battery, and the app's budget of immediate pushes
# In order of importance: of several events at once only the first is shown.
URGENT = (
    CricketEventKind.RESULT,
    CricketEventKind.HAT_TRICK,
    CricketEventKind.WICKET,
    CricketEventKind.HUNDRED,
    CricketEventKind.MILESTONE,
    CricketEventKind.FIFTY,
)
ALERTED = (*URGENT, CricketEventKind.SUPER_OVER, CricketEventKind.INNINGS_BREAK)

# How long a device waits for an update before it marks the state as stale.
STALE_AFTER = {
    MatchPhase.LIVE: timedelta(minutes=15),
    MatchPhase.BREAK: timedelta(hours=2),
    MatchPhase.INTERRUPTED: timedelta(hours=2),
}
STALE_OTHERWISE = timedelta(hours=8)
DISMISSED_AFTER = timedelta(hours=1)
UPDATE_LIFETIME = timedelta(minutes=5)
ALERT_LIFETIME = timedelta(hours=1)
END_LIFETIME = timedelta(hours=8)

LONGEST_NAME = 16
TEXT_LENGTHS = (80, 40, 20, 8)


@dataclass(frozen=True, slots=True)
class ApnsNotification:
    """One message, the same for all devices that receive it."""

    event: str
    body: bytes = field(repr=False)
    priority: int
    #: Epoch seconds until which APNs tries to deliver it.
    expiration: int
    collapse_id: str | None = None


def update(state: DisplayState, now: datetime, alerts: Sequence[CricketEvent] = ()) -> ApnsNotification:
    """Return the update to `state`. The most important of `alerts` rings, if any is of a kind that does."""
    rings = _most_important(alerts)
    aps = _aps("update", state, state.updated_at) | {"stale-date": _stale_date(state, now)}
    if rings is not None:
        aps["alert"] = _alert(state.headline, rings.text)
    urgent = any(event.kind in URGENT for event in alerts)
    return ApnsNotification(
        event="update",
        body=fit_payload(aps),
        priority=PRIORITY_IMMEDIATE if urgent else PRIORITY_LOW,
        expiration=_epoch_after(now, UPDATE_LIFETIME if rings is None else ALERT_LIFETIME),
        # A state may replace an older undelivered one; an alert must not be replaced.
        collapse_id=collapse_id(state.match_id, state.team_id) if rings is None else None,
    )


def end(state: DisplayState, now: datetime, alerts: Sequence[CricketEvent] = ()) -> ApnsNotification:
    """Return the end with the last state, which stays on the lock screen for an hour.

    Its timestamp is `now`, later than that of all updates.
    """
    rings = _most_important(alerts)
    aps = _aps("end", state, now) | {"dismissal-date": _epoch_after(now, DISMISSED_AFTER)}
    if rings is not None:
        aps["alert"] = _alert(state.headline, rings.text)
    return ApnsNotification("end", fit_payload(aps), PRIORITY_IMMEDIATE, _epoch_after(now, END_LIFETIME))


def start(state: DisplayState, now: datetime) -> ApnsNotification:
    """Return the start of a Live Activity on a device that has none; iOS requires an alert with it."""
    aps = _aps("start", state, state.updated_at) | {
        "stale-date": _stale_date(state, now),
        "attributes-type": ATTRIBUTES_TYPE,
        "attributes": _attributes(state),
        "alert": _alert(f"{state.team.name} v {state.opponent.name}", state.situation),
    }
    return ApnsNotification("start", fit_payload(aps), PRIORITY_IMMEDIATE, _epoch_after(now, ALERT_LIFETIME))


def content_state(state: DisplayState) -> dict[str, Any]:
    """Return the state that the app decodes. Every key is present; a missing value is null or empty."""
    return {
        "version": state.version,
        "phase": state.phase.value,
        "status": state.status,
        "headline": state.headline,
        "situation": state.situation,
        "team": _side(state.team),
        "opponent": _side(state.opponent),
        "batters": [
            {"name": batter.name, "figures": batter.figures, "onStrike": batter.on_strike}
            for batter in state.batters[:2]
        ],
        "bowler": {"name": state.bowler.name, "figures": state.bowler.figures} if state.bowler else None,
        "recent": state.recent,
        "target": state.target,
        "requiredRuns": state.required_runs,
        "ballsLeft": state.balls_left,
        "requiredRate": state.required_rate,
        "runRate": state.run_rate,
        "lastEvent": state.last_event,
        "updatedAt": int(state.updated_at.timestamp()),
    }


def fit_payload(aps: dict[str, Any]) -> bytes:
    """Return the payload, shortened step by step until it fits."""
    body = _encoded(aps)
    for shorten in _STEPS:
        if len(body) <= PAYLOAD_BYTES:
            break
        aps = shorten(aps)
        body = _encoded(aps)
    return body


def collapse_id(match_id: str, team_id: str) -> str:
    """Return an id of at most 64 bytes, the same for the same match and team."""
    plain = f"{match_id}/{team_id}"
    if plain.isascii() and plain.isprintable() and len(plain) <= COLLAPSE_BYTES:
        return plain
    return hashlib.sha256(plain.encode()).hexdigest()[:COLLAPSE_BYTES]


def _aps(event: str, state: DisplayState, at: datetime) -> dict[str, Any]:
    """Return the common fields. Devices ignore a payload with an older timestamp, so `at` is the state's time."""
    return {
        "timestamp": int(at.timestamp()),
        "event": event,
        "content-state": content_state(state),
        "relevance-score": 100 if state.phase is MatchPhase.LIVE else 50,
    }


def _side(side: DisplaySide) -> dict[str, Any]:
    return {
        "name": side.name,
        "code": side.code,
        "score": side.score,
        "overs": side.overs,
        "batting": side.batting,
    }


def _attributes(state: DisplayState) -> dict[str, Any]:
    """Return the attributes, which do not change during a Live Activity. Ids are never shortened."""
    return {
        "matchId": state.match_id,
        "teamId": state.team_id,
        "opponentId": state.opponent.team_id,
        "league": state.league,
        "startTime": int(state.start_time.timestamp()),
    }


def _alert(title: str, body: str) -> dict[str, str]:
    return {"title": title, "body": body, "sound": "default"}


def _most_important(events: Sequence[CricketEvent]) -> CricketEvent | None:
    alerted = [event for event in events if event.kind in ALERTED]
    # Of two events of one kind the later is chosen.
    return min(reversed(alerted), key=lambda event: ALERTED.index(event.kind), default=None)


def _stale_date(state: DisplayState, now: datetime) -> int:
    return _epoch_after(now, STALE_AFTER.get(state.phase, STALE_OTHERWISE))


def _epoch_after(now: datetime, after: timedelta) -> int:
    return int((now + after).timestamp())


def _encoded(aps: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"aps": aps})


# The steps by which a payload is shortened, in the order of `_STEPS`.


def _without_recent(aps: dict[str, Any]) -> dict[str, Any]:
    return aps | {"content-state": aps["content-state"] | {"recent": ""}}


def _with_short_names(aps: dict[str, Any]) -> dict[str, Any]:
    """Replace team names by codes and player names by last names."""
    state = aps["content-state"]
    bowler = state["bowler"]
    short = {
        **{side: state[side] | {"name": state[side]["code"]} for side in ("team", "opponent")},
        "batters": [batter | {"name": _last_name(batter["name"])} for batter in state["batters"]],
        "bowler": bowler and bowler | {"name": _last_name(bowler["name"])},
    }
    return aps | {"content-state": state | short}


def _without_alert(aps: dict[str, Any]) -> dict[str, Any]:
    """Drop the alert; of a start shorten it, because iOS ignores a start without an alert."""
    if aps["event"] == "start":
        return aps | {"alert": _cut(aps["alert"], LONGEST_NAME)}
    return {name: value for name, value in aps.items() if name != "alert"}


def _with_texts_of(length: int, aps: dict[str, Any]) -> dict[str, Any]:
    shorter: dict[str, Any] = {name: _cut(aps[name], length) for name in ("content-state", "alert") if name in aps}
    if "attributes" in aps:
        shorter["attributes"] = aps["attributes"] | {"league": _cut(aps["attributes"]["league"], length)}
    return aps | shorter


def _last_name(name: str) -> str:
    last: str = _cut(name.split()[-1] if name.split() else name, LONGEST_NAME)
    return last


def _cut(value: Any, length: int) -> Any:
    """Cut nested texts to a length, except a phase: it is an enum value for the app."""
    if isinstance(value, str):
        return value if len(value) <= length else value[: length - 1] + "…"
    if isinstance(value, dict):
        return {name: item if name == "phase" else _cut(item, length) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, length) for item in value]
    return value


_STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    _without_recent,
    _with_short_names,
    _without_alert,
    *[partial(_with_texts_of, length) for length in TEXT_LENGTHS],
)
