"""The header Retry-After."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from datastore.dynamodb.retry.retry_after import retry_after_seconds

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    dates = [format_datetime(NOW + timedelta(seconds=9), usegmt=True), format_datetime(NOW - timedelta(hours=1))]
    texts = ["7", " 7 ", *dates, format_datetime(NOW), "Sat, 21 Nov 2026 00:00:03 -0000"]
    assert [retry_after_seconds(text, NOW) for text in texts] == [7.0, 7.0, 9.0, 0.0, 0.0, 3.0]


def test_a_header_with_neither_has_no_seconds() -> None:
    assert [retry_after_seconds(text, NOW) for text in (None, "", "soon", "-5", "Sat, 99 Nov 2026")] == [None] * 5
