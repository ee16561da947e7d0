"""Moments as clients are shown them."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from schema.moments import SCALARS, shown

SOMEWHERE = timezone(timedelta(hours=5, minutes=45, seconds=30))


@given(moment=st.datetimes(timezones=st.sampled_from([UTC, SOMEWHERE, None])))
@example(moment=datetime.min.replace(tzinfo=UTC))
@example(moment=datetime.max.replace(tzinfo=UTC))
@example(moment=datetime(2026, 6, 25, 14, 30, 0, 500_000, tzinfo=UTC))
def test_a_moment_is_shown_as_python_writes_it(moment: datetime) -> None:
    assert shown(moment) == moment.isoformat()
    assert SCALARS[datetime].serialize is shown
