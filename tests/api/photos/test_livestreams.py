"""Announcing, changing, ending and reading livestreams (SPARKS-8, SPARKS-N3, SPARKS-W1)."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from datastore.dynamodb.codec import Item
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.photos.livestreams import Livestreams
from datastore.session.writes import WriteResult
from tests.support.livestreams import ALL, CREATE, END, UPDATE, admin, announce, change_livestream, iso_after_noon
from tests.support.photo_items import livestream, photo, photo_user, put_library_items
from tests.support.served import NOON, Served

ONE = "query ($id: ID!) { livestream(id: $id, consistent: true) { ...All } }" + ALL
INDEX, TABLE = "Query sparks.entityType-PK-index", "Query sparks"


async def livestream_of(served: Served, id: str) -> Any:
    return (await served.ask(ONE, {"id": id})).data["livestream"]


async def test_a_livestream_is_announced_and_found_by_its_id_and_as_the_latest(served: Served) -> None:
    created = await admin(
        served,
        CREATE,
        input={
            "title": " Opening ",
            "description": "Doors at noon",
            "streamUrl": "https://example.com/live",
            "startTime": "2026-06-25T15:00:00.123456+02:00",
        },
    )
    id = created.data["createLivestream"]["livestreamId"]

    expected = {
        "livestreamId": id,
        "title": "Opening",
        "description": "Doors at noon",
        "streamUrl": "https://example.com/live",
        "startTime": "2026-06-25T13:00:00.123Z",
        "endTime": None,
        "createdAt": iso_after_noon(),
        "status": "UPCOMING",
    }
    assert (created.data["createLivestream"], created.made) == (expected, ["PutItem sparks"])
    found = await served.ask("query ($id: ID!) { livestream(id: $id) { ...All } }" + ALL, {"id": id})
    assert (found.data["livestream"], found.made) == (expected, [TABLE])
    latest = await served.ask("{ latestLivestream { id ...All } }" + ALL)
    assert latest.made == [INDEX]
    assert [(call.request["Limit"], call.request["ScanIndexForward"]) for call in latest.calls] == [(1, False)]
    node_id = latest.data["latestLivestream"].pop("id")
    assert latest.data["latestLivestream"] == expected
    node = await served.ask(
        "query ($id: ID!) { node(id: $id) { ... on Livestream { ...All } } }" + ALL, {"id": node_id}
    )
    assert (node.data["node"], node.made) == (expected, [TABLE])


async def test_without_livestreams_the_latest_is_null_and_lists_are_empty(served: Served) -> None:
    await put_library_items(served, photo("i1"), photo_user())

    answer = await served.ask(
        '{ latestLivestream { title } livestream(id: "x") { title } livestreams { nodes { title } } }'
    )

    assert answer.data == {"latestLivestream": None, "livestream": None, "livestreams": {"nodes": []}}


async def test_the_state_of_livestreams_of_another_program_follows_the_clock(served: Served) -> None:
    hour = timedelta(hours=1)
    await put_library_items(
        served,
        livestream("a", NOON - 2 * hour, NOON, startTime="2026-06-25T10:00:00Z"),
        livestream("b", NOON, NOON + hour),
        livestream("c", NOON - hour),
        livestream("d", NOON + hour),
    )
    query = "{ livestreams(order: ASCENDING) { nodes { livestreamId status } } }"

    before = await served.ask(query)
    served.clock.forward(hours=1)
    after = await served.ask(query)

    states = [
        {stream["livestreamId"]: stream["status"] for stream in answer.data["livestreams"]["nodes"]}
        for answer in (before, after)
    ]
    assert states == [
        {"a": "ENDED", "b": "LIVE", "c": "LIVE", "d": "UPCOMING"},
        {"a": "ENDED", "b": "ENDED", "c": "LIVE", "d": "LIVE"},
    ]
    assert (before.made, await livestream_of(served, "a")) == (
        [INDEX],
        {
            "livestreamId": "a",
            "title": "Livestream a",
            "description": "Live",
            "streamUrl": "https://example.com/stream",
            "startTime": iso_after_noon(hours=-2),
            "endTime": iso_after_noon(),
            "createdAt": "2023-01-01T00:00:00.000Z",
            "status": "ENDED",
        },
    )


async def test_livestreams_are_paged_both_ways_newest_first(served: Served) -> None:
    ids = []
    for _ in range(5):
        ids.append((await announce(served))["livestreamId"])
        served.clock.forward(seconds=1)
    page = """query ($arguments: String, $first: Int, $last: Int, $order: SortOrder! = DESCENDING) {
      livestreams(after: $arguments, first: $first, last: $last, order: $order) {
        nodes { livestreamId } pageInfo { hasNextPage endCursor } lastEvaluatedKey
      } }"""

    first = (await served.ask(page, {"first": 3})).data["livestreams"]
    rest = (await served.ask(page, {"first": 3, "arguments": first["lastEvaluatedKey"]})).data["livestreams"]
    last = (await served.ask(page, {"last": 2, "order": "ASCENDING"})).data["livestreams"]

    named = [[node["livestreamId"] for node in part["nodes"]] for part in (first, rest, last)]
    assert named == [ids[:1:-1], ids[1::-1], ids[3:]]
    assert (first["pageInfo"]["hasNextPage"], rest["pageInfo"]["hasNextPage"]) == (True, False)
    other = await served.ask(page, {"arguments": first["lastEvaluatedKey"], "order": "ASCENDING"})
    assert other.codes == ["BAD_CURSOR"]


async def test_a_livestream_can_be_read_consistently(served: Served) -> None:
    created = await announce(served)

    read = await served.ask(ONE, {"id": created["livestreamId"]})

    assert (read.data["livestream"], [call.request["ConsistentRead"] for call in read.calls]) == (created, [True])


async def test_announcing_an_id_again_returns_the_stored_livestream(served: Served) -> None:
    id = uuid7(NOON, "mine")
    first = await announce(served, livestreamId=id)
    served.clock.forward(minutes=5)

    again = await announce(served, livestreamId=id, title="Other")

    assert again == first
    assert (await served.ask("{ livestreams { nodes { ...All } } }" + ALL)).data["livestreams"]["nodes"] == [first]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"title": " "}, "title"),
    ({"title": "x" * 201}, "title"),
    ({"description": "x" * 2001}, "description"),
    ({"streamUrl": "rtmp://example.com"}, "streamUrl"),
    ({"streamUrl": "https://example.com\\@evil.example"}, "streamUrl"),
    ({"streamUrl": "https://ada:word@example.com/live"}, "streamUrl"),
    ({"streamUrl": "https://example.com@evil.example"}, "streamUrl"),
    ({"startTime": "0999-12-31"}, "startTime"),
    ({"endTime": iso_after_noon(hours=1)}, "endTime"),
    ({"endTime": iso_after_noon(hours=1, microseconds=900)}, "endTime"),
    ({"endTime": iso_after_noon(hours=1, days=30, seconds=1)}, "endTime"),
    ({"livestreamId": "mine"}, "livestreamId"),
    ({"livestreamId": uuid7(NOON - timedelta(days=2), "")}, "livestreamId"),
    ({"livestreamId": uuid7(NOON + timedelta(minutes=6), "")}, "livestreamId"),
]


async def test_an_invalid_livestream_is_refused_and_not_stored(served: Served) -> None:
    for wrong, field in WRONG:
        answer = await admin(
            served,
            CREATE,
            input={"title": "Opening", "streamUrl": "https://example.com/live", "startTime": iso_after_noon(hours=1)}
            | wrong,
        )
        assert [(error["extensions"]["code"], error["extensions"]["field"]) for error in answer.errors or ()] == [
            ("BAD_USER_INPUT", field)
        ]
        assert answer.made == []


@pytest.mark.parametrize("role", [None, Role.USER, Role.SYSTEM])
async def test_only_admins_create_and_change_livestreams(served: Served, role: Role | None) -> None:
    created = await announce(served)
    fields = {"title": "Mine", "streamUrl": "https://example.com", "startTime": iso_after_noon()}
    asked: list[tuple[str, dict[str, Any]]] = [
        (CREATE, {"input": fields}),
        (UPDATE, {"id": created["livestreamId"], "input": {"title": "Mine"}}),
        (END, {"id": created["livestreamId"]}),
    ]

    answers = [
        await served.ask(query, variables, user=role and "eve", role=role or Role.USER) for query, variables in asked
    ]

    code = "FORBIDDEN" if role else "UNAUTHENTICATED"
    assert [(answer.codes, answer.made) for answer in answers] == [([code], [])] * 3
    assert await livestream_of(served, created["livestreamId"]) == created


async def test_an_update_changes_the_given_fields_only(served: Served) -> None:
    created = await announce(served, description="Doors at noon")
    id = created["livestreamId"]

    renamed = await change_livestream(served, id, title="Closing", description=None)
    moved = await change_livestream(served, id, startTime=iso_after_noon(hours=5), endTime=None)
    closed = await change_livestream(served, id, endTime=iso_after_noon(hours=6))

    expected = created | {"title": "Closing", "description": None}
    assert renamed.data["updateLivestream"] == expected
    assert renamed.made == [TABLE, "UpdateItem sparks"]
    assert moved.data["updateLivestream"] == expected | {"startTime": iso_after_noon(hours=5), "endTime": None}
    assert closed.data["updateLivestream"] == expected | {
        "startTime": iso_after_noon(hours=5),
        "endTime": iso_after_noon(hours=6),
    }
    assert await livestream_of(served, id) == closed.data["updateLivestream"]
    latest = await served.ask("{ latestLivestream { ...All } }" + ALL)
    assert latest.data["latestLivestream"] == closed.data["updateLivestream"]


async def test_an_update_with_an_end_before_the_start_is_refused(served: Served) -> None:
    created = await announce(served)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"startTime": iso_after_noon(hours=2)}, "startTime"),
        ({"startTime": iso_after_noon(days=-30)}, "startTime"),
        ({"endTime": iso_after_noon(minutes=59)}, "endTime"),
        ({"endTime": iso_after_noon(days=31)}, "endTime"),
        ({"startTime": iso_after_noon(hours=4), "endTime": iso_after_noon(hours=3)}, "endTime"),
        ({"startTime": None}, "startTime"),
        ({"title": None}, "title"),
        ({"streamUrl": ""}, "streamUrl"),
        ({}, "input"),
    ]

    for changes, field in wrong:
        answer = await change_livestream(served, created["livestreamId"], **changes)
        assert (answer.codes, (answer.errors or [])[0]["extensions"]["field"]) == (["BAD_USER_INPUT"], field)
        assert "UpdateItem sparks" not in answer.made

    assert await livestream_of(served, created["livestreamId"]) == created


async def test_concurrent_changes_are_all_applied_or_refused_and_keep_the_end_after_the_start(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three changes read the livestream before any of them is written."""
    id = (await announce(served, endTime=iso_after_noon(hours=9)))["livestreamId"]
    write, all_have_read, tries = Livestreams._write, asyncio.Barrier(3), iter(range(100))

    async def write_after_all_reads(
        self: Livestreams, item: Item, changes: Mapping[str, Any], expected: int | None
    ) -> WriteResult:
        if next(tries) < 3:
            await all_have_read.wait()
        return await write(self, item, changes, expected)

    monkeypatch.setattr(Livestreams, "_write", write_after_all_reads)

    later, earlier, renamed = await asyncio.gather(
        change_livestream(served, id, startTime=iso_after_noon(hours=8)),
        change_livestream(served, id, endTime=iso_after_noon(hours=3)),
        change_livestream(served, id, title="Closing"),
    )

    kept = await livestream_of(served, id)
    assert sorted((later.codes, earlier.codes)) == [[], ["BAD_USER_INPUT"]]
    times = (
        (iso_after_noon(hours=8), iso_after_noon(hours=9))
        if not later.codes
        else (iso_after_noon(hours=1), iso_after_noon(hours=3))
    )
    assert (kept["startTime"], kept["endTime"], kept["title"]) == (*times, "Closing")
    assert renamed.codes == []


async def test_a_livestream_of_another_program_can_be_changed(served: Served) -> None:
    await put_library_items(
        served, livestream("theirs", startTime="2026-06-25T12:00:00Z"), livestream("closed", end=NOON)
    )

    first = await change_livestream(served, "theirs", endTime=iso_after_noon(hours=1))
    second = await change_livestream(served, "closed", title="Closed")

    assert first.data["updateLivestream"]["endTime"] == iso_after_noon(hours=1)
    assert (second.data["updateLivestream"]["title"], (await livestream_of(served, "closed"))["title"]) == (
        "Closed",
        "Closed",
    )


async def test_an_end_that_another_program_wrote_as_null_is_unknown(served: Served) -> None:
    await put_library_items(served, livestream("a", endTime=None), livestream("b", endTime=None))

    latest = await served.ask("{ latestLivestream { livestreamId endTime status } }")
    closed = await change_livestream(served, "a", endTime=iso_after_noon(hours=1))
    ended = await admin(served, END, id="b")

    assert (latest.errors, latest.data) == (
        None,
        {"latestLivestream": {"livestreamId": "b", "endTime": None, "status": "LIVE"}},
    )
    assert closed.data["updateLivestream"]["endTime"] == iso_after_noon(hours=1)
    assert (ended.data["endLivestream"]["endTime"], ended.data["endLivestream"]["status"]) == (
        iso_after_noon(),
        "ENDED",
    )


async def test_a_live_livestream_is_ended_now_and_stays_ended(served: Served) -> None:
    created = await announce(served, endTime=None)
    id = created["livestreamId"]
    too_soon = await admin(served, END, id=id)
    served.clock.forward(hours=1, minutes=30)

    ended = await admin(served, END, id=id)
    served.clock.forward(minutes=30)
    again = await admin(served, END, id=id)

    assert too_soon.codes == ["CONFLICT"]
    assert ended.data["endLivestream"] == created | {"endTime": iso_after_noon(hours=1, minutes=30), "status": "ENDED"}
    assert (again.data, again.made) == (ended.data, [TABLE])


async def test_a_missing_livestream_cannot_be_changed_or_ended(served: Served) -> None:
    answers = [await change_livestream(served, "gone", title="Mine"), await admin(served, END, id="gone")]

    assert [answer.codes for answer in answers] == [["NOT_FOUND"]] * 2
    assert (await served.ask("{ livestreams { nodes { title } } }")).data == {"livestreams": {"nodes": []}}


async def test_a_damaged_livestream_is_an_error_in_its_place(served: Served) -> None:
    created = await announce(served)
    await put_library_items(served, livestream("damaged", startTime="soon"))

    answer = await served.ask("{ livestreams { nodes { livestreamId } } }")

    assert answer.data == {"livestreams": {"nodes": [None, {"livestreamId": created["livestreamId"]}]}}
    assert answer.codes == ["INTERNAL"]


@pytest.mark.parametrize(
    "url", ["https://", "https:// <script>", "https://exa mple.com", "http://[x", "https://a\u200b.com"]
)
async def test_a_url_needs_a_host_and_may_not_contain_spaces(served: Served, url: str) -> None:
    answer = await served.ask(
        """mutation ($url: String!) { createLivestream(
          input: {title: "Live", streamUrl: $url, startTime: "2026-06-25T12:00:00Z"}
        ) { title } }""",
        {"url": url},
        user="root",
        role=Role.ADMIN,
    )

    assert [(error["extensions"]["code"], error["extensions"]["field"]) for error in answer.errors or ()] == [
        ("BAD_USER_INPUT", "streamUrl")
    ]


async def test_a_title_may_not_contain_control_characters(served: Served) -> None:
    answer = await served.ask(
        """mutation { createLivestream(
          input: {title: "Li\\u0000ve", streamUrl: "https://example.com", startTime: "2026-06-25T12:00:00Z"}
        ) { title } }""",
        user="root",
        role=Role.ADMIN,
    )

    assert answer.codes == ["BAD_USER_INPUT"]
