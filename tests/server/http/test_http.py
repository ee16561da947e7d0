"""GraphQL over HTTP, asked over real connections."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from datastore.model.identity import Identity
from datastore.session.request_reads import ReadFreshness
from server.documents.document_cache import Documents
from server.http.endpoint import GraphQLHTTP
from server.http.protocol import UVICORN_OPTIONS
from server.http.responses import HttpProfile
from server.operations.runner import Runner
from tests.support.http_server import served
from tests.support.logs import unexpected_errors
from tests.support.toy_schema import SCHEMA, ToyContext, identify_toy_user, seen
from tests.support.until import until

GRAPHQL = "application/graphql-response+json"


class HTTPClient:
    """A client that requires GraphQL JSON whatever the status."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session
        self.response: aiohttp.ClientResponse

    async def send(self, method: str = "POST", query: str = "", **request: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.url + query, **request) as self.response:
            body = await self.response.json(content_type=None)
            assert self.response.headers["content-type"] in (
                "application/json; charset=utf-8",
                f"{GRAPHQL}; charset=utf-8",
            )
            if "errors" in body:
                assert all(error["message"] and error["extensions"]["code"] for error in body["errors"])
            return self.response.status, body

    async def ask(self, query: str, accept: str | None = None, **rest: Any) -> tuple[int, Any]:
        return await self.send(json={"query": query, **rest}, headers={"accept": accept} if accept else None)

    async def raw(self, body: bytes, content_type: str = "application/json", **headers: str) -> tuple[int, Any]:
        return await self.send(data=body, headers={"content-type": content_type, **headers})


@pytest.fixture
def deadline() -> float:
    """Parametrize a test with another one if its operations are to miss it."""
    return 50.0


@pytest.fixture
def body_seconds() -> float:
    """Parametrize a test with another value if its bodies are to come too late."""
    return 50.0


@pytest.fixture
async def client(caplog: pytest.LogCaptureFixture, deadline: float, body_seconds: float) -> AsyncIterator[HTTPClient]:
    """Yield a client of a server that must leave no task behind and log no unexpected error."""
    seen.clear()
    runner = Runner(Documents(SCHEMA), ToyContext, deadline=deadline)
    app = GraphQLHTTP(runner, identify_toy_user, max_body=10_000, body_seconds=body_seconds)
    async with served(app) as url, aiohttp.ClientSession() as session:
        yield HTTPClient(url, session)
    assert not unexpected_errors(caplog)


def code(body: Any) -> str:
    return str(body["errors"][0]["extensions"]["code"])


async def test_a_query(client: HTTPClient) -> None:
    assert await client.ask("query Q($n: String!) { hello(name: $n) }", variables={"n": "you"}, operationName="Q") == (
        200,
        {"data": {"hello": "hello you"}},
    )
    assert client.response.headers["cache-control"] == "no-store"


async def test_a_mutation_goes_by_post_only(client: HTTPClient) -> None:
    assert await client.ask("mutation { change }") == (200, {"data": {"change": "changed"}})
    status, body = await client.send("GET", "?query=mutation{change}")
    assert (status, code(body), client.response.headers["allow"]) == (405, "BAD_USER_INPUT", "POST")


async def test_a_query_by_get(client: HTTPClient) -> None:
    query = quote("query A($n: String!) { hello(name: $n) } query B { me }")
    variables = quote('{"n": "ü"}')
    assert await client.send("GET", f"?query={query}&variables={variables}&operationName=A&extensions=") == (
        200,
        {"data": {"hello": "hello ü"}},
    )


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?query=",
        "?query={me}&query={hello}",
        "?query={me}&variables={}&variables={}",
        "?query={me}&variables={",
        "?query={me}&variables=[1]",
        "?query={me}" + "&a=" * 100,
    ],
    ids=range(7),
)
async def test_a_malformed_get(client: HTTPClient, query: str) -> None:
    status, body = await client.send("GET", query, headers={"accept": GRAPHQL})
    assert (status, code(body)) == (400, "BAD_USER_INPUT")


async def test_a_get_that_is_not_utf8(client: HTTPClient) -> None:
    address = client.url.removeprefix("http://").removesuffix("/graphql")
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /graphql?query=%ff%fe HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"percent-encoded" in answer


@pytest.mark.parametrize("content_type", ["text/plain", "application/graphql", "", ";", "application/json;charset=x"])
async def test_a_get_of_an_odd_type(client: HTTPClient, content_type: str) -> None:
    status, body = await client.send("GET", "?query={me}", headers={"content-type": content_type})
    assert (status, code(body)) == (415, "BAD_USER_INPUT")


async def test_of_a_key_that_is_given_twice_the_last_counts(client: HTTPClient) -> None:
    assert await client.raw(b'{"query": "{", "query": "{ hello }"}') == (200, {"data": {"hello": "hello world"}})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods(client: HTTPClient, method: str) -> None:
    status, body = await client.send(method)
    assert (status, code(body), client.response.headers["allow"]) == (405, "BAD_USER_INPUT", "GET, POST")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json; charset=utf-8", "application/json"),
        (GRAPHQL, GRAPHQL),
        (f"{GRAPHQL}, application/json;q=0.9", GRAPHQL),
        (f"application/json, {GRAPHQL}", GRAPHQL),
        (f"{GRAPHQL};q=0.1, application/json", "application/json"),
        (f"text/html, {GRAPHQL};q=0.5, */*;q=0.1", GRAPHQL),
        (f"{GRAPHQL};q=zero, application/json", "application/json"),
        (f"{GRAPHQL};q=2, application/json", "application/json"),
        (f"{GRAPHQL};charset=latin1, application/json", "application/json"),
        ("application/json;q=0, */*", GRAPHQL),
        (f"{GRAPHQL}, application/json, text/event-stream, multipart/mixed", GRAPHQL),
    ],
)
async def test_the_content_type_is_negotiated(client: HTTPClient, accept: str | None, content_type: str) -> None:
    assert (await client.ask("{ me }", accept))[0] == 200
    assert client.response.headers["content-type"] == f"{content_type}; charset=utf-8"


@pytest.mark.parametrize(
    "accept", ["text/html", "application/xml;q=1", "application/json;q=0", "text/event-stream;q=0", "*/*;q=0", ";"]
)
async def test_unacceptable(client: HTTPClient, accept: str) -> None:
    assert (await client.ask("{ me }", accept))[0] == 406


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/graphql",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "application/json-patch+json",
        "",
        ";;=;",
    ],
)
async def test_other_content_types(client: HTTPClient, content_type: str) -> None:
    assert (await client.raw(b'{"query": "{ me }"}', content_type))[0] == 415


async def test_charset_utf8_and_its_spellings(client: HTTPClient) -> None:
    for spelling in (
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/json;charset=utf8",
    ):
        assert (await client.raw(b'{"query": "{ me }"}', spelling))[0] == 200


async def test_a_compressed_body_is_refused(client: HTTPClient) -> None:
    assert (await client.raw(b"x", **{"content-encoding": "gzip"}))[0] == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nothing",
        b"[]",
        b"null",
        b'"{ me }"',
        b'[{"query": "{ me }"}]',
        b"NaN",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"query": 1}',
        b'{"query": null}',
        b"{}",
        b'{"query": ["{ me }"]}',
        b'{"query": "{ me }", "variables": []}',
        b'{"query": "{ me }", "variables": "{}"}',
        b'{"query": "{ me }", "operationName": 1}',
        b"[" * 5000,
        b'{"query": "{ me }", "extensions": 1}',
        b'{"query": "{ me }", "variables": {"a": NaN}}',
        b'{"query":"\\ud800"}',
        b'{"query": "{ me }", "variables": {"n": ' + b"9" * 5000 + b"}}",
        b'{"query": "\xc3("}',
        b"\x00",
    ],
)
@pytest.mark.parametrize("accept", ["application/json", GRAPHQL])
async def test_malformed_bodies(client: HTTPClient, body: bytes, accept: str) -> None:
    status, answer = await client.raw(body, accept=accept)
    assert (status, code(answer)) == (400, "BAD_USER_INPUT")
    assert "data" not in answer


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("", None),
        ("{", None),
        ("{ nope }", None),
        ("{ me \0 }", None),
        ("query A { me } query B { me }", None),
        ("fragment F on Query { me }", None),
        ("{ number(n: " + "9" * 5000 + ") }", None),
        ("{ number(n: " + "[" * 900 + "]" * 900 + ") }", None),
        ("{" + "a{" * 4000, None),
        ('{ hello(name: "\\uD800") }', None),
        ("query ($n: Int!) { number(n: $n) }", {"n": "x"}),
        ("query ($n: Int!) { number(n: $n) }", {"n": 10**15}),
        ("query ($n: Int!) { number(n: $n) }", {"n": [[[[1]]]]}),
        ("query ($n: Int!) { number(n: $n) }", {}),
        ("query ($n: Nope!) { number(n: $n) }", {}),
    ],
)
async def test_requests_that_never_execute(client: HTTPClient, query: str, variables: Any) -> None:
    for accept, expected in ((GRAPHQL, 400), ("application/json", 200)):
        status, body = await client.ask(query, accept, variables=variables)
        assert (status, code(body)) == (expected, "BAD_USER_INPUT")
        assert "data" not in body
        assert all(len(error["message"]) < 1100 for error in body["errors"])


@pytest.mark.parametrize("accept", [GRAPHQL, "application/json"])
async def test_the_draft_of_2026_distinguishes_syntax_errors_from_invalid_documents(accept: str) -> None:
    app = GraphQLHTTP(
        Runner(Documents(SCHEMA), ToyContext, deadline=0.1), identify_toy_user, profile=HttpProfile.DRAFT_2026
    )
    async with served(app) as url, aiohttp.ClientSession() as session:
        client = HTTPClient(url, session)
        number = "query ($n: Int!) { number(n: $n) }"
        for query, rest, status in (
            ("{", {}, 400),
            ("{ nope }", {}, 422),
            (number, {"variables": {"n": "x"}}, 422),
            ("query A { me } query B { me }", {}, 422),
            ("query A { me }", {"operationName": "B"}, 422),
            ("{ slow }", {}, 504),
            ("{ me missing }", {}, 200),
            ("{ me }", {}, 200),
        ):
            assert ((await client.ask(query, accept, **rest))[0], query) == (status, query)
        assert (await client.raw(b"{", accept=accept))[0] == 400
        assert (await client.raw(b"{}", "text/plain", accept=accept))[0] == 415
        assert (await client.ask("{ me }", "text/html"))[0] == 406
        assert (await client.send("GET", "?query=mutation{change}", headers={"accept": accept}))[0] == 405
        assert client.response.headers["allow"] == "POST"
        assert (await client.raw(b" " * 300_000, accept=accept))[0] == 413
        unlucky = {"accept": accept, "authorization": "Bearer unlucky"}
        assert (await client.send(json={"query": "{ me }"}, headers=unlucky))[0] == 503


async def test_an_unknown_operation_name(client: HTTPClient) -> None:
    status, body = await client.ask("query A { me }", GRAPHQL, operationName="B")
    assert (status, code(body)) == (400, "BAD_USER_INPUT")


async def test_a_named_operation_among_several(client: HTTPClient) -> None:
    assert await client.ask("query A { me } query B { hello }", operationName="B") == (
        200,
        {"data": {"hello": "hello world"}},
    )


async def test_bodies_that_are_too_large(client: HTTPClient) -> None:
    assert (await client.ask("{ me }" + " " * 10_000))[0] == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    assert (await client.raw(chunks()))[0] == 413  # type: ignore[arg-type]
    assert (await client.send("GET", "?query={me}" + "%20" * 4000))[0] == 414
    assert await client.ask("{ me }") == (200, {"data": {"me": None}})


async def test_a_client_that_is_still_sending_gets_its_answer() -> None:
    app = GraphQLHTTP(Runner(Documents(SCHEMA), ToyContext), identify_toy_user)
    async with served(app, **UVICORN_OPTIONS) as url, aiohttp.ClientSession() as session:
        client = HTTPClient(url, session)
        for content_type, status in (("application/json", 413), ("text/plain", 415)):
            assert (await client.raw(b"x" * 10**6, content_type))[0] == status
            assert client.response.headers["connection"] == "close"
        assert (await client.raw(b'{"query": "{ me }"}'))[0] == 200
        assert "connection" not in client.response.headers


async def test_a_declared_length_is_believed_at_once(client: HTTPClient) -> None:
    host, port = client.url.removeprefix("http://").removesuffix("/graphql").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10001\r\n\r\n"
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()


@pytest.mark.parametrize("body_seconds", [0.3])
@pytest.mark.parametrize("begun", ["", "{"], ids=["no byte", "one byte"])
async def test_a_body_that_never_arrives(client: HTTPClient, begun: str) -> None:
    host, port = client.url.removeprefix("http://").removesuffix("/graphql").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    writer.write((head + begun).encode())
    async with asyncio.timeout(50):
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_callers(client: HTTPClient) -> None:
    for authorization, status, error in (
        ("Bearer ann", 200, None),
        ("Bearer wrong", 401, "UNAUTHENTICATED"),
        ("Basic YTpi", 401, "UNAUTHENTICATED"),
        ("Bearer unlucky", 503, "UNAVAILABLE"),
    ):
        got, body = await client.send(json={"query": "{ me }"}, headers={"authorization": authorization})
        assert got == status
        assert body == {"data": {"me": "ann"}} if error is None else code(body) == error
        assert ("www-authenticate" in client.response.headers) is (status == 401)


async def test_domain_errors_are_reported(client: HTTPClient) -> None:
    status, body = await client.ask("{ missing grouped deliberate }", GRAPHQL)
    assert status == 200
    assert body["data"] == {"missing": None, "grouped": None, "deliberate": None}
    received = {error["path"][0]: (error["message"], error["extensions"]) for error in body["errors"]}
    assert received["missing"] == ("No such thing.", {"code": "NOT_FOUND", "id": "x"})
    assert received["grouped"] == ("Taken.", {"code": "CONFLICT"})
    assert received["deliberate"] == ("Said on purpose.", {"code": "MINE"})
    assert all(error["locations"] for error in body["errors"])


async def test_a_fault_of_ours_is_masked_and_logged(client: HTTPClient, caplog: pytest.LogCaptureFixture) -> None:
    status, body = await client.ask("{ broken tooBig }")
    assert status == 200
    for error in body["errors"]:
        assert error["message"] == "Something went wrong on our side."
        assert error["extensions"]["code"] == "INTERNAL"
        assert error["extensions"]["errorId"] in caplog.text
    assert "swordfish" not in json.dumps(body)
    assert "RuntimeError: the password is swordfish" in caplog.text


async def test_a_value_that_json_cannot_represent_is_an_internal_error(client: HTTPClient) -> None:
    status, body = await client.ask("{ unspeakable }", GRAPHQL)
    assert (status, body["data"], code(body)) == (200, None, "INTERNAL")


async def test_an_argument_that_is_wrong_only_at_run_time(client: HTTPClient) -> None:
    status, body = await client.ask("query ($n: String) { hello(name: $n) }", GRAPHQL, variables={"n": None})
    assert (status, code(body)) == (200, "BAD_USER_INPUT")


async def test_at_most_twenty_errors_are_reported(client: HTTPClient) -> None:
    _, body = await client.ask("{ " + " ".join(f"nope{n}" for n in range(50)) + " }")
    assert len(body["errors"]) == 20
    _, body = await client.ask("{ " + " ".join(f"a{n}: missing" for n in range(50)) + " }")
    assert len(body["errors"]) == 20
    assert body["extensions"] == {"omittedErrors": 30}


async def test_subscriptions_are_pointed_to_both_streams(client: HTTPClient) -> None:
    status, body = await client.ask("subscription { ticks }")
    assert (status, code(body)) == (406, "BAD_USER_INPUT")
    assert "text/event-stream" in body["errors"][0]["message"]
    assert "graphql-transport-ws" in body["errors"][0]["message"]
    assert (await client.send("GET", "?query=subscription{ticks}"))[0] == 406


@pytest.mark.parametrize("deadline", [0.3])
async def test_an_operation_has_a_deadline(client: HTTPClient) -> None:
    for accept, expected in ((GRAPHQL, 504), ("application/json", 200)):
        status, body = await client.ask("{ slow }", accept)
        assert (status, code(body)) == (expected, "TIMEOUT")
    assert seen["slow cancelled"] == 2


async def test_the_work_of_a_client_that_leaves_is_cancelled() -> None:
    seen.clear()
    async with (
        served(GraphQLHTTP(Runner(Documents(SCHEMA), ToyContext), identify_toy_user)) as url,
        aiohttp.ClientSession() as session,
    ):
        leaving = asyncio.create_task(session.post(url, json={"query": '{ slow(name: "left") }'}))
        await until(lambda: "left" in seen)
        leaving.cancel()
        await until(lambda: "left cancelled" in seen)


async def test_a_client_that_leaves_within_its_body(client: HTTPClient) -> None:
    host, port = client.url.removeprefix("http://").removesuffix("/graphql").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    assert (await client.ask("{ me }"))[0] == 200


@pytest.mark.parametrize("deadline", [0.3])
async def test_pipelined_requests_are_answered_in_order(client: HTTPClient) -> None:
    host, port = client.url.removeprefix("http://").removesuffix("/graphql").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for name, last in (("a", ""), ("b", "connection: close\r\n")):
        body = json.dumps({"query": f'{{ slow(name: "{name}") }}'})
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{last}\r\n"
        writer.write(f"POST /graphql HTTP/1.1\r\nhost: x\r\n{head}{body}".encode())
    async with asyncio.timeout(50):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert seen == {"a": 1, "a cancelled": 1, "b": 1, "b cancelled": 1}


async def test_a_context_that_cannot_be_opened_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Identity | None, _freshness: ReadFreshness, _compiled: bool) -> ToyContext:
        raise RuntimeError("no context")

    async with (
        served(GraphQLHTTP(Runner(Documents(SCHEMA), fail), identify_toy_user)) as url,
        aiohttp.ClientSession() as session,
    ):
        status, body = await HTTPClient(url, session).ask("{ me }")
    assert (status, code(body)) == (500, "INTERNAL")
    assert "no context" in caplog.text
