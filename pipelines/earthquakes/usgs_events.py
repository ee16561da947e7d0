"""The conversion of a feature of a USGS feed to an earthquake, or to the reason of its rejection."""

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from datastore.dynamodb.codec import BEYOND_FLOAT, SMALLEST
from datastore.earthquakes.events import EARTHQUAKE, MAX_EVENT_ID, Earthquake, int32_or_none, moment_or_none

# In characters.
MAX_PLACE, MAX_WORD, MAX_URL = 512, 64, 1_000
# The maximum of ids of an event, its own included; USGS has listed up to five.
MAX_IDS = 16
UNKNOWN_PLACE = "Unknown location"


class RejectionReason(StrEnum):
    """The reason for which a feature is rejected. Of several reasons the first that is found counts."""

    MISSING_ID = "MISSING_ID"
    ID_TOO_LONG = "ID_TOO_LONG"
    MISSING_MAGNITUDE = "MISSING_MAGNITUDE"
    MISSING_COORDINATES = "MISSING_COORDINATES"
    MISSING_TIME = "MISSING_TIME"
    BAD_LATITUDE = "BAD_LATITUDE"
    BAD_LONGITUDE = "BAD_LONGITUDE"
    BAD_VALUE = "BAD_VALUE"
    DELETED = "DELETED"
    NOT_A_FEATURE = "NOT_A_FEATURE"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected feature."""

    reason: RejectionReason
    #: Cut after 64 characters; None if it is missing or not a text.
    event_id: str | None
    #: The time at which USGS deleted a deleted event, in epoch milliseconds, if the feature has one.
    updated_at_ms: int | None = None


class _Rejected(Exception):
    def __init__(self, reason: RejectionReason, updated_at_ms: int | None = None) -> None:
        self.reason = reason
        self.updated_at_ms = updated_at_ms


def event_or_rejection(feature: object, ingested_at_ms: int) -> Earthquake | Rejection:
    """Return the event of a parsed feature, or its rejection. It accepts any value and raises no error."""
    if not isinstance(feature, dict):
        return Rejection(RejectionReason.NOT_A_FEATURE, None)
    try:
        return _earthquake(feature, ingested_at_ms)
    except _Rejected as rejected:
        id = feature.get("id")
        event_id = _text(id, MAX_EVENT_ID) if isinstance(id, str) else None
        return Rejection(rejected.reason, event_id, rejected.updated_at_ms)


def _earthquake(feature: dict[str, object], ingested_at_ms: int) -> Earthquake:
    if feature.get("type") != "Feature":
        raise _Rejected(RejectionReason.NOT_A_FEATURE)
    properties = _members(feature.get("properties"))
    if _is_deleted(properties):  # checked first: a deleted feature may lack any other property
        raise _Rejected(RejectionReason.DELETED, moment_or_none(properties.get("updated")))
    event_id = _event_id(feature.get("id"))
    magnitude = _number(properties.get("mag"), RejectionReason.MISSING_MAGNITUDE)
    latitude, longitude, depth = _position(_members(feature.get("geometry")).get("coordinates"))
    return Earthquake(
        event_id=event_id,
        occurred_at_ms=_time(properties.get("time")),
        magnitude=min(10.0, max(-2.0, magnitude)),
        place=_place(properties.get("place")),
        latitude=latitude,
        longitude=longitude,
        depth_km=depth,
        source="USGS",
        ingested_at_ms=ingested_at_ms,
        type=_type(properties.get("type")),
        status=_word(properties.get("status")),
        updated_at_ms=moment_or_none(properties.get("updated")),
        alert=_word(properties.get("alert")),
        tsunami=_flag(properties.get("tsunami")),
        significance=int32_or_none(properties.get("sig")),
        url=_url(properties.get("url")),
        other_ids=_other_ids(properties.get("ids"), event_id),
    )


# Optional properties: an event is stored without the properties that cannot be stored.


def _type(value: object) -> str:
    """Return the event type in USGS's vocabulary, in lower case; `earthquake` where the feed has none."""
    word = value.strip().lower() if isinstance(value, str) else ""
    return _text(word, MAX_WORD) or EARTHQUAKE


def _word(value: object) -> str | None:
    return _text(value.strip().lower(), MAX_WORD) or None if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def _url(value: object) -> str | None:
    is_url = isinstance(value, str) and value.startswith(("https://", "http://")) and len(value) <= MAX_URL
    return _text(str(value), MAX_URL) if is_url else None


def _other_ids(value: object, event_id: str) -> tuple[str, ...]:
    """Return the further ids of an event in USGS's list, such as ",us6000a6su,nn00743624,"."""
    if not isinstance(value, str):
        return ()
    listed = (_text(part.strip(), MAX_EVENT_ID + 1) for part in value.split(","))
    valid = dict.fromkeys(part for part in listed if part != event_id and 1 <= len(part) <= MAX_EVENT_ID)
    return tuple(valid)[: MAX_IDS - 1]


def _members(value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Rejected(RejectionReason.BAD_VALUE)
    return value


def _is_deleted(properties: dict[str, object]) -> bool:
    status = properties.get("status")
    return isinstance(status, str) and status.lower() == "deleted"


def _text(value: str, longest: int) -> str:
    """Return at most `longest` characters. Half a surrogate pair, which UTF-8 cannot encode, becomes `?`."""
    return value[:longest].encode("utf-8", "replace").decode()


def _event_id(value: object) -> str:
    if value is None or value == "":
        raise _Rejected(RejectionReason.MISSING_ID)
    if not isinstance(value, str):
        raise _Rejected(RejectionReason.BAD_VALUE)
    if len(value) > MAX_EVENT_ID:
        raise _Rejected(RejectionReason.ID_TOO_LONG)
    return _text(value, MAX_EVENT_ID)


def _number(value: object, when_missing: RejectionReason) -> float:
    if value is None:
        raise _Rejected(when_missing)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _Rejected(RejectionReason.BAD_VALUE)
    try:
        number = float(value)
    except OverflowError:
        raise _Rejected(RejectionReason.BAD_VALUE) from None
    if not math.isfinite(number):
        raise _Rejected(RejectionReason.BAD_VALUE)
    return number if abs(number) >= SMALLEST else 0.0


def _position(coordinates: object) -> tuple[float, float, float | None]:
    """Return latitude, longitude and depth in km from GeoJSON's [longitude, latitude, depth]."""
    if coordinates is not None and not isinstance(coordinates, list):
        raise _Rejected(RejectionReason.BAD_VALUE)
    longitude, latitude, depth = [*(coordinates or []), None, None, None][:3]
    east = _number(longitude, RejectionReason.MISSING_COORDINATES)
    north = _number(latitude, RejectionReason.MISSING_COORDINATES)
    if abs(north) > 90:
        raise _Rejected(RejectionReason.BAD_LATITUDE)
    if abs(east) > 180:
        raise _Rejected(RejectionReason.BAD_LONGITUDE)
    return north, east, None if depth is None else _depth(depth)


def _depth(value: object) -> float:
    depth = _number(value, RejectionReason.BAD_VALUE)
    if depth >= BEYOND_FLOAT:
        raise _Rejected(RejectionReason.BAD_VALUE)
    return max(0.0, depth)


def _time(value: object) -> int:
    if value is None:
        raise _Rejected(RejectionReason.MISSING_TIME)
    if (moment := moment_or_none(value)) is None:
        raise _Rejected(RejectionReason.BAD_VALUE)
    return int(moment)


def _place(value: object) -> str:
    """Return the place, or `UNKNOWN_PLACE` if it is null, missing or blank."""
    if value is None:
        return UNKNOWN_PLACE
    if not isinstance(value, str):
        raise _Rejected(RejectionReason.BAD_VALUE)
    return _text(value, MAX_PLACE) if value.strip() else UNKNOWN_PLACE
