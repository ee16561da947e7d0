"""Hostile bodies, variables and documents: each is refused with a message, at little cost."""

import gc
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from graphql import GraphQLField, GraphQLList, GraphQLObjectType, GraphQLSchema, GraphQLString, graphql_sync

import schema as api
from server.operations.outcome import outcome_of
from tests.support.served import Served

GRAPHQL = "application/graphql-response+json"
DEEP = 10_000


def asking(**rest: Any) -> bytes:
    return json.dumps({"query": "{ __typename }", **rest}).encode()


def with_variable(text: str) -> bytes:
    """Return a request whose only variable is this JSON text."""
    return b'{"query": "query Q($n: Float) { __typename }", "variables": {"n": ' + text.encode() + b"}}"


BODIES = {
    "nothing": b"",
    "null": b"null",
    "a number": b"17",
    "a string": b'"{ __typename }"',
    "a list": b"[" + asking() + b"]",
    "true": b"true",
    "no JSON": b"{ __typename }",
    "two objects": asking() + asking(),
    "cut short": asking()[:-3],
    "invalid UTF-8": b'{"query": "{ __typename } #\xff\xfe"}',
    "overlong UTF-8": b'{"query": "{ __typename } #\xc0\xaf"}',
    "UTF-16": asking().decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + asking(),
    "gzip": gzip.compress(asking()),
    "NUL": b'{"query": "{ __typename }\x00"}',
    "only NULs": b"\x00" * 1000,
    "NaN": with_variable("NaN"),
    "Infinity": with_variable("-Infinity"),
    "1e400": with_variable("1e400"),
    "5000 digits": with_variable("9" * 5000),
    "a lone surrogate": b'{"query": "{ __typename }", "operationName": "\\ud800"}',
    "a lone surrogate in the query": b'{"query": "{ __typename \\udfff }"}',
    "deep lists": with_variable("[" * DEEP + "]" * DEEP),
    "deep lists without an end": with_variable("[" * DEEP),
    "deep objects": with_variable('{"a":' * DEEP + "1" + "}" * DEEP),
    "a query that is a list": b'{"query": ["{ __typename }"]}',
    "no query": b"{}",
    "an empty id": b'{"documentId": ""}',
    "300 KB": asking(extensions={"x": "x" * 300_000}),
    "a query that is an object": b'{"query": {"kind": "Document"}}',
    "variables that are a list": asking(variables=[1]),
    "variables that are a string": asking(variables="{}"),
    "extensions that are a number": asking(extensions=1),
    "a name that is a number": asking(operationName=7),
    "a name that there is not": asking(operationName="Nope"),
    "a deep query": asking(query="{a" * DEEP + "}" * DEEP),
    "a deep list in a query": json.dumps({"query": "{ nodes(ids: " + "[" * DEEP + "]" * DEEP + ") { id } }"}).encode(),
    "a deep type in a query": json.dumps(
        {"query": "query Q($a: " + "[" * DEEP + "ID" + "]" * DEEP + ") { areas }"}
    ).encode(),
    "an integer of 5000 digits in a query": json.dumps({"query": "{ areas a: posts(n: " + "9" * 5000 + ") }"}).encode(),
    "a NUL in a query": asking(query="{ __type\x00name }"),
    "a query of a bad escape": asking(query='{ node(id: "\\uD800") { id } }'),
    "a long list": asking(query="query Q($n: [ID!]!) { nodes(ids: $n) { id } }", variables={"n": ["x"] * 5000}),
    "many values": asking(variables={f"v{n}": n for n in range(6000)}),
    "17 levels": asking(variables={"n": json.loads("[" * 17 + "1" + "]" * 17)}),
}


@pytest.fixture
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> Any:
    yield
    received = [
        record.getMessage() for record in caplog.get_records("call") if record.exc_info or "Error " in record.msg
    ]
    assert not received


WORDS = {
    "nothing": "The body is empty.",
    "invalid UTF-8": "The body is not UTF-8.",
    "cut short": "The body is not valid JSON: unexpected end of data (line 1, column 25).",
    "5000 digits": "The body is not valid JSON: a number is too large (line 1, column 67).",
    "a query that is a list": "`query` must be a string.",
    "no query": "Send `query`, or `documentId`.",
    "an empty id": "`documentId` is empty.",
    "300 KB": "A request may hold at most 262,144 bytes.",
}


async def post_body(served: Served, body: bytes, **headers: str) -> tuple[int, Any]:
    headers = {"content-type": "application/json", "accept": GRAPHQL, **headers}
    async with served.http.post(f"{served.url}/graphql", data=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)


@pytest.mark.usefixtures("no_tracebacks")
async def test_each_is_refused_in_words(served: Served) -> None:
    refused: dict[str, Any] = {}
    for name, body in BODIES.items():
        status, answer = await post_body(served, body)
        codes = [error["extensions"]["code"] for error in answer["errors"]]
        refused[name] = (400 <= status < 500, set(codes), "data" in answer, len(answer["errors"]) <= 20)
        assert all(0 < len(error["message"]) <= 1001 for error in answer["errors"]), name
        assert answer["errors"][0]["message"] == WORDS.get(name, answer["errors"][0]["message"])
        assert not any(inside in json.dumps(answer) for inside in ("Traceback", "orjson", "site-packages", ".py")), name
    assert refused == dict.fromkeys(BODIES, (True, {"BAD_USER_INPUT"}, False, True))
    # The gateway works as before.
    assert (await served.ask("{ __typename }")).data == {"__typename": "Query"}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.usefixtures("no_tracebacks")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells its memory in /proc only")
async def test_they_leave_nothing_in_memory(served: Served) -> None:
    large = [body + b" " * (200_000 - len(body)) for body in BODIES.values()]
    for body in large:
        await post_body(served, body)
    before = resident_bytes()
    for number in range(4):
        for body in large:
            # Texts that differ, so that the cache of one does not serve the next.
            await post_body(served, body.replace(b"__typename", b"__typename #%d" % number))
    assert resident_bytes() - before < 24 * 2**20


@pytest.mark.parametrize(
    ("variables", "message", "limits"),
    [
        (
            {"n": ["x"] * 1001},
            "The variable $n may have lists of at most 1,000 entries, not 1,001.",
            {"measure": "entries", "limit": 1000, "found": 1001},
        ),
        (
            {"n": {str(n): list(range(1000)) for n in range(6)}},
            "The variables may have at most 5,000 values, not 6,007.",
            {"measure": "values", "limit": 5000, "found": 6007},
        ),
        (
            {"n": json.loads("[" * 16 + "1" + "]" * 16)},
            "The variable $n may have at most 16 levels of lists and objects, not 17.",
            {"measure": "depth", "limit": 16, "found": 17},
        ),
    ],
)
async def test_the_exceeded_limit_of_variables_is_reported(
    served: Served, variables: Any, message: str, limits: dict[str, Any]
) -> None:
    answer = await served.ask("{ __typename }", variables)
    (error,) = answer.errors or []
    assert error["message"] == message
    assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": "variables"} | limits


async def test_variables_at_the_limit_pass(served: Served) -> None:
    variables = {"n": ["x"] * 1000, "deep": json.loads("[" * 14 + "1" + "]" * 14)}
    assert (await served.ask("{ __typename }", variables)).errors is None


async def test_a_bomb_of_variables_in_a_get(served: Served) -> None:
    text = "[" * 5000 + "]" * 5000
    parameters = {"query": "{ __typename }", "variables": text}
    async with served.http.get(f"{served.url}/graphql", params=parameters, headers={"accept": GRAPHQL}) as response:
        assert 400 <= response.status < 500
        assert (await response.json(content_type=None))["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


def test_errors_by_the_thousand_leave_nothing_to_be_collected() -> None:
    """Errors and their tracebacks must not form cycles, which would keep them until a collection."""

    def fails(*_: Any) -> str:
        try:
            raise KeyError("no such thing")
        except KeyError as problem:
            raise ValueError("cannot be answered") from problem

    item = GraphQLObjectType("Item", {"bad": GraphQLField(GraphQLString, resolve=fails)})
    items = GraphQLField(GraphQLList(item), resolve=lambda *_: [{}] * 2_000)
    schema = GraphQLSchema(GraphQLObjectType("Query", {"items": items}))
    gc.collect()
    gc.disable()
    try:
        outcome = outcome_of(graphql_sync(schema, "{items {bad}}"))
        assert b'"omittedErrors":1980' in outcome.body
        del outcome
        assert [one for one in gc.get_objects() if isinstance(one, ValueError | KeyError)] == []
    finally:
        gc.enable()


async def test_whether_a_type_is_one_of_its_fields_can_be_asked_of_all(served: Served) -> None:
    # The types of introspection are global: schemas of other tests undo the patch.
    api._fix_is_one_of(api.build()._schema)
    answer = await served.ask('{__type(name: "Earthquake") {fields {type {isOneOf ofType {isOneOf}}}}}')

    assert answer.errors is None
    assert {field["type"]["isOneOf"] for field in answer.data["__type"]["fields"]} == {None}
    assert (await served.ask('{__type(name: "CreateCommentInput") {isOneOf}}')).data == {"__type": {"isOneOf": False}}


async def test_a_repeated_refusal_has_the_same_words(served: Served) -> None:
    first, again = [await served.ask("{" + "areas " * 51 + "}") for _ in range(2)]

    assert first.errors == again.errors
    assert (first.errors or [])[0]["extensions"]["measure"] == "rootFields"


@pytest.mark.parametrize(
    "given",
    [
        *("yesterday", "2026-06-25T14:30:00+1", "2026-13-01T00:00:00Z", "", "9" * 5000, "2026-06-25T14:30:00é"),
        *("2026", "2026-06", "2026-02-30", "14:30", "2026-06-25T", "2026-06-25 25:00"),
    ],
)
async def test_a_bad_time_is_refused_with_the_right_format(served: Served, given: str) -> None:
    query = "query Q($start: DateTime) { earthquakes(from: $start) { nodes { id } } }"
    answer = await served.ask(query, {"start": given})
    assert answer.codes == ["BAD_USER_INPUT"]
    message = (answer.errors or [])[0]["message"]
    assert f'A DateTime is written as in "2026-06-25T14:30:00Z", not as "{given[:100]}".' in message
