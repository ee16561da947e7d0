"""Times as the API formats them, and as items contain them."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.items.attributes import text
from datastore.model.timestamps import from_iso
from schema.scalars import SCALARS, format_time

SOMEWHERE = timezone(timedelta(hours=5, minutes=45, seconds=30))


@given(moment=st.datetimes(datetime(2, 1, 1), timezones=st.sampled_from([UTC, SOMEWHERE, None])))  # noqa: DTZ001
@example(moment=datetime.min.replace(tzinfo=UTC))
@example(moment=datetime.max.replace(tzinfo=UTC))
@example(moment=datetime(2026, 6, 25, 14, 30, 0, 500_000, tzinfo=UTC))
def test_a_time_is_formatted_in_utc_with_milliseconds(moment: datetime) -> None:
    in_utc = moment.astimezone(UTC) if moment.tzinfo else moment
    assert format_time(moment) == in_utc.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    assert SCALARS[datetime].serialize is format_time


@pytest.fixture
def in_kathmandu() -> Iterator[None]:
    """Set the time zone of the host to one that is not UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("in_kathmandu")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moment=st.datetimes(datetime(1000, 1, 2), datetime(9000, 1, 1)))  # noqa: DTZ001 - the point is that they have no zone
@example(moment=datetime(2026, 6, 25))  # noqa: DTZ001
def test_a_stored_time_without_an_offset_is_in_utc(moment: datetime) -> None:
    read = RecordDecoder(lambda at: at, at=text("at", from_iso))
    expected = moment.replace(tzinfo=UTC)

    assert from_iso(moment.isoformat()) == expected
    assert read({"at": moment.isoformat()}) == expected
    assert read.raw({"at": {"S": moment.isoformat()}}) == expected
    assert from_iso(expected.astimezone(SOMEWHERE).isoformat()) == expected
