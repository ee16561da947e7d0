"""Conversions between datetimes and the forms of time in items: ISO 8601 texts, milliseconds, days and seconds."""

from datetime import UTC, date, datetime

# The years of moments that are accepted as input, in UTC: the ends of a window around a moment must be moments, too.
FIRST_YEAR, LAST_YEAR = 1000, 9000


def iso(moment: datetime) -> str:
    """Return the moment in UTC with milliseconds, so that text order is time order: 2026-06-25T14:30:00.000Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_millisecond(moment: datetime) -> datetime:
    """Return the moment, truncated to milliseconds, as items hold it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def from_iso(text: str) -> datetime:
    """Return the moment in `text`, with or without fractions of a second. Without an offset it is in UTC.

    Raises `ValueError` for a text that is not an ISO 8601 date and time.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is UTC else in_utc(moment)


def from_iso_or_none(text: str | None) -> datetime | None:
    """Return the moment in `text`; None if there is none."""
    return from_iso(text) if text else None


def in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC. A moment without an offset is in UTC, independent of the host's time zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def epoch_ms(moment: datetime) -> int:
    """Return the whole milliseconds since 1970, computed without floats and so exact."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def from_epoch_ms(milliseconds: int) -> datetime:
    """Return the moment of milliseconds since 1970, which are negative before."""
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def day_bucket(moment: datetime) -> str:
    """Return the UTC day as YYYYMMDD."""
    return moment.astimezone(UTC).strftime("%Y%m%d")


def from_day_bucket(day: str) -> date:
    """Return the day of YYYYMMDD."""
    return date(int(day[:4]), int(day[4:6]), int(day[6:]))


def from_seconds(seconds: float) -> datetime:
    """Return the moment of epoch seconds, the form of TTL attributes."""
    return datetime.fromtimestamp(float(seconds), UTC)


def to_seconds(moment: datetime) -> int:
    """Return epoch seconds for a TTL attribute, rounded up, so that nothing expires early."""
    return -int(-moment.timestamp() // 1)
