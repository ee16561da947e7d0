"""Times in arguments: each needs an offset from UTC, whichever system the field belongs to."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import NOON, Served
from earthquake_samples import quake, store
from graphql import GraphQLArgument, build_schema, get_named_type, is_input_object_type
from hypothesis import given
from hypothesis import strategies as st
from strawberry.exceptions import StrawberryInputCoercionError

from resolvers import bounds
from resolvers.access import Role
from resolvers.earthquakes import LONGEST_WINDOW, days_of_window

SCHEMA = Path(__file__).parent.parent / "schema/api.graphql"
LIST = "query ($start: DateTime, $end: DateTime) {earthquakes(start: $start, end: $end) {nodes {eventId}}}"
SAME = ["2026-06-25T00:00Z", "2026-06-25T00:00:00Z", "2026-06-25T00:00:00.000Z", "2026-06-25T02:00:00+02:00"]
WITHOUT_OFFSET = ["2026-06-25T00:00:00", "2026-06-25T00:00", "2026-06-25", "20260625", "2026-W26-4"]

PHOTO = '"0197a000-0000-7000-8000-000000000000"'
STREAM = 'title: "Races", streamUrl: "https://example.com/live"'
FIXTURE = 'matchId: "m1", leagueId: "1", leagueCode: "t20", homeTeamId: "1", awayTeamId: "2"'
FACE = f'imageId: {PHOTO}, personId: "p1", boundingBox: {{left: 0, top: 0, width: 0.1, height: 0.1}}'

# Each argument that holds a time: the operation with %s for the time, the role that may call it, the field at fault.
ARGUMENTS: dict[str, tuple[str, Role, str]] = {
    "earthquakes.start": ("{earthquakes(start: %s) {nodes {id}}}", Role.USER, "start"),
    "earthquakes.end": ("{earthquakes(end: %s) {nodes {id}}}", Role.USER, "end"),
    "earthquakeStatistics.start": ("{earthquakeStatistics(start: %s, by: DAY) {isComplete}}", Role.USER, "start"),
    "earthquakeStatistics.end": ("{earthquakeStatistics(end: %s, by: DAY) {isComplete}}", Role.USER, "end"),
    "trendingTags.at": ("{trendingTags(at: %s) {tag}}", Role.USER, "at"),
    "photo.takenAt": (f"{{photo(id: {PHOTO}, takenAt: %s) {{id}}}}", Role.USER, "takenAt"),
    "matchesByLeague.from": ('{matchesByLeague(leagueCode: "t20", from: %s) {nodes {id}}}', Role.USER, "from"),
    "matchesByLeague.to": ('{matchesByLeague(leagueCode: "t20", to: %s) {nodes {id}}}', Role.USER, "to"),
    "createPhoto.input.takenAt": (
        "mutation {createPhoto(input: {contentType: JPEG, takenAt: %s}) {imageId}}",
        Role.USER,
        "takenAt",
    ),
    "updatePhoto.takenAt": (
        f"mutation {{updatePhoto(input: {{imageId: {PHOTO}, tags: []}}, takenAt: %s) {{id}}}}",
        Role.USER,
        "takenAt",
    ),
    "deletePhoto.takenAt": (f"mutation {{deletePhoto(imageId: {PHOTO}, takenAt: %s) {{id}}}}", Role.USER, "takenAt"),
    "tagFace.takenAt": (f"mutation {{tagFace(input: {{{FACE}}}, takenAt: %s) {{id}}}}", Role.USER, "takenAt"),
    "createLivestream.input.startTime": (
        f"mutation {{createLivestream(input: {{{STREAM}, startTime: %s}}) {{id}}}}",
        Role.ADMIN,
        "startTime",
    ),
    "createLivestream.input.endTime": (
        f'mutation {{createLivestream(input: {{{STREAM}, startTime: "2026-06-24T00:00:00Z", endTime: %s}}) {{id}}}}',
        Role.ADMIN,
        "endTime",
    ),
    "updateLivestream.input.startTime": (
        f"mutation {{updateLivestream(input: {{livestreamId: {PHOTO}, startTime: %s}}) {{id}}}}",
        Role.ADMIN,
        "startTime",
    ),
    "updateLivestream.input.endTime": (
        f"mutation {{updateLivestream(input: {{livestreamId: {PHOTO}, endTime: %s}}) {{id}}}}",
        Role.ADMIN,
        "endTime",
    ),
    "logEvent.events.at": ('mutation {logEvent(events: [{eventType: "view", at: %s}]) {__typename}}', Role.USER, "at"),
    "syncFixtures.fixtures.startTime": (
        f"mutation {{syncFixtures(fixtures: [{{{FIXTURE}, startTime: %s}}]) {{id}}}}",
        Role.SYSTEM,
        "startTime",
    ),
    "updateFixture.input.startTime": (
        'mutation {updateFixture(id: "m1", input: {startTime: %s}) {__typename}}',
        Role.SYSTEM,
        "startTime",
    ),
    "earthquakeDetected.since": ("subscription {earthquakeDetected(since: %s) {__typename}}", Role.USER, "since"),
}


def times(arguments: dict[str, GraphQLArgument], at: str) -> Iterator[str]:
    """Yield the path of each argument of the scalar DateTime, and of each such field of an input."""
    for name, argument in arguments.items():
        kind: Any = get_named_type(argument.type)
        if kind.name == "DateTime":
            yield f"{at}.{name}"
        elif is_input_object_type(kind):
            yield from times(kind.fields, f"{at}.{name}")


def test_each_argument_that_holds_a_time_is_tried() -> None:
    schema = build_schema(SCHEMA.read_text())
    types: list[Any] = [kind for kind in schema.type_map.values() if hasattr(kind, "fields")]
    fields = [pair for kind in types if not is_input_object_type(kind) for pair in kind.fields.items()]

    assert {path for name, field in fields for path in times(field.args, name)} == set(ARGUMENTS)


@pytest.mark.parametrize("path", ARGUMENTS)
async def test_a_time_without_an_offset_is_refused_by_its_name(served: Served, path: str) -> None:
    operation, role, field = ARGUMENTS[path]
    for time in ("2026-06-25T12:00:00", "2026-06-25"):
        query = operation % f'"{time}"'
        if query.startswith("subscription"):
            message = await (await served.listen(query)).message()
            errors = message["payload"] if message["type"] == "error" else message["payload"]["errors"]
        else:
            answer = await served.ask(query, user="ada", role=role, email="ada@example.com")
            errors = answer.errors or []

        (error,) = errors
        assert error["extensions"]["code"] == "BAD_USER_INPUT"
        assert error["extensions"]["field"].endswith(field)
        assert f"{field}` must be a date and time with an offset from UTC" in error["message"]
        assert "2026-06-25T14:30:00Z" in error["message"]


@pytest.mark.parametrize("start", WITHOUT_OFFSET)
async def test_of_two_times_the_first_is_named(served: Served, start: str) -> None:
    answer = await served.ask(LIST, {"start": start, "end": "2026-06-26"})

    assert [error["extensions"]["field"] for error in answer.errors or []] == ["start"]
    assert answer.calls == []


@pytest.mark.parametrize("start", SAME)
@pytest.mark.parametrize("in_variables", [True, False], ids=["in variables", "in the query"])
async def test_equal_moments_ask_for_the_same_window(served: Served, start: str, in_variables: bool) -> None:
    await store(served, quake("before", timedelta(hours=12, seconds=1)), quake("after", timedelta(hours=11)))

    if in_variables:
        answer = await served.ask(LIST, {"start": start})
    else:
        answer = await served.ask(f'{{earthquakes(start: "{start}") {{nodes {{eventId}}}}}}')

    assert answer.errors is None
    assert answer.data == {"earthquakes": {"nodes": [{"eventId": "after"}]}}


def test_the_estimate_reads_moments_as_the_query_does() -> None:
    assert {days_of_window({"start": start}, NOON) for start in SAME} == {1.0}
    assert days_of_window({"start": "2026-06"}, NOON) == 1.0 + LONGEST_WINDOW.days


@pytest.mark.parametrize("start", WITHOUT_OFFSET)
def test_the_estimate_of_a_time_that_is_refused_does_not_hide_the_reason(start: str) -> None:
    assert days_of_window({"start": start}, NOON) == 1.0


@pytest.mark.parametrize("minutes", [-23 * 60, -240, 0, 330, 23 * 60])
def test_an_offset_counts(minutes: int) -> None:
    there = NOON.astimezone(timezone(timedelta(minutes=minutes)))

    assert bounds.moment_from(there.isoformat()) == NOON


@given(st.text())
def test_a_text_is_a_moment_or_an_error(text: str) -> None:
    with suppress(StrawberryInputCoercionError):
        assert isinstance(bounds.moment_from(text), datetime)


@pytest.mark.parametrize("value", [20260625, None, {}, ["2026-06-25"], "2026", "2026-06", "2026-06T10:00"])
def test_what_names_no_day_is_refused(value: Any) -> None:
    with pytest.raises(StrawberryInputCoercionError):
        bounds.moment_from(value)
