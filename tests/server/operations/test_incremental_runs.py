"""Runs of incremental operations: errors, limits, the deadline, disconnects, slow clients and shutdowns."""

import asyncio
import json
from typing import Any

import pytest

from server.documents.limits import DocumentLimits
from server.operations.outcome import Outcome
from server.operations.report import Report
from server.operations.request import IncrementalFormat, Request
from tests.support.incremental import DELIMITER, IDS, PART, merged
from tests.support.toy_deferral import outcomes_of, prepared_by, serve_studio, studio, studio_runner
from tests.support.until import until

BY_IDS, BY_PATHS = IncrementalFormat.IDS, IncrementalFormat.PATHS


async def payloads_of_run(query: str, format: IncrementalFormat = BY_IDS, **how: Any) -> tuple[list[Any], Report]:
    """Return the payloads of an operation, and its report."""
    reports: list[Report] = []
    payloads = [json.loads(outcome.body) async for outcome in outcomes_of(studio_runner(reports, **how), query, format)]
    [report] = reports
    assert studio.counts["closed"] == 1
    return payloads, report


def codes_in(part: Any) -> list[str]:
    return [error["extensions"]["code"] for error in part["errors"]]


async def test_a_field_error_is_in_its_part() -> None:
    query = '{ film { title ... @defer(label: "a") { maybe } } }'
    [_, last], report = await payloads_of_run(query)
    [part] = last["incremental"]
    assert part["data"] == {"maybe": None}
    assert (codes_in(part), part["errors"][0]["path"]) == (["UNAVAILABLE"], ["film", "maybe"])
    assert report.codes == ["UNAVAILABLE"]

    [_, last], _ = await payloads_of_run(query, BY_PATHS)
    [part] = last["incremental"]
    assert (part["data"], codes_in(part), part["label"]) == ({"maybe": None}, ["UNAVAILABLE"], "a")


@pytest.mark.parametrize(("field", "code"), [("missing", "NOT_FOUND"), ("cancelled", "INTERNAL")])
async def test_an_error_that_makes_a_fragment_null(field: str, code: str) -> None:
    query = f"{{ film {{ title ... @defer {{ {field} }} }} }}"
    [_, last], report = await payloads_of_run(query)
    assert last.keys() == {"completed", "hasNext"}
    assert codes_in(last["completed"][0]) == [code]
    assert report.codes == [code]

    [_, last], _ = await payloads_of_run(query, BY_PATHS)
    [part] = last["incremental"]
    assert (part["data"], part["path"], codes_in(part)) == (None, ["film"], [code])


async def test_a_fragment_has_all_of_its_fields_in_the_format_of_2022() -> None:
    query = """{ film {
      title star { __typename name }
      ... @defer(label: "outer") { star { __typename name ... on Player { age } }
        ... @defer(label: "inner") { title star { name } actors @stream(initialCount: 2) { age } } }
    } }"""
    payloads, _ = await payloads_of_run(query, BY_PATHS)
    fragments = {part["label"]: part["data"] for load in payloads[1:] for part in load["incremental"] if "data" in part}
    assert fragments["outer"] == {"star": {"__typename": "Player", "name": "Ada", "age": 3}}
    assert fragments["inner"] == {"title": "Metropolis", "star": {"name": "Ada"}, "actors": [{"age": 0}, {"age": 1}]}
    ages = [actor["age"] for actor in merged(payloads)["film"]["actors"]]
    assert ages == [*range(250)]


async def test_a_list_ends_with_an_item_that_fails() -> None:
    query = "{ film { nobody @stream(initialCount: 1) { name } missing: title } films { title } }"
    payloads, _ = await payloads_of_run(query, BY_PATHS)
    assert [item for load in payloads[1:] for part in load["incremental"] for item in part["items"]] == [
        None,
        {"name": "Ben"},
    ]


async def test_the_items_of_a_list_begin_together() -> None:
    payloads, report = await payloads_of_run("{ film { actors @stream(initialCount: 0) { age } } }")
    assert len(merged(payloads)["film"]["actors"]) == 250
    assert studio.counts["ages"] == 250
    assert len(payloads) < 50
    assert report.sent_bytes == report.response_bytes


@pytest.mark.parametrize(
    ("field", "code", "message"),
    [
        ("surrogate", "INTERNAL", "Something went wrong on our side."),
        ("expensive", "BAD_USER_INPUT", "The operation was stopped"),
    ],
)
@pytest.mark.parametrize("format", [BY_IDS, BY_PATHS])
async def test_an_end_within_the_operation(field: str, code: str, message: str, format: IncrementalFormat) -> None:
    query = f"{{ films {{ title ... @defer {{ {field} }} ... @defer {{ title slow }} }} }}"
    payloads, report = await payloads_of_run(query, format)
    last = payloads[-1]
    ended = last["completed" if format is BY_IDS else "incremental"]
    assert [codes_in(part) for part in ended] == [[code]] * 4
    assert ended[0]["errors"][0]["message"].startswith(message)
    assert (report.codes, studio.counts["begun"]) == ([code], 2)
    await until(lambda: studio.counts["ended"] == 2)


async def test_the_parts_of_a_response_have_a_limit_together() -> None:
    aliases = " ".join(f"... @defer {{ a{number}: long }}" for number in range(5))
    payloads, report = await payloads_of_run(f"{{ film {{ title {aliases} }} }}")
    assert codes_in(payloads[-1]["completed"][0]) == ["BAD_USER_INPUT"]
    assert report.codes == ["BAD_USER_INPUT"]


async def test_the_deadline_ends_the_remaining_parts() -> None:
    query = "{ film { title ... @defer { slow } } films { title actors @stream { age } } }"
    payloads, report = await payloads_of_run(query, deadline=0.3)
    assert len(payloads[0]["pending"]) == 3
    [ended] = [part for part in payloads[-1]["completed"] if "errors" in part]
    assert codes_in(ended) == ["TIMEOUT"]
    assert ended["errors"][0]["message"] == "The operation did not finish within 0.3 seconds and was stopped."
    assert report.codes == ["TIMEOUT"]
    await until(lambda: studio.counts["ended"] == 1)


async def test_a_deadline_before_the_first_part_is_an_ordinary_failure() -> None:
    reports: list[Report] = []
    [outcome] = [each async for each in outcomes_of(studio_runner(reports, 0.1), "{film {slow ... @defer {title}}}")]
    assert (outcome.code, outcome.is_failure) == ("TIMEOUT", True)
    assert [report.codes for report in reports] == [["TIMEOUT"]]


REFUSED = [
    ("{ film { actors @stream(initialCount: -1) { age } } }", "`initialCount` of @stream must be 0 or more, not -1"),
    ("query ($n: Int) { film { actors @stream(initialCount: $n) { age } } }", "must be 0 or more, not None"),
    ('{ film { ... @defer(label: "%s") { title } } }' % ("x" * 257), "at most 256 characters; it has 257."),
    (
        "subscription ($x: Boolean! = true) { released { ...F @defer(if: $x) } } fragment F on Film { title }",
        "cannot be",
    ),
    ("subscription { released { ... @defer { title } } }", "not supported on subscription operations"),
    ('{ film { ... @defer(label: "a") { title } ... @defer(label: "a") { slow } } }', "must be unique"),
    ("{ film @stream { title } }", "Stream directive cannot be used on non-list field 'film'"),
    ("mutation { ... @defer { cut { title } } }", "Defer directive cannot be used on root mutation type"),
    ("{ films @stream { title } films { title } }", "they have differing stream directives"),
    ("{ film { a0: actors { ... @defer { age } ... @defer { name } } } }", "may have 10 deferred fragments"),
    ("{ films { actors @stream { age } } films { star { ... @defer { name } } } }", "may have 10 deferred fragments"),
]


@pytest.mark.parametrize(("query", "message"), REFUSED)
async def test_a_document_is_refused_before_it_is_executed(query: str, message: str) -> None:
    runner = studio_runner([], limits=DocumentLimits(parts=9))
    outcome = await prepared_by(runner, query, {"n": None} if "$n" in query else None)
    assert isinstance(outcome, Outcome)
    assert message in outcome.formatted_errors[0]["message"]
    assert outcome.code == "BAD_USER_INPUT"


async def test_conditions_decide_whether_an_operation_is_incremental() -> None:
    runner = studio_runner([])
    query = "query ($x: Boolean = false) { film { ...F @defer(if: $x) } } fragment F on Film { title }"
    for variables, expected in (({}, False), ({"x": True}, True), ({"x": False}, False)):
        request = await prepared_by(runner, query, variables)
        assert isinstance(request, Request)
        assert request.is_incremental is expected
    subscription = await prepared_by(
        runner, "subscription ($x: Boolean = false) { released { ... @defer(if: $x) { title } } }"
    )
    assert isinstance(subscription, Request)


# Clients

SLOW = {"query": "{ film { title ... @defer { slow } } }"}


async def test_a_client_that_leaves_ends_the_operation() -> None:
    reports: list[Report] = []
    async with serve_studio(reports) as (url, http, _):
        async with http.post(url, json=SLOW, headers={"accept": IDS}) as response:
            await response.content.readuntil(DELIMITER + PART)
            await until(lambda: studio.counts["begun"] == 1)
            response.close()
        await until(lambda: bool(reports))
    assert (studio.counts["ended"], studio.counts["closed"]) == (1, 1)
    assert [report.codes for report in reports] == [["CANCELLED"]]


async def test_a_client_that_leaves_before_the_first_part_ends_the_operation() -> None:
    reports: list[Report] = []
    async with serve_studio(reports) as (url, http, _):
        query = {"query": "{ film { slow ... @defer { title } } }"}
        asking = asyncio.create_task(http.post(url, json=query, headers={"accept": IDS}).__aenter__())
        await until(lambda: studio.counts["begun"] == 1)
        asking.cancel()
        await until(lambda: bool(reports))
    assert (studio.counts["ended"], studio.counts["closed"]) == (1, 1)
    assert [report.codes for report in reports] == [["CANCELLED"]]


async def test_the_execution_waits_for_a_client_that_does_not_read() -> None:
    reports: list[Report] = []
    runner = studio_runner(reports)
    outcomes = outcomes_of(runner, "{ film { title ... @defer { actors @stream { age } } ... @defer { slow } } }")
    await anext(outcomes)
    for _ in range(10):
        await asyncio.sleep(0)
    assert studio.counts["begun"] == 0  # nothing begins before the client has the first part
    await anext(outcomes)
    for _ in range(50):
        await asyncio.sleep(0)
    assert 0 < studio.counts["ages"] <= 202  # the items of the queue, and of one batch
    studio.go.set()
    assert json.loads([each.body async for each in outcomes][-1])["hasNext"] is False
    assert studio.counts["ages"] == 250


async def test_a_client_that_never_reads_is_cut_off() -> None:
    reports: list[Report] = []
    inner = "c: long star { ... on Player { age } }"
    text = f"{{ film {{ ... @defer {{ a: long b: long ... @defer {{ {inner} }} }} ... @defer {{ slow }} }} }}"
    async with serve_studio(reports, send_timeout=0.2) as (url, _, _):
        host, port = url.removeprefix("http://").partition("/")[0].split(":")
        body = json.dumps({"query": text}).encode()
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        head = f"POST /graphql HTTP/1.1\r\nhost: x\r\naccept: {IDS}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await until(lambda: bool(reports))
        writer.close()
    assert [report.codes for report in reports] == [["CANCELLED"]]
    assert studio.counts["ended"] == studio.counts["begun"] == 1


async def test_a_shutdown_cuts_the_response_without_its_end() -> None:
    reports: list[Report] = []
    async with (
        serve_studio(reports) as (url, http, streams),
        http.post(url, json=SLOW, headers={"accept": IDS}) as response,
    ):
        await response.content.readuntil(DELIMITER + PART)
        await until(lambda: studio.counts["begun"] == 1)
        await streams.close()
        assert not (await response.read()).endswith(b"--\r\n")
    assert [report.codes for report in reports] == [["CANCELLED"]]
