"""Seismic events: their records, and their items in the table."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import Any

from datastore.earthquakes.event_ids import is_alias
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace import earthquakes as keys
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


def _valid(name: str, is_valid: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that returns a valid value unchanged and raises `ValueError` for any other."""

    def checked(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"{name} cannot be {value!r:.100}")
        return value

    return checked


def _or_none(is_valid: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a function that returns a valid value unchanged, and None for any other: the attribute is optional."""
    return lambda value: value if is_valid(value) else None


def _type(value: Any) -> str:
    return value if isinstance(value, str) and value else EARTHQUAKE


def _is_int32(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_number_or_unknown(value: Any) -> bool:
    return value is None or is_number(value)


def _is_moment(value: Any) -> bool:
    return type(value) is int and EARLIEST_MS <= value <= LATEST_MS


moment_or_none = _or_none(_is_moment)
int32_or_none = _or_none(_is_int32)


class Earthquake(StoredItem, key=keys.event, indexes=(keys.event_of_day,)):
    """A seismic event. Times are in epoch milliseconds.

    `type`, `status`, `alert` and `significance` are USGS's: https://earthquake.usgs.gov/data/comcat/
    """

    entity = stored.constant("entity", "EVENT")
    bucket = stored.computed("dayBucket", attrgetter("day"))
    event_id: str = stored.text("eventId", _valid("eventId", _is_text), typical=12)
    occurred_at_ms: int = stored.number("eventTsMs", _valid("eventTsMs", _is_moment))
    magnitude: float = stored.number("mag", _valid("mag", is_number))
    place: str = stored.text("place", _valid("place", _is_text))
    latitude: float = stored.number("lat", _valid("lat", is_number))
    longitude: float = stored.number("lon", _valid("lon", is_number))
    #: In kilometres, 0 or more; None if unknown.
    depth_km: float | None = stored.number("depth", _valid("depth", _is_number_or_unknown), missing=None, if_none=None)
    source: str = stored.text("source", _valid("source", _is_text))
    ingested_at_ms: int = stored.number("ingestedAt", _valid("ingestedAt", _is_moment))
    # Document 003 does not list these attributes: the items of other programs may lack them.
    type: str = stored.text("type", _type, default=EARTHQUAKE)
    status: str | None = stored.text("status", _or_none(_is_text), default=None)
    updated_at_ms: int | None = stored.number("updated", moment_or_none, default=None)
    alert: str | None = stored.text("alert", _or_none(_is_text), default=None)
    tsunami: bool | None = stored.flag("tsunami", _or_none(lambda value: isinstance(value, bool)), default=None)
    significance: int | None = stored.number("sig", int32_or_none, default=None)
    url: str | None = stored.text("url", _or_none(_is_text), default=None)
    #: The event's further ids in the ingested report. Empty for an event that was read from the table.
    other_ids: tuple[str, ...] = ()

    @property
    def day(self) -> str:
        """The UTC day as YYYYMMDD."""
        return day_bucket(self.occurred_at)

    @property
    def occurred_at(self) -> datetime:
        return from_epoch_ms(self.occurred_at_ms)

    @property
    def ingested_at(self) -> datetime:
        return from_epoch_ms(self.ingested_at_ms)

    @property
    def updated_at(self) -> datetime | None:
        return None if self.updated_at_ms is None else from_epoch_ms(self.updated_at_ms)


def event_of(item: Mapping[str, Any]) -> Earthquake | None:
    """Return the seismic event of an item of the table; None for an item of another kind."""
    is_event = str(item["pk"]).startswith("EVENT#") and item["sk"] == "EVENT" and not is_alias(item)
    return Earthquake.decoder(item) if is_event else None
