"""The few forms of time that items hold."""

from datetime import UTC, datetime

# The years that a stated moment may lie in, in UTC: a window around it consists of moments, too.
FIRST_YEAR, LAST_YEAR = 1000, 9000


def iso(moment: datetime) -> str:
    """UTC with milliseconds at a fixed width, so that text order is time order: 2026-06-25T14:30:00.000Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_millisecond(moment: datetime) -> datetime:
    """The moment as items hold it: without what is smaller than a millisecond."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def from_iso(text: str) -> datetime:
    """Return the moment in `text`, with or without fractions of a second. Without an offset it is in UTC.

    Raises `ValueError` for a text that is not an ISO 8601 date and time.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is UTC else in_utc(moment)


def in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC. A moment without an offset is in UTC, independent of the host's time zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def epoch_ms(moment: datetime) -> int:
    """Whole milliseconds since 1970, exact (no float in between)."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def from_epoch_ms(milliseconds: int) -> datetime:
    """The moment that many milliseconds after 1970; negative before."""
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def day_bucket(moment: datetime) -> str:
    """The UTC day as YYYYMMDD."""
    return moment.astimezone(UTC).strftime("%Y%m%d")


def from_seconds(seconds: float) -> datetime:
    """The moment that many epoch seconds after 1970, as TTL attributes hold it."""
    return datetime.fromtimestamp(float(seconds), UTC)


def to_seconds(moment: datetime) -> int:
    """Epoch seconds as TTL attributes hold them, rounded up, so that nothing expires early."""
    return -int(-moment.timestamp() // 1)
