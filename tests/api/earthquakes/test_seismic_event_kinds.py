"""Earthquakes and other seismic events: their attributes, lists and deliveries (QUAKE-2, QUAKE-S1)."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.earthquakes import EARTHQUAKES
from tests.support.earthquake_samples import put_raw, quake, scan, store
from tests.support.resuming_clients import SocketClient
from tests.support.served import NOON, Served
from tests.support.usgs_samples import decoded_quake as judged

LIST = "query ($kind: SeismicEventKind) {earthquakes(kind: $kind) {nodes {eventId type}}}"
ALL = "{earthquake(id: %s) {type status updatedAt alert isTsunamiPossible significance url}}"
PROPERTIES = {
    "kind": "Earthquake ",
    "status": "REVIEWED",
    "updated": 1_700_000_000_000,
    "alert": "green",
    "tsunami": 1,
    "sig": 312,
    "url": "https://earthquake.usgs.gov/earthquakes/eventpage/us1",
}


async def listed_event_ids(served: Served, kind: str | None = None) -> list[str]:
    variables = {} if kind is None else {"kind": kind}
    answer = await served.ask(LIST, variables)
    assert answer.errors is None
    return sorted(node["eventId"] for node in answer.data["earthquakes"]["nodes"])


async def test_other_events_are_listed_on_request(served: Served) -> None:
    await store(served, quake("quake"), quake("blast", type="quarry blast"), quake("ice", type="ice quake"))
    await put_raw(served, "document")

    assert await listed_event_ids(served) == ["document", "quake"]
    assert await listed_event_ids(served, "EARTHQUAKE") == ["document", "quake"]
    assert await listed_event_ids(served, "OTHER") == ["blast", "ice"]
    assert await listed_event_ids(served, "ANY") == ["blast", "document", "ice", "quake"]


async def test_pages_are_full_also_with_other_events_in_between(served: Served) -> None:
    events = [quake(f"q{number:02}", timedelta(minutes=number)) for number in range(12)]
    blasts = [quake(f"b{number:02}", timedelta(minutes=number), type="explosion") for number in range(12)]
    await store(served, *events, *blasts)
    found: list[str] = []
    after: str | None = None
    while True:
        answer = await served.ask(
            "query ($after: String) {earthquakes(first: 5, after: $after) "
            "{nodes {eventId} pageInfo {hasNextPage endCursor}}}",
            {"after": after},
        )
        page = answer.data["earthquakes"]
        found += [node["eventId"] for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
        assert len(page["nodes"]) == 5

    assert found == [event.event_id for event in events]


async def test_a_cursor_is_valid_for_its_kind_only(served: Served) -> None:
    await store(served, quake("a"), quake("b"))
    answer = await served.ask("{earthquakes(first: 1) {pageInfo {endCursor}}}")
    cursor = answer.data["earthquakes"]["pageInfo"]["endCursor"]

    refused = await served.ask(f'{{earthquakes(first: 1, kind: ANY, after: "{cursor}") {{nodes {{eventId}}}}}}')

    assert refused.codes == ["BAD_CURSOR"]


async def test_the_properties_of_a_usgs_event_are_stored_and_returned(served: Served) -> None:
    event = await judged(**PROPERTIES)
    await store(served, event)

    answer = await served.ask(ALL % '"us1"')
    (item,) = await scan(served, "EVENT")

    assert answer.data["earthquake"] == {
        "type": "earthquake",
        "status": "reviewed",
        "updatedAt": "2023-11-14T22:13:20.000Z",
        "alert": "green",
        "isTsunamiPossible": True,
        "significance": 312,
        "url": PROPERTIES["url"],
    }
    assert (item["type"], item["updated"], item["tsunami"], item["sig"]) == (
        {"S": "earthquake"},
        {"N": "1700000000000"},
        {"BOOL": True},
        {"N": "312"},
    )


async def test_a_documented_item_is_an_earthquake(served: Served) -> None:
    await put_raw(served, "plain")

    answer = await served.ask(ALL % '"plain"')

    nothing = dict.fromkeys(("status", "updatedAt", "alert", "isTsunamiPossible", "significance", "url"))
    assert answer.data["earthquake"] == {"type": "earthquake", **nothing}


ODD: list[dict[str, Any]] = [
    {"status": 7, "updated": "yesterday", "alert": 1, "tsunami": "yes", "sig": "many", "url": 5},
    {"updated": 10**17, "sig": 1.5},
    {"sig": 10**12},
]


@pytest.mark.parametrize("attributes", ODD)
async def test_optional_attributes_of_other_programs_do_not_damage_an_item(
    served: Served, attributes: dict[str, Any]
) -> None:
    await put_raw(served, "odd", **attributes)

    answer = await served.ask(ALL % '"odd"')

    assert answer.errors is None
    assert set(answer.data["earthquake"].values()) == {"earthquake", None}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": None, "updated": None, "alert": None, "tsunami": None, "sig": None, "url": None},
        {"kind": 5, "updated": "x", "alert": [], "tsunami": "1", "sig": 2.5, "url": "javascript:alert(1)"},
        {"kind": " ", "updated": 10**17, "alert": "", "sig": 10**12, "url": "https://x/" + "y" * 1_000},
    ],
)
async def test_optional_properties_that_cannot_be_stored_are_omitted(changes: dict[str, Any]) -> None:
    event = await judged(**changes)

    assert (event.type, event.updated_at_ms, event.alert, event.tsunami, event.significance, event.url) == (
        "earthquake",
        *[None] * 5,
    )


# The subscription


async def assert_received(served: Served, arguments: str, *ids: str) -> None:
    """Check that a subscriber with these arguments receives exactly these of the stored events."""
    field = f"earthquakeDetected({arguments})" if arguments else "earthquakeDetected"
    listener = await served.listen(f"subscription {{{field} {{eventId}}}}")
    await served.settle(EARTHQUAKES)
    day = timedelta(days=1)
    await store(
        served,
        quake("old", 3 * day),
        quake("just-too-old", day + timedelta(milliseconds=1)),
        quake("yesterday", day),
        quake("blast", type="quarry blast"),
    )
    await put_raw(served, "last")
    found: list[str] = []
    while not found or found[-1] != "last":
        found.append((await listener.event())["earthquakeDetected"]["eventId"])
    # The events were stored right after their time.
    assert (sorted(found[:-1]), found[-1]) == (sorted(ids), "last")


async def test_events_of_an_old_feed_are_not_delivered(served: Served) -> None:
    await assert_received(served, "", "yesterday")


async def test_a_subscriber_may_request_older_events(served: Served) -> None:
    since = NOON - timedelta(days=2)
    await assert_received(served, f'from: "{since.isoformat()}"', "just-too-old", "yesterday")


async def test_a_subscriber_may_request_other_events(served: Served) -> None:
    await assert_received(served, "kind: ANY", "yesterday", "blast")


async def test_an_event_that_was_recent_when_stored_is_delivered_to_a_client_that_resumes_later(served: Served) -> None:
    client = SocketClient(served.http, "subscription {earthquakeDetected {eventId}}", {})
    async with client.connected(served.url) as received:
        await anext(received)
        await put_raw(served, "first")
        assert (await anext(received))["data"]["earthquakeDetected"]["eventId"] == "first"
    await put_raw(served, "missed")
    served.clock.forward(hours=30)

    async with client.connected(served.url) as received:
        assert (await anext(received))["data"]["earthquakeDetected"]["eventId"] == "missed"
