"""The request log: its attributes, its readers, and that it never delays or fails a request."""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.dynamodb.codec import encode_item
from datastore.earthquakes.earthquakes import LOG_WRITE_UNITS
from datastore.model.identity import Role
from server.settings import Settings
from tests.support.earthquake_samples import put_item, quake, store
from tests.support.served import NOON, UNBOUGHT, Answer, Served
from tests.support.usgs_samples import answering, feature, feed_bytes, feed_server

LOGS = """
query ($day: Date, $type: LogType, $first: Int, $after: String, $last: Int, $before: String) {
  requestLogs(day: $day, type: $type, first: $first, after: $after, last: $last, before: $before) {
    nodes {
      logType startedAt route status fetched upserted skipped retries upstreamSize from to minMagnitude
      pageSize resultCount hasNextToken bucketsScanned error
    }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  }
}
"""
FIGURES = [
    "fetched",
    "upserted",
    "skipped",
    "retries",
    "upstreamSize",
    "from",
    "to",
    "minMagnitude",
    "pageSize",
    "resultCount",
    "hasNextToken",
    "bucketsScanned",
    "error",
]
BLANK: dict[str, Any] = dict.fromkeys(FIGURES)
QUERY = BLANK | {"logType": "QUERY", "route": "graphql/earthquakes", "startedAt": "2026-06-25T12:00:00.000Z"}
INGEST = BLANK | {"logType": "INGEST", "route": "ingest/earthquakes", "startedAt": "2026-06-25T12:00:00.000Z"}


async def logs_written(served: Served) -> None:
    assert served.gateway.services is not None
    await served.gateway.services.request_logs.drained()


async def logs(served: Served, **variables: Any) -> Answer:
    await logs_written(served)
    answer = await served.ask(LOGS, variables, user="root", role=Role.ADMIN)
    assert answer.errors is None, answer.errors
    return answer


async def log_nodes(served: Served, **variables: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await logs(served, **variables)).data["requestLogs"]["nodes"]
    return found


# The attributes of a log


async def test_a_query_is_logged_with_its_figures(served: Served) -> None:
    await store(served, quake("us1"), quake("us2"), quake("us3", timedelta(days=1)), quake("weak", magnitude=1))

    await served.ask('{ earthquakes(from: "2026-06-20T00:00:00Z", minMagnitude: 4, first: 2) { nodes { id } } }')

    assert await log_nodes(served) == [
        QUERY
        | {
            "status": 200,
            "from": "2026-06-20T00:00:00.000Z",
            "to": "2026-06-25T12:00:00.000Z",
            "minMagnitude": 4.0,
            "pageSize": 2,
            "resultCount": 2,
            "hasNextToken": True,
            "bucketsScanned": 2,
        }
    ]


async def test_every_list_of_a_request_is_logged_with_its_own_page_size(served: Served) -> None:
    await served.ask("{ a: earthquakes { nodes { id } } b: earthquakes(last: 7) { nodes { id } } }")

    found = await log_nodes(served)

    assert sorted(log["pageSize"] for log in found) == [7, 25]
    assert [log["resultCount"] for log in found] == [0, 0]
    assert [log["hasNextToken"] for log in found] == [False, False]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('after: "x"', {"error": "BAD_CURSOR", "from": "2026-05-26T12:00:00.000Z"}),
        ("first: 101", {"error": "BAD_USER_INPUT", "pageSize": 101, "from": "2026-05-26T12:00:00.000Z"}),
        ("minMagnitude: 1e400", {"error": "BAD_USER_INPUT", "from": "2026-05-26T12:00:00.000Z"}),
        ('from: "2027-01-01T00:00:00Z"', {"error": "BAD_USER_INPUT", "to": None}),
    ],
)
async def test_a_query_that_fails_is_logged_with_its_code(
    served: Served, arguments: str, expected: dict[str, Any]
) -> None:
    await served.ask(f"{{ earthquakes({arguments}) {{ nodes {{ id }} }} }}")

    assert await log_nodes(served) == [
        QUERY | {"status": 400, "pageSize": 25, "to": "2026-06-25T12:00:00.000Z"} | expected
    ]


async def test_a_query_that_fails_in_the_store_is_logged_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("not for clients")

    with monkeypatch.context() as patch:
        patch.setattr("datastore.earthquakes.earthquakes.read_page", broken)
        answer = await served.ask("{ earthquakes { nodes { id } } }")

    assert answer.codes == ["INTERNAL"]
    assert [(log["status"], log["error"]) for log in await log_nodes(served)] == [(500, "INTERNAL")]


async def test_a_query_of_a_disconnected_client_is_logged_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(*_: Any, **__: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr("datastore.earthquakes.earthquakes.read_page", endless)
        request = asyncio.create_task(served.ask("{ earthquakes { nodes { id } } }"))
        await begun.wait()
        request.cancel()
        await ended.wait()

    assert [(log["status"], log["error"]) for log in await log_nodes(served)] == [(499, "CANCELLED")]


# The cost of logs


class TestBudgets:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = replace(UNBOUGHT, anonymous_budget_units=2_500, anonymous_budget_units_per_second=1e-6)
        return replace(settings, capacity=capacity)

    async def test_the_caller_pays_for_the_log(self, served: Served) -> None:
        answer = await served.ask("{ a: earthquakes(first: 1) { nodes { id } } b: earthquakes { nodes { id } } }")

        (report,) = served.reports
        read = sum(call.cost for call in answer.calls)
        logged = (
            sum(log["resultCount"] is not None for log in await log_nodes(served)) * LOG_WRITE_UNITS * WRITE_UNIT_COST
        )
        assert logged == 10
        assert report.cost == read + logged <= report.estimate
        assert await remaining_anonymous_budget(served) == pytest.approx(2_500 - read - logged, abs=2)

    async def test_refused_fields_of_a_request_write_one_log(self, served: Served) -> None:
        fields = " ".join(f"a{place}: earthquakes(first: {101 + place}) {{ nodes {{ id }} }}" for place in range(10))

        for _ in range(2):
            assert (await served.ask(f"{{ {fields} }}")).codes[0] == "BAD_USER_INPUT"

        assert [log["status"] for log in await log_nodes(served)] == [400, 400]
        assert await remaining_anonymous_budget(served) == pytest.approx(2_500 - 2 * WRITE_UNIT_COST, abs=2)


async def remaining_anonymous_budget(served: Served) -> float:
    return float((await served.ask("{ areas }")).headers["ratelimit-remaining"])


async def test_an_ingest_is_logged_with_its_figures(served: Served) -> None:
    body = feed_bytes(feature(id="us1"), feature(id="us2"), feature(id="us3", mag=None))
    assert served.gateway.ingest is not None
    await store(served, quake("us1"))

    async with feed_server(answering(503), answering(body=body)) as url:
        await served.gateway.ingest.run(url)

    assert await log_nodes(served, type="INGEST") == [
        INGEST | {"status": 200, "fetched": 3, "upserted": 1, "skipped": 1, "retries": 1, "upstreamSize": len(body)}
    ]


async def test_an_unknown_source_is_an_error_of_the_caller(served: Served) -> None:
    assert served.gateway.ingest is not None

    await served.gateway.ingest.run("all_year")

    assert [(log["status"], log["error"]) for log in await log_nodes(served)] == [(400, "BAD_SOURCE")]


async def test_an_ingest_that_fails_is_logged_with_its_code(served: Served) -> None:
    assert served.gateway.ingest is not None

    async with feed_server(answering(body=b"We have moved")) as url:
        await served.gateway.ingest.run(url)

    assert await log_nodes(served) == [
        INGEST
        | {
            "status": 502,
            "fetched": 0,
            "upserted": 0,
            "skipped": 0,
            "retries": 0,
            "upstreamSize": 13,
            "error": "NOT_GEOJSON",
        }
    ]


async def test_request_ids_are_uuids_and_logs_expire_after_seven_days(served: Served) -> None:
    await served.ask("{ earthquakes { nodes { id } } }")
    await logs_written(served)
    query = '{ requestLogs(day: "2026-06-25") { nodes { requestId latencyMs } } }'

    shown = await served.ask(query, user="root", role=Role.ADMIN)
    served.clock.forward(days=7, seconds=-1)
    in_time = await served.ask(query, user="root", role=Role.ADMIN)
    served.clock.forward(seconds=1)
    late = await served.ask(query, user="root", role=Role.ADMIN)

    (log,) = shown.data["requestLogs"]["nodes"]
    assert uuid.UUID(log["requestId"]).version == 4
    assert 0 <= log["latencyMs"] < 10_000
    assert in_time.data == shown.data
    assert late.data == {"requestLogs": {"nodes": []}}


# Readers


async def test_only_admins_read_the_log(served: Served) -> None:
    query = "{ requestLogs { nodes { route } } }"
    callers: list[dict[str, Any]] = [
        {},
        {"user": "ada"},
        {"user": "poller", "role": Role.SYSTEM},
        {"user": "root", "role": Role.ADMIN},
    ]

    answers = [await served.ask(query, **caller) for caller in callers]

    assert [answer.codes for answer in answers] == [["UNAUTHENTICATED"], ["FORBIDDEN"], ["FORBIDDEN"], []]
    assert [len(answer.calls) for answer in answers] == [0, 0, 0, 1]


async def test_logs_are_listed_by_day_and_type_newest_first_in_pages(served: Served) -> None:
    assert served.gateway.ingest is not None
    for size in range(1, 6):
        await served.ask(f"{{ earthquakes(first: {size}) {{ nodes {{ id }} }} }}")
        await served.gateway.ingest.run("no feed")
        served.clock.forward(seconds=1)

    first = (await logs(served, type="QUERY", first=2)).data["requestLogs"]
    second = (await logs(served, type="QUERY", first=2, after=first["pageInfo"]["endCursor"])).data["requestLogs"]
    oldest = (await logs(served, type="QUERY", last=2)).data["requestLogs"]
    other_type = await served.ask(
        LOGS, {"type": "INGEST", "after": first["pageInfo"]["endCursor"]}, user="root", role=Role.ADMIN
    )

    assert [[log["pageSize"] for log in page["nodes"]] for page in (first, second, oldest)] == [[5, 4], [3, 2], [2, 1]]
    assert {log["error"] for log in await log_nodes(served, type="INGEST")} == {"BAD_SOURCE"}
    assert len(await log_nodes(served)) == 10
    assert await log_nodes(served, day="2026-06-24") == []
    assert other_type.codes == ["BAD_CURSOR"]


async def test_paging_through_the_log_of_today_stays_on_that_day_after_midnight(served: Served) -> None:
    for size in (1, 2, 3):
        await served.ask(f"{{ earthquakes(first: {size}) {{ nodes {{ id }} }} }}")
        served.clock.forward(seconds=1)
    first = (await logs(served, first=1)).data["requestLogs"]
    served.clock.forward(hours=12)
    await served.ask("{ earthquakes(first: 9) { nodes { id } } }")

    rest = await log_nodes(served, after=first["pageInfo"]["endCursor"])
    today = await log_nodes(served)

    assert [log["pageSize"] for log in (*first["nodes"], *rest)] == [3, 2, 1]
    assert [log["pageSize"] for log in today] == [9]


async def test_a_damaged_log_is_null_in_its_place(served: Served) -> None:
    await served.ask("{ earthquakes { nodes { id } } }")
    await logs_written(served)
    await put_item(served, {"pk": "LOG#20260625", "sk": "1#x", "ttl": int(NOON.timestamp()) + 9, "logType": "OTHER"})

    answer = await served.ask(LOGS, user="root", role=Role.ADMIN)

    assert [log and log["status"] for log in answer.data["requestLogs"]["nodes"]] == [200, None]
    assert [error["path"] for error in answer.errors or ()] == [["requestLogs", "nodes", 1]]


# No delay and no failure of requests


class StuckStore:
    """A store whose calls wait until it is released, and then fail."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def call(self, *_: Any, **__: Any) -> None:
        await self.released.wait()
        raise RuntimeError("The store of the logs fails.")


async def test_a_store_that_stores_no_logs_neither_delays_nor_fails_a_query(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await store(served, quake("us1"))
    assert served.gateway.services is not None
    request_logs, stuck = served.gateway.services.request_logs, StuckStore()
    monkeypatch.setattr(request_logs, "_client", stuck)

    while_stuck = [await served.ask("{ earthquakes { nodes { eventId } } }") for _ in range(8)]
    stuck.released.set()
    await logs_written(served)
    after_failures = await served.ask("{ earthquakes { nodes { eventId } } }")

    assert {answer.data["earthquakes"]["nodes"][0]["eventId"] for answer in (*while_stuck, after_failures)} == {"us1"}
    assert caplog.text.count("A request log could not be written") >= 8


@pytest.mark.proof
async def test_logs_beyond_the_limit_of_the_queue_are_dropped_and_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.gateway.services is not None
    request_logs, stuck = served.gateway.services.request_logs, StuckStore()
    monkeypatch.setattr(request_logs, "_client", stuck)
    lists = " ".join(f"a{number}: earthquakes(first: 0) {{ nodes {{ id }} }}" for number in range(10))

    while not request_logs.dropped:
        assert (await served.ask(f"{{ {lists} }}")).codes == ["BAD_USER_INPUT"]
    stuck.released.set()
    await logs_written(served)

    assert "The store is too slow for request logs: 1 dropped so far" in caplog.text


async def test_the_log_is_stored_as_documented(served: Served) -> None:
    await served.ask("{ earthquakes(minMagnitude: 2.5) { nodes { id } } }")
    await logs_written(served)
    assert served.gateway.database is not None

    answer = await served.gateway.database.client.call(
        "Query",
        {
            "TableName": f"{served.gateway.database.prefix}earthquake-events",
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": "LOG#20260625"}},
        },
    )

    (item,) = answer["Items"]
    request_id, latency = item["requestId"]["S"], item["latencyMs"]
    moment = int(NOON.timestamp() * 1000)
    assert item == {
        **encode_item(
            {
                "pk": "LOG#20260625",
                "sk": f"{moment}#{request_id}",
                "entity": "LOG",
                "logType": "QUERY",
                "requestId": request_id,
                "timestamp": moment,
                "route": "graphql/earthquakes",
                "status": 200,
                "starttime": moment - 30 * 86_400_000,
                "endtime": moment,
                "minmagnitude": 2.5,
                "pageSize": 25,
                "resultCount": 0,
                "hasNextToken": False,
                "bucketsScanned": 31,
                "ttl": moment // 1000 + 7 * 86_400,
            }
        ),
        "latencyMs": latency,
    }
