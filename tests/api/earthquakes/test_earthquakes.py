"""Earthquakes through the API, on the real engine."""

import asyncio
import json
from contextlib import aclosing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.queues import OverflowPolicy
from resolvers.earthquakes.earthquakes import earthquake_detected
from resolvers.shared.context import Info
from resolvers.shared.global_ids import global_id
from tests.support.deliveries import events_in
from tests.support.earthquake_samples import put_item, put_raw, quake, store
from tests.support.served import NOON, Served

REPORT = 'mutation { reportSighting(input: {area: "Harbor", category: "Cats", description: "A tabby"}) { id } }'
TWO_LISTS = """query ($some: [ID!]!, $others: [ID!]!) {
  some: nodes(ids: $some) { ... on Earthquake { eventId } }
  others: nodes(ids: $others) { ... on Earthquake { eventId } }
}"""
LIST = """
query ($start: DateTime, $end: DateTime, $least: Float) {
  earthquakes(from: $start, to: $end, minMagnitude: $least) { nodes { id } }
}
"""
QUAKE = "query ($id: ID!) { earthquake(id: $id) { eventId } }"


async def test_a_window_lists_its_earthquakes_newest_first(served: Served) -> None:
    await store(
        served,
        quake("us1", timedelta(days=2)),
        quake("us2", timedelta(hours=1), magnitude=6.1, depth_km=None),
        quake("tomorrow", -timedelta(days=1)),
        quake("long-ago", timedelta(days=31)),
    )

    answer = await served.ask(
        """{ earthquakes(first: 5) {
          edges { node { eventId occurredAt magnitude place latitude longitude depthKm source ingestedAt } }
          pageInfo { hasNextPage hasPreviousPage }
          lastEvaluatedKey
        } }"""
    )

    always = {"place": "1 km N of Here", "latitude": 33.25, "longitude": -116.5, "source": "USGS"}
    always["ingestedAt"] = "2026-06-25T12:00:00.000Z"
    recent = {"eventId": "us2", "occurredAt": "2026-06-25T11:00:00.000Z", "magnitude": 6.1, "depthKm": None}
    older = {"eventId": "us1", "occurredAt": "2026-06-23T12:00:00.000Z", "magnitude": 4.5, "depthKm": 9.75}
    assert answer.errors is None
    assert answer.data == {
        "earthquakes": {
            "edges": [{"node": recent | always}, {"node": older | always}],
            "pageInfo": {"hasNextPage": False, "hasPreviousPage": False},
            "lastEvaluatedKey": None,
        }
    }


async def test_only_selected_attributes_of_an_item_are_read(served: Served) -> None:
    await store(served, quake("us1"))
    answer = await served.ask(
        """fragment Strength on Earthquake { magnitude }
        { earthquakes(first: 1) { ... on EarthquakeConnection { edges { node { ...Strength __typename } } } } }"""
    )

    assert answer.data == {"earthquakes": {"edges": [{"node": {"magnitude": 4.5, "__typename": "Earthquake"}}]}}
    assert answer.calls[0].request["ProjectionExpression"] == "#pk, #sk, #gsi1pk, #gsi1sk, #mag"


# Bad input


BAD_ARGUMENTS = [
    ("first: 0", "first"),
    ("first: 101", "first"),
    ("first: -1", "first"),
    ("last: 0", "last"),
    ("last: 101", "last"),
    ("first: 2147483648", None),
    ("first: 1, last: 1", None),
    ('first: 1, before: "x"', None),
    ('from: "2026-06-25T12:00:00Z", to: "2026-06-25T11:59:59Z"', "from"),
    ('from: "2016-06-15T12:00:00Z"', "from"),
    ('from: "0001-01-01T00:00:00+14:00"', "from"),
    ('to: "0001-01-01T00:00:00Z"', "to"),
    ('to: "9999-12-31T23:59:59.999-14:00"', "to"),
    ('to: "10000-01-01T00:00:00Z"', None),
    ('to: "yesterday"', None),
    ("minMagnitude: 1e400", "minMagnitude"),
    ("minMagnitude: -1e400", "minMagnitude"),
    ("minMagnitude: 1e126", "minMagnitude"),
    ("minMagnitude: 10.1", "minMagnitude"),
    ("minMagnitude: -2.1", "minMagnitude"),
    ("minMagnitude: NaN", None),
    ('minMagnitude: "4"', None),
]


async def test_bad_arguments_are_named_without_a_call(served: Served) -> None:
    asked = [f"{{ earthquakes({arguments}) {{ nodes {{ id }} }} }}" for arguments, _ in BAD_ARGUMENTS]

    answers = [await served.ask(query) for query in asked]

    received = [(answer.errors or [{}])[0] for answer in answers]
    assert [answer.codes for answer in answers] == [["BAD_USER_INPUT"]] * len(asked)
    assert [error["extensions"].get("field") for error in received] == [field for _, field in BAD_ARGUMENTS]
    assert all((field or "") in error["message"] for error, (_, field) in zip(received, BAD_ARGUMENTS, strict=True))
    assert [call for answer in answers for call in answer.calls] == []


async def test_a_magnitude_that_is_not_finite_is_refused_in_variables_too(served: Served) -> None:
    body = json.dumps({"query": LIST, "variables": {"least": "HERE"}})
    numbers = ["1e400", "-1e400", "NaN", "Infinity", '"4"', "{}", "1e127"]

    codes = [await codes_of(served, body.replace('"HERE"', number)) for number in numbers]

    assert codes == [["BAD_USER_INPUT"]] * len(numbers)


async def codes_of(served: Served, body: str) -> list[str]:
    """Send the raw body of a request. Return the error codes of the response."""
    headers = {"Content-Type": "application/json"}
    async with served.http.post(f"{served.url}/graphql", data=body, headers=headers) as response:
        return [error["extensions"]["code"] for error in (await response.json())["errors"]]


async def test_any_magnitude_within_bounds_is_accepted(served: Served) -> None:
    await store(served, quake("us1", magnitude=9.0))
    magnitudes = [1e-200, -1e-200, 0, -0.0, 5e-324, 4.1000000000000005, -2, 10]

    answers = [await served.ask(LIST, {"least": least}) for least in magnitudes]

    assert [answer.errors for answer in answers] == [None] * len(magnitudes)
    assert [len(answer.data["earthquakes"]["nodes"]) for answer in answers] == [1, 1, 1, 1, 1, 1, 1, 0]


async def test_the_first_and_last_years_are_accepted(served: Served) -> None:
    first = await served.ask(LIST, {"end": "1000-01-01T00:00:00Z"})
    last = await served.ask(LIST, {"start": "9999-12-31T00:00:00Z", "end": "9999-12-31T23:59:59.999999Z"})

    assert [first.errors, last.errors] == [None, None]
    assert [len(first.calls), len(last.calls)] == [1, 1]


async def test_an_impossible_event_id_is_refused(served: Served) -> None:
    ids = ["", "x" * 65, "x" * 3000, "🌋" * 65]

    answers = [await served.ask(QUAKE, {"id": one}) for one in ids]

    refusal = {
        "message": "`id` must have 1 to 64 characters.",
        "extensions": {"code": "BAD_USER_INPUT", "field": "id"},
        "locations": [{"line": 1, "column": 20}],
        "path": ["earthquake"],
    }
    assert [(answer.data, answer.errors) for answer in answers] == [({"earthquake": None}, [refusal])] * len(ids)


async def test_an_odd_event_id_that_is_not_known_is_null(served: Served) -> None:
    await store(served, quake("us1"))
    ids = ["nowhere", "#", "a#EVENT", "us1\n", "\0", "%", "🌋" * 64, " ", "EVENT#us1", "\ufeff"]

    answers = [await served.ask(QUAKE, {"id": one}) for one in ids]

    assert [(answer.data, answer.errors) for answer in answers] == [({"earthquake": None}, None)] * len(ids)


async def test_odd_event_ids_are_stored_and_found(served: Served) -> None:
    ids = ["#", "a#b", "100%", "line\nbreak", "nul\0", "ı🌋", " "]
    await store(served, *(quake(one) for one in ids))

    answers = [await served.ask(QUAKE, {"id": one}) for one in ids]

    assert [answer.data["earthquake"]["eventId"] for answer in answers] == ids


async def test_half_a_surrogate_pair_is_refused(served: Served) -> None:
    bodies = ['{"query": "{ earthquake(id: \\"\\\\ud800\\") { id } }"}', '{"query": "\\ud800"}']

    codes = [await codes_of(served, body) for body in bodies]

    assert codes == [["BAD_USER_INPUT"]] * 2


# Point reads


async def test_many_ids_are_two_concurrent_batches(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(served, *(quake(f"us{number}") for number in range(150)))
    ids = [global_id("Earthquake", f"us{number}") for number in range(150)]
    most = concurrent_calls(served, monkeypatch)

    answer = await served.ask(TWO_LISTS, {"some": ids[:90], "others": ids[80:]})

    sizes = [len(entry["Keys"]) for call in answer.calls for entry in call.request["RequestItems"].values()]
    assert answer.errors is None
    assert answer.data == {
        "some": [{"eventId": f"us{number}"} for number in range(90)],
        "others": [{"eventId": f"us{number}"} for number in range(80, 150)],
    }
    assert answer.made == ["BatchGetItem earthquake-events"] * 2
    assert sorted(sizes) == [50, 100]
    assert max(most) == 2


def concurrent_calls(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of calls in progress at the start of each call."""
    assert served.gateway.database is not None
    client, under_way, seen = served.gateway.database.client, 0, []
    call = client.call

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal under_way
        under_way += 1
        seen.append(under_way)
        try:
            return await call(*arguments, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(client, "call", counted)
    return seen


async def test_a_bad_id_among_valid_ones_fails_its_own_field_only(served: Served) -> None:
    await store(served, quake("us1"), quake("us2"))

    answer = await served.ask(
        """{ a: earthquake(id: "us1") { eventId } bad: earthquake(id: "") { eventId }
             none: earthquake(id: "us3") { eventId } b: earthquake(id: "us2") { eventId } }"""
    )

    assert answer.data == {"a": {"eventId": "us1"}, "bad": None, "none": None, "b": {"eventId": "us2"}}
    assert answer.codes == ["BAD_USER_INPUT"]
    assert [error["path"] for error in answer.errors or ()] == [["bad"]]
    assert answer.made == ["BatchGetItem earthquake-events"]


async def test_nodes_of_two_tables_are_read_in_one_batch(served: Served) -> None:
    await store(served, quake("us1"))
    assert (await served.ask(REPORT, user="ada")).errors is None
    quakes = await served.ask('{ earthquake(id: "us1") { id } }')
    profile = await served.ask('{ userProfile(id: "ada") { id } }', user="ada")
    ids = [quakes.data["earthquake"]["id"], profile.data["userProfile"]["id"], quakes.data["earthquake"]["id"]]

    answer = await served.ask(
        """query ($ids: [ID!]!, $one: ID!) {
          nodes(ids: $ids) { __typename id } node(id: $one) { ... on Earthquake { eventId } }
        }""",
        {"ids": ids, "one": ids[0]},
    )

    assert answer.errors is None
    assert answer.data == {
        "nodes": [
            {"__typename": "Earthquake", "id": ids[0]},
            {"__typename": "UserProfile", "id": ids[1]},
            {"__typename": "Earthquake", "id": ids[0]},
        ],
        "node": {"eventId": "us1"},
    }
    assert answer.made == ["BatchGetItem blip+earthquake-events"]


# Damaged items


DAMAGES: list[dict[str, Any]] = [
    {"mag": None},
    {"mag": "strong"},
    {"mag": True},
    {"eventTsMs": 10**17},
    {"eventTsMs": 1.5},
    {"place": None},
    {"lat": {"degrees": 3}},
    {"depth": "deep"},
    {"ingestedAt": None},
]


async def test_a_damaged_item_is_null_in_its_place_of_a_page(served: Served) -> None:
    await store(served, quake("first"), quake("last", timedelta(hours=20)))
    for number, damage in enumerate(DAMAGES, 1):
        await put_raw(served, f"us{number}", NOON - timedelta(hours=number), **damage)

    answer = await served.ask(
        """{ earthquakes {
          nodes { eventId occurredAt magnitude place latitude longitude depthKm source ingestedAt }
          edges { cursor }
        } }"""
    )

    page = answer.data["earthquakes"]
    assert [node and node["eventId"] for node in page["nodes"]] == ["first", *[None] * len(DAMAGES), "last"]
    assert len({edge["cursor"] for edge in page["edges"]}) == len(DAMAGES) + 2
    assert [(error["path"], error["message"]) for error in answer.errors or ()] == [
        (["earthquakes", "nodes", number], "A stored record is damaged.") for number, _ in enumerate(DAMAGES, 1)
    ]


async def test_a_damaged_item_is_an_error_of_its_field(served: Served) -> None:
    await store(served, quake("us1"))
    await put_raw(served, "us2", mag=None)

    answer = await served.ask('{ bad: earthquake(id: "us2") { place } good: earthquake(id: "us1") { eventId } }')

    assert answer.data == {"bad": None, "good": {"eventId": "us1"}}
    assert [(error["path"], error["message"]) for error in answer.errors or ()] == [
        (["bad"], "A stored record is damaged.")
    ]


async def test_numbers_of_another_program_with_many_digits_are_read(served: Served) -> None:
    await put_raw(served, "us1", mag=4, lat=12.5, depth=None)

    answer = await served.ask('{ earthquake(id: "us1") { magnitude latitude depthKm } }')

    assert answer.data == {"earthquake": {"magnitude": 4.0, "latitude": 12.5, "depthKm": None}}


# Live


async def test_a_subscriber_receives_matching_events_in_every_writer(served: Served) -> None:
    box = "{south: 30, west: -120, north: 40, east: -110}"
    listener = await served.listen(
        f"subscription {{ earthquakeDetected(minMagnitude: 4, boundingBox: {box}) {{ eventId magnitude place }} }}"
    )
    await served.settle(EARTHQUAKES)

    await put_raw(served, "weak", mag=3.9)
    await put_raw(served, "far", lon=-121)
    await put_raw(served, "edge", lon=-120, lat=40, mag=4)
    await store(served, quake("near"))

    strong = {"magnitude": 4.0, "place": "1 km N of Here"}
    assert await listener.event() == {"earthquakeDetected": {"eventId": "edge", **strong}}
    assert await listener.event() == {"earthquakeDetected": {"eventId": "near", **strong, "magnitude": 4.5}}


async def test_a_box_may_cross_the_180th_meridian(served: Served) -> None:
    box = "{south: -30, west: 170, north: 0, east: -170}"
    listener = await served.listen(f"subscription {{ earthquakeDetected(boundingBox: {box}) {{ eventId }} }}")
    await served.settle(EARTHQUAKES)

    for event_id, longitude in (("fiji", 178.5), ("out", 169.9), ("tonga", -175), ("out2", -169.9), ("line", 180)):
        await put_raw(served, event_id, lat=-18, lon=longitude)

    events = [(await listener.event())["earthquakeDetected"]["eventId"] for _ in range(3)]
    assert events == ["fiji", "tonga", "line"]


async def test_updates_are_not_sent_as_new_earthquakes(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    listener = await served.listen("subscription { earthquakeDetected { eventId place } }")
    await served.settle(EARTHQUAKES)

    await put_raw(served, "damaged", mag=None)
    await put_raw(served, "worse", mag="strong", eventTsMs="now")
    await put_item(served, {"pk": "LOG#20260625", "sk": "1#1", "entity": "LOG"})
    await put_raw(served, "good")
    await put_raw(served, "good", place="Elsewhere")
    await put_raw(served, "last")

    assert await listener.event() == {"earthquakeDetected": {"eventId": "good", "place": "1 km N of Here"}}
    assert await listener.event() == {"earthquakeDetected": {"eventId": "last", "place": "1 km N of Here"}}
    assert caplog.text.count("is damaged") == 2


BAD_FILTERS = [
    ("minMagnitude: 1e400", "minMagnitude"),
    ("boundingBox: {south: -91, west: 0, north: 0, east: 0}", "south"),
    ("boundingBox: {south: 0, west: 0, north: 90.5, east: 0}", "north"),
    ("boundingBox: {south: 0, west: -181, north: 0, east: 0}", "west"),
    ("boundingBox: {south: 0, west: 0, north: 0, east: 1e400}", "east"),
    ("boundingBox: {south: 1, west: 0, north: 0, east: 0}", "south"),
]


async def test_a_box_beyond_the_globe_is_refused_with_its_edge(served: Served) -> None:
    queries = [f"subscription {{ earthquakeDetected({arguments}) {{ eventId }} }}" for arguments, _ in BAD_FILTERS]

    messages = [await (await served.listen(query)).message() for query in queries]

    errors = [
        (message["payload"] if message["type"] == "error" else message["payload"]["errors"])[0] for message in messages
    ]
    assert [error["extensions"] for error in errors] == [
        {"code": "BAD_USER_INPUT", "field": field} for _, field in BAD_FILTERS
    ]
    assert all(field in error["message"] for error, (_, field) in zip(errors, BAD_FILTERS, strict=True))


async def test_a_subscriber_to_the_latest_gets_the_newest_waiting_event(served: Served) -> None:
    context = served.gateway.open_context(None)
    info = cast(Info, SimpleNamespace(context=context))
    quick = await served.listen("subscription { earthquakeDetected { eventId } }")
    source = await earthquake_detected(info, when_slow=OverflowPolicy.LATEST)
    async with aclosing(events_in(source.open(SourceReader(context)).deliveries)) as slow:
        first = asyncio.ensure_future(anext(slow))
        await served.settle(EARTHQUAKES, 2)

        for event_id in ("us1", "us2", "us3", "us4"):
            await put_raw(served, event_id)
            assert (await quick.event())["earthquakeDetected"]["eventId"] == event_id

        assert (await first).event_id == "us1"
        assert (await anext(slow)).event_id == "us4"
