"""Seismic events: their records, and their items in the table."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, flag, number, text
from datastore.earthquakes.event_ids import is_alias
from datastore.keyspace import earthquakes as keys
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import day_bucket, from_epoch_ms

# The years 1000 to 9999: day buckets have four digits for the year.
EARLIEST_MS, LATEST_MS = -30_610_224_000_000, 253_402_300_799_999
MAX_EVENT_ID = 64
# The type of natural events, in USGS's vocabulary.
EARTHQUAKE = "earthquake"


class SeismicEventKind(StrEnum):
    """The kind of events in a list: earthquakes, other events such as quarry blasts and explosions, or both."""

    EARTHQUAKE = "EARTHQUAKE"
    OTHER = "OTHER"
    ANY = "ANY"

    def holds(self, event: "Earthquake") -> bool:
        return self is SeismicEventKind.ANY or (event.type == EARTHQUAKE) is (self is SeismicEventKind.EARTHQUAKE)


class Earthquake(Struct, frozen=True, gc=False):
    """A seismic event. Times are in epoch milliseconds.

    `type`, `status`, `alert` and `significance` are USGS's: https://earthquake.usgs.gov/data/comcat/
    """

    event_id: str
    occurred_at_ms: int
    magnitude: float
    place: str
    latitude: float
    longitude: float
    #: In kilometres, 0 or more; None if unknown.
    depth_km: float | None
    source: str
    ingested_at_ms: int
    type: str = EARTHQUAKE
    status: str | None = None
    updated_at_ms: int | None = None
    alert: str | None = None
    tsunami: bool | None = None
    significance: int | None = None
    url: str | None = None
    #: The event's further ids in the ingested report. Empty for an event that was read from the table.
    other_ids: tuple[str, ...] = ()

    @property
    def occurred_at(self) -> datetime:
        return from_epoch_ms(self.occurred_at_ms)

    @property
    def ingested_at(self) -> datetime:
        return from_epoch_ms(self.ingested_at_ms)

    @property
    def updated_at(self) -> datetime | None:
        return None if self.updated_at_ms is None else from_epoch_ms(self.updated_at_ms)


def is_event(item: Mapping[str, Any]) -> bool:
    """Return whether an item of the table is a seismic event."""
    return str(item["pk"]).startswith("EVENT#") and item["sk"] == "EVENT" and not is_alias(item)


# The attributes of the record's fields, as document 003 names them.
ATTRIBUTES = {
    "event_id": "eventId",
    "occurred_at_ms": "eventTsMs",
    "magnitude": "mag",
    "place": "place",
    "latitude": "lat",
    "longitude": "lon",
    "depth_km": "depth",
    "source": "source",
    "ingested_at_ms": "ingestedAt",
    "type": "type",
    "status": "status",
    "updated_at_ms": "updated",
    "alert": "alert",
    "tsunami": "tsunami",
    "significance": "sig",
    "url": "url",
}
# Document 003 does not list these attributes: the items of other programs may lack them.
OPTIONAL = ("type", "status", "updated_at_ms", "alert", "tsunami", "significance", "url")


def attributes_of(fields: frozenset[str] | None) -> Sequence[str] | None:
    """Return the attributes that these fields need; None, for all attributes, if `fields` is None."""
    if fields is None:
        return None
    return (*EARTHQUAKES.key_attributes(keys.EVENTS_BY_DAY.index), *(ATTRIBUTES[name] for name in sorted(fields)))


def event_item(earthquake: Earthquake) -> Item:
    """Return the item of an event."""
    key = keys.event(earthquake.event_id)
    bucket = day_bucket(earthquake.occurred_at)
    optional = {ATTRIBUTES[name]: getattr(earthquake, name) for name in OPTIONAL}
    return {
        "pk": key.partition,
        "sk": key.sort,
        "entity": "EVENT",
        "eventId": earthquake.event_id,
        "eventTsMs": earthquake.occurred_at_ms,
        "mag": earthquake.magnitude,
        "place": earthquake.place,
        "lat": earthquake.latitude,
        "lon": earthquake.longitude,
        "depth": earthquake.depth_km,
        "dayBucket": bucket,
        "gsi1pk": keys.day(bucket),
        "gsi1sk": earthquake.occurred_at_ms,
        "source": earthquake.source,
        "ingestedAt": earthquake.ingested_at_ms,
        **{name: value for name, value in optional.items() if value is not None},
    }


def event_with(fields: frozenset[str]) -> RecordDecoder[Earthquake]:
    """Return the decoder of items that are projected to these fields. The other fields keep their defaults."""
    return event_from.without(frozenset(ATTRIBUTES) - fields)


def _valid(name: str, is_valid: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that returns a valid value unchanged and raises `ValueError` for any other."""

    def checked(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"{ATTRIBUTES[name]} cannot be {value!r:.100}")
        return value

    return checked


def _or_none(is_valid: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that returns a valid value unchanged, and None for any other: the attribute is optional."""
    return lambda value: value if is_valid(value) else None


def _type(value: Any) -> str:
    return value if isinstance(value, str) and value else EARTHQUAKE


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_int32(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_number_or_unknown(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_moment(value: Any) -> bool:
    return type(value) is int and EARLIEST_MS <= value <= LATEST_MS


def _earthquake(
    event_id: str = "",
    occurred_at_ms: int = 0,
    magnitude: float = 0.0,
    place: str = "",
    latitude: float = 0.0,
    longitude: float = 0.0,
    depth_km: float | None = None,
    source: str = "",
    ingested_at_ms: int = 0,
    type: str = EARTHQUAKE,
    status: str | None = None,
    updated_at_ms: int | None = None,
    alert: str | None = None,
    tsunami: bool | None = None,
    significance: int | None = None,
    url: str | None = None,
) -> Earthquake:
    """Return an event. Fields without an argument keep their defaults."""
    required = (event_id, occurred_at_ms, magnitude, place, latitude, longitude, depth_km, source, ingested_at_ms)
    return Earthquake(*required, type, status, updated_at_ms, alert, tsunami, significance, url)


event_from = RecordDecoder(
    _earthquake,
    event_id=text(ATTRIBUTES["event_id"], _valid("event_id", _is_text)),
    occurred_at_ms=number(ATTRIBUTES["occurred_at_ms"], _valid("occurred_at_ms", _is_moment)),
    magnitude=number(ATTRIBUTES["magnitude"], _valid("magnitude", _is_number)),
    place=text(ATTRIBUTES["place"], _valid("place", _is_text)),
    latitude=number(ATTRIBUTES["latitude"], _valid("latitude", _is_number)),
    longitude=number(ATTRIBUTES["longitude"], _valid("longitude", _is_number)),
    depth_km=number(ATTRIBUTES["depth_km"], _valid("depth_km", _is_number_or_unknown), default=None),
    source=text(ATTRIBUTES["source"], _valid("source", _is_text)),
    ingested_at_ms=number(ATTRIBUTES["ingested_at_ms"], _valid("ingested_at_ms", _is_moment)),
    type=text(ATTRIBUTES["type"], _type, default=EARTHQUAKE),
    status=text(ATTRIBUTES["status"], _or_none(_is_text), default=None),
    updated_at_ms=number(ATTRIBUTES["updated_at_ms"], _or_none(_is_moment), default=None),
    alert=text(ATTRIBUTES["alert"], _or_none(_is_text), default=None),
    tsunami=flag(ATTRIBUTES["tsunami"], _or_none(_is_flag), default=None),
    significance=number(ATTRIBUTES["significance"], _or_none(_is_int32), default=None),
    url=text(ATTRIBUTES["url"], _or_none(_is_text), default=None),
)
