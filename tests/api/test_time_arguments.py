"""Times in arguments: a date alone means its midnight, and a time without an offset is in UTC."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strawberry.exceptions import StrawberryInputCoercionError

from resolvers.earthquakes.query_window import LONGEST_WINDOW, days_of_window
from resolvers.shared import validation as validate
from tests.support.earthquake_samples import quake, store
from tests.support.served import NOON, Served

LIST = "query ($start: DateTime, $end: DateTime) {earthquakes(from: $start, to: $end) {nodes {eventId}}}"
SAME = ["2026-06-25", "20260625", "2026-06-25T00:00", "2026-06-25T00:00:00", "2026-06-25T00:00:00.000Z"]
SAME += ["2026-06-25T02:00:00+02:00", "2026-W26-4"]


@pytest.mark.parametrize("start", SAME)
@pytest.mark.parametrize("in_variables", [True, False], ids=["in variables", "in the query"])
async def test_equal_times_select_the_same_window(served: Served, start: str, in_variables: bool) -> None:
    await store(served, quake("before", timedelta(hours=12, seconds=1)), quake("after", timedelta(hours=11)))

    if in_variables:
        answer = await served.ask(LIST, {"start": start})
    else:
        answer = await served.ask(f'{{earthquakes(from: "{start}") {{nodes {{eventId}}}}}}')

    assert answer.errors is None
    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "after"}]}}


def test_the_estimate_parses_times_as_the_query_does() -> None:
    assert {days_of_window({"from": start}, NOON) for start in SAME} == {1.0}
    assert days_of_window({"from": "2026-06"}, NOON) == 1.0 + LONGEST_WINDOW.days


@given(st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1)))  # noqa: DTZ001 - the test needs a time without a zone
def test_a_time_without_an_offset_is_in_utc(moment: datetime) -> None:
    assert validate.parse_timestamp(moment.isoformat()) == moment.replace(tzinfo=UTC)


@given(st.datetimes(datetime(1000, 1, 2), datetime(9000, 1, 1)), st.integers(-23 * 60, 23 * 60))  # noqa: DTZ001
def test_an_offset_is_applied(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    assert validate.parse_timestamp(there.isoformat()) == there


@given(st.text())
def test_a_text_is_parsed_as_a_time_with_an_offset_or_is_an_error(text: str) -> None:
    with suppress(StrawberryInputCoercionError):
        assert validate.parse_timestamp(text).tzinfo is not None


@pytest.mark.parametrize("value", [20260625, None, {}, ["2026-06-25"], "2026", "2026-06", "2026-06T10:00"])
def test_an_invalid_day_is_refused(value: Any) -> None:
    with pytest.raises(StrawberryInputCoercionError):
        validate.parse_timestamp(value)


WRITTEN = 'A DateTime is written as in "2026-06-25T14:30:00Z", not as '
REFUSED = {
    '{earthquakes(from: "soon") {nodes {eventId}}}': ("from", '"soon".', 20),
    "{earthquakes(to: 5) {nodes {eventId}}}": ("to", "a value that is not a string.", 18),
    'subscription {earthquakeDetected(from: "soon") {eventId}}': ("from", '"soon".', 40),
    'mutation {createPhoto(input: {takenAt: "soon"}) {id}}': ("input.takenAt", '"soon".', 30),
}


@pytest.mark.parametrize("query", REFUSED)
async def test_an_invalid_literal_is_refused_by_the_name_of_its_argument(served: Served, query: str) -> None:
    argument, given_as, column = REFUSED[query]

    answer = await served.ask(query)

    assert {
        "message": f"Argument '{argument}' has invalid value: {WRITTEN}{given_as}",
        "extensions": {"code": "BAD_USER_INPUT"},
        "locations": [{"line": 1, "column": column}],
    } in (answer.errors or [])


async def test_an_invalid_default_value_is_refused_with_its_location(served: Served) -> None:
    answer = await served.ask(LIST.replace("$start: DateTime", '$start: DateTime = "soon"'))

    assert answer.errors == [
        {
            "message": f'{WRITTEN}"soon".',
            "extensions": {"code": "BAD_USER_INPUT"},
            "locations": [{"line": 1, "column": 27}],
        }
    ]


async def test_an_invalid_variable_is_refused_by_its_name(served: Served) -> None:
    answer = await served.ask(LIST, {"start": "soon"})

    (error,) = answer.errors or []
    assert error["message"] == f"Variable '$start' has invalid value: {WRITTEN}\"soon\"."
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
