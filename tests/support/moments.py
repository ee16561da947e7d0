"""Moments, and the texts of moments in stored items."""

from datetime import UTC, datetime, timedelta

from tests.support.served import NOON


def utc_now() -> datetime:
    return datetime.now(UTC)


def seconds_after_noon(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def whole_seconds(moment: datetime) -> str:
    """Return the text of a moment as the items of other programs have it: without milliseconds."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
