"""`logEvent`: events of the apps of the photo library (SPARKS-W1)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.photos.table import BY_EMAIL, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from tests.support.fault_proxy import Proxy, Seen
from tests.support.photo_items import ADA, ask_as, photo, put_library_items
from tests.support.served import NOON, Answer, Served

LOG = "mutation ($events: [LogEventInput!]!) { logEvent(input: $events) { eventId eventType eventData createdAt } }"
EVERYTHING = AccessPattern("T-1", "", SPARKS, ("Scan",), Who.ANY)
BY_TYPE_ALONE = AccessPattern("T-2", "", SPARKS, ("Query",), Who.ANY, index=BY_TYPE, key="entityType = :partition")
BY_EMAIL_ALONE = AccessPattern("T-3", "", SPARKS, ("Query",), Who.ANY, index=BY_EMAIL, key="email = :partition")


def view(**more: Any) -> dict[str, Any]:
    return {"eventType": "PHOTO_VIEW", "eventData": {"imageId": "i1"}} | more


async def log_events(served: Served, *events: dict[str, Any], email: str | None = ADA) -> Answer:
    answer: Answer = await ask_as(served, LOG, email, events=list(events))
    return answer


async def stored_log_items(served: Served) -> list[dict[str, Any]]:
    return sorted(await served.store().scan(EVERYTHING), key=lambda item: str(item["PK"]))


async def test_events_are_stored_as_documented(served: Served) -> None:
    when = NOON - timedelta(hours=1)

    answer = await log_events(
        served, view(createdAt=when.isoformat()), {"eventType": "app.open-2"}, email="Ada@Example.com"
    )

    assert (answer.errors, answer.made) == (None, ["BatchWriteItem sparks"])
    first, second = answer.data["logEvent"]
    assert first | {"eventId": ""} == {
        "eventId": "",
        "eventType": "PHOTO_VIEW",
        "eventData": {"imageId": "i1"},
        "createdAt": "2026-06-25T11:00:00.000Z",
    }
    assert (second["eventType"], second["eventData"]) == ("app.open-2", {})
    assert [UUID(event["eventId"]).version for event in (first, second)] == [7, 7]
    items = {item["PK"]: item for item in await stored_log_items(served)}
    assert items[f"EVENT#{first['eventId']}"] == {
        "PK": f"EVENT#{first['eventId']}",
        "SK": "EVENT#2026-06-25T11:00:00.000Z",
        "entityType": "EVENT",
        "eventType": "PHOTO_VIEW",
        "eventData": {"imageId": "i1"},
        "email": ADA,
        "createdAt": "2026-06-25T11:00:00.000Z",
    }
    assert len(items) == 2


async def test_an_event_without_a_verified_email_has_none(served: Served) -> None:
    assert (await log_events(served, view(), email=None)).errors is None

    assert [item.get("email") for item in await stored_log_items(served)] == [None]


async def test_logging_events_requires_a_signed_in_user(served: Served) -> None:
    answer = await served.ask(LOG, {"events": [view()]})

    assert (answer.codes, answer.made, await stored_log_items(served)) == (["UNAUTHENTICATED"], [], [])


async def test_twenty_five_events_are_one_call_and_each_has_its_own_id(served: Served) -> None:
    answer = await log_events(served, *[view(eventData={"n": n}) for n in range(25)])

    assert answer.made == ["BatchWriteItem sparks"]
    assert [event["eventData"]["n"] for event in answer.data["logEvent"]] == list(range(25))
    assert sorted(item["eventData"]["n"] for item in await stored_log_items(served)) == list(range(25))


async def test_text_in_events_is_stored_in_nfc(served: Served) -> None:
    answer = await log_events(served, view(eventData={"cafe\u0301": ["e\u0301", {"in": "Zoe\u0308"}]}))

    kept_as = {"caf\u00e9": ["\u00e9", {"in": "Zo\u00eb"}]}
    assert answer.data["logEvent"][0]["eventData"] == kept_as
    assert [item["eventData"] for item in await stored_log_items(served)] == [kept_as]


async def test_too_many_or_no_events_are_refused(served: Served) -> None:
    for number in (0, 26):
        answer = await log_events(served, *[view()] * number)
        assert (answer.codes, answer.made) == (["BAD_USER_INPUT"], [])
        assert [error["message"] for error in answer.errors or ()] == [
            f"`input` must contain between 1 and 25, not {number}."
        ]


def nested(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(levels - 1):
        data = {"in": data}
    return data


async def test_events_within_the_limits_are_stored_exactly(served: Served) -> None:
    data: list[dict[str, Any]] = [
        {"whole": 2**63 - 1, "least": -(2**63), "part": 0.1, "tiny": 1e-130, "minus": -1.5e15},
        {"yes": True, "none": None, "words": 'é\n"', "list": [1, "a", [None, {}]], "empty": ""},
        nested(5),
        {f"k{n}": n for n in range(100)},
        {"k" * 100: "x" * (4096 - 107)},
    ]

    answer = await log_events(served, *[view(eventData=each, eventType="x" * 50) for each in data])

    assert answer.errors is None
    assert [event["eventData"] for event in answer.data["logEvent"]] == data
    items = {item["PK"].removeprefix("EVENT#"): item["eventData"] for item in await stored_log_items(served)}
    assert [items[event["eventId"]] for event in answer.data["logEvent"]] == data


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"eventType": ""}, "eventType", "between 1 and 50"),
    ({"eventType": "x" * 51}, "eventType", "between 1 and 50"),
    ({"eventType": "PHOTO VIEW"}, "eventType", "letters"),
    ({"eventType": "VIEW\n"}, "eventType", "letters"),
    ({"eventData": []}, "eventData", "object"),
    ({"eventData": "{}"}, "eventData", "object"),
    ({"eventData": nested(6)}, "eventData", "5 levels"),
    ({"eventData": {"a": [[[[[]]]]]}}, "eventData", "5 levels"),
    ({"eventData": {"a": [0] * 100}}, "eventData", "100 values"),
    ({"eventData": {f"k{n}": n for n in range(101)}}, "eventData", "100 values"),
    ({"eventData": {"k" * 100: "x" * (4097 - 107)}}, "eventData", "4,096 bytes"),
    ({"eventData": {"a": "é" * 2100}}, "eventData", "4,096 bytes"),
    ({"eventData": {"": 1}}, "eventData", "keys"),
    ({"eventData": {"a": {"k" * 101: 1}}}, "eventData", "keys"),
    ({"eventData": {"a": 1e126}}, "eventData", "64 bits"),
    ({"eventData": {"a": 2**63}}, "eventData", "64 bits"),
    ({"eventData": {"a": 2**64}}, "eventData", "64 bits"),
    ({"eventData": {"a": -(2**63) - 1}}, "eventData", "64 bits"),
    ({"eventData": {"a": [{"b": -(10**37)}]}}, "eventData", "64 bits"),
    ({"eventData": {"\u00e9": 1, "e\u0301": 2}}, "eventData", "equal in NFC"),
    ({"eventData": {"a": "e" + "\u0301" * 31}}, "eventData", "30 consecutive combining marks"),
    ({"eventData": {"a": "\uffff"}}, "eventData", "U+FFFF"),
    ({"eventData": {"\u0958" * 51: 1}}, "eventData", "keys"),
    ({"eventData": {"a": 1e-200}}, "eventData", "cannot be stored"),
    ({"createdAt": "2026-06-25T12:05:01Z"}, "createdAt", "five minutes"),
    ({"createdAt": "2026-06-18T11:59:59Z"}, "createdAt", "7 days"),
]


async def test_one_invalid_event_is_named_and_no_event_is_stored(served: Served) -> None:
    for wrong, field, limit in WRONG:
        answer = await log_events(served, view(), view(), view(), view(**wrong), view())
        (error,) = answer.errors or [{}]
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": f"input[3].{field}"}
        assert f"`input[3].{field}`" in error["message"]
        assert limit in error["message"]
        assert answer.made == []

    assert await stored_log_items(served) == []


async def test_number_literals_in_the_query_are_checked_too(served: Served) -> None:
    query = """mutation {{
      logEvent(input: [{{eventType: "a", eventData: {{n: {}, deep: [{{a: "b"}}, ENUM]}}}}]) {{ eventData }}
    }}"""
    numbers = (2**63, -(2**63) - 1, "1e999", 10**30, 7)

    answers = [await ask_as(served, query.format(number)) for number in numbers]

    assert [answer.codes for answer in answers] == [["BAD_USER_INPUT"]] * 4 + [[]]
    assert answers[-1].data["logEvent"] == [{"eventData": {"n": 7, "deep": [{"a": "b"}, "ENUM"]}}]


async def test_events_are_in_no_index_and_not_among_photos(served: Served) -> None:
    await put_library_items(served, photo("i1"))
    logged = await log_events(served, view(eventData={"note": "x" * 4000}))

    in_indexes = [
        (await served.store().query(pattern, {"partition": partition})).items
        for pattern, partition in ((BY_TYPE_ALONE, "EVENT"), (BY_EMAIL_ALONE, ADA))
    ]
    photos = await served.ask(f'{{ photosByUser(email: "{ADA}") {{ nodes {{ imageId }} }} }}')

    assert [item for items in in_indexes for item in items if "eventData" in item or "eventType" in item] == []
    assert [len(items) for items in in_indexes] == [1, 2]
    assert sum(call.units for call in logged.calls) == 5 + 1 + 1  # the table, and each index
    assert photos.data == {"photosByUser": {"nodes": [{"imageId": "i1"}]}}


class TestBusyStore:
    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        return replace(store_options, store=proxy.url)

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "datastore.session.batch_write.UNPROCESSED", Backoff(initial=0.001, maximum=0.002, attempts=4)
        )

    async def test_unprocessed_events_are_sent_again(self, served: Served, proxy: Proxy) -> None:
        proxy.faults += [unprocessed_puts(20), unprocessed_puts(3)]
        proxy.seen.clear()

        answer = await log_events(served, *[view(eventData={"n": n}) for n in range(25)])

        assert answer.errors is None
        sent = [len(next(iter(seen.body["RequestItems"].values()))) for seen in proxy.seen]
        assert sent == [25, 20, 3]
        assert sorted(item["eventData"]["n"] for item in await stored_log_items(served)) == list(range(25))

    async def test_events_that_cannot_be_written_are_reported_as_retryable(self, served: Served, proxy: Proxy) -> None:
        proxy.always = unprocessed_puts(2)

        answer = await log_events(served, view(), view(), view())

        proxy.always = None
        assert answer.data is None
        assert answer.codes == ["THROTTLED"]
        assert [error["extensions"]["retryable"] for error in answer.errors or ()] == [True]
        assert len(await stored_log_items(served)) == 1


def unprocessed_puts(count: int) -> Any:
    """Return a proxy fault that leaves the last `count` puts of a batch unprocessed."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        ((table, requests),) = seen.body["RequestItems"].items()
        if kept := requests[:-count]:
            await proxy.ask(replace(seen, body={**seen.body, "RequestItems": {table: kept}}))
        return web.json_response({"UnprocessedItems": {table: requests[-count:]}})

    return answer
