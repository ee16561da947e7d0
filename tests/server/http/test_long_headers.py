"""Headers and URLs of 30 KB: the gateway's work for them is bounded, measured in function calls."""

import asyncio
import random
import sys
from dataclasses import replace
from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request as Handshake

from datastore.objects.local import LocalObjects
from server.app import application
from server.http.headers import MAX_ACCEPT_BYTES, MAX_ACCEPT_TYPES, AcceptedTypes, parse_accept
from server.settings import Settings
from server.websocket.protocol import LIST_HEADERS, MAX_LIST_BYTES, Handshakes
from tests.support.served import NOON, Served
from tests.support.toy_sockets import serve_websockets, upgrade

LENGTH = 30_000
# More than a plain request needs: a request within the limits may take as many.
MOST_CALLS = 1_500
JSON = ("content-type", "application/json")


def long(unit: str) -> str:
    return unit * (LENGTH // len(unit))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    capacity = replace(settings.capacity, trusted_proxies=("127.0.0.1",))
    return replace(settings, capacity=capacity, allowed_origins=("https://app.example.com",))


class CountingCalls:
    """Counts the calls of functions in this thread, including those written in C."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> "CountingCalls":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, _: Any, event: str, __: Any) -> None:
        self.calls += event in ("call", "c_call")


async def calls_per_request(served: Served, method: str, path: str, *headers: tuple[str, str]) -> int:
    """Return the number of calls for a request, after one that filled all caches."""
    app = application(served.gateway)
    url, _, query = path.partition("?")
    counts = []
    for _ in range(2):
        scope = {
            "type": "http",
            "method": method,
            "path": url,
            "raw_path": url.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "scheme": "http",
            "http_version": "1.1",
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", random.randrange(50_000)),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in (("host", "127.0.0.1"), *headers)],
        }
        body = [{"type": "http.request", "body": b'{"query": "{ areas }"}', "more_body": False}]
        sent: list[Any] = []

        async def receive(body: list[Any] = body) -> Any:
            if not body:
                await asyncio.Event().wait()
            return body.pop()

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        with CountingCalls() as counting:
            await app(scope, receive, send)
        assert sent[0]["type"] == "http.response.start"
        counts.append(counting.calls)
        headers = tuple((name, value[:-1]) for name, value in headers[:1]) + headers[1:]  # in no cache
    return counts[1]


PLAIN: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "post": ("POST", "/graphql", (JSON,)),
    "get": ("GET", "/graphql?query={areas}", ()),
    "visit": ("GET", "/graphql", (("accept", "text/html"),)),
    "upload": ("POST", "/media", (("content-type", "multipart/form-data; boundary=x"), ("content-length", "22"))),
    "file": ("GET", "/media/none", ()),
    "asset": ("GET", "/graphiql/assets/none.js", ()),
}
FORM, SITE = "multipart/form-data", "https://"
CASES = [
    *(("post", "accept", "", unit) for unit in (",", "a,", ";", "a;q=0.1,", ", ", "text/html,")),
    *(("post", "content-type", "application/json", unit) for unit in (";", ";a=b", " ")),
    ("get", "content-type", "application/json", ";"),
    ("get", "accept", "", "a,"),
    *(("get", "origin", SITE, unit) for unit in ("a.", "\u00e4.", "\u00e4", "%41", "1.", "xn--a.")),
    *(("post", "origin", SITE, unit) for unit in ("a.", "\u00e4.")),
    ("file", "origin", SITE, "\u00e4."),
    *(("post", "x-forwarded-for", "", unit) for unit in (",", "1.1.1.1,", "127.0.0.1,", "127.0.0.1:1,", "::1,")),
    *(("get", name, "", "a=b,") for name in ("cookie", "referer", "if-none-match", "cache-control", "authorization")),
    *(("post", name, "", "a,") for name in ("traceparent", "tracestate", "last-event-id", "idempotency-key")),
    ("post", "x-explain", "", " 1"),
    *(("upload", "content-type", FORM, unit) for unit in ("; a=b", ';"', ';\\"', "; a*0=b")),
    *(("file", "range", "bytes=", unit) for unit in ("0-1,", "-,")),
    ("file", "if-none-match", "", '"a",'),
]


@pytest.mark.parametrize(("kind", "name", "start", "unit"), CASES)
async def test_a_long_header_takes_little_work(served: Served, kind: str, name: str, start: str, unit: str) -> None:
    method, path, headers = PLAIN[kind]
    rest = tuple(header for header in headers if header[0] != name)
    plain = await calls_per_request(served, method, path, *headers)
    assert await calls_per_request(served, method, path, (name, start + long(unit)), *rest) < plain + MOST_CALLS


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("visit", "/graphql?" + long("a=b&")),
        ("visit", "/graphql?" + long("%41=&")),
        ("get", "/graphql?" + long("a=b&")),
        ("asset", "/graphiql/assets/" + long("a/")),
        ("asset", "/graphiql/assets/" + long("../")),
    ],
)
async def test_a_long_url_takes_little_work(served: Served, kind: str, path: str) -> None:
    method, usual, headers = PLAIN[kind]
    plain = await calls_per_request(served, method, usual, *headers)
    assert await calls_per_request(served, method, path, *headers) < plain + MOST_CALLS


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("application/json" + " " * (MAX_ACCEPT_BYTES - 16), AcceptedTypes("application/json")),
        ("application/json" + " " * (MAX_ACCEPT_BYTES - 15), AcceptedTypes(None)),
        (",".join(["a/b"] * (MAX_ACCEPT_TYPES - 1) + ["application/json"]), AcceptedTypes("application/json")),
        (",".join(["a/b"] * MAX_ACCEPT_TYPES + ["application/json"]), AcceptedTypes(None)),
        ("," * 900 + "application/json" + "," * 100, AcceptedTypes("application/json")),  # RFC 9110, 5.6.1.2
        (", ,", AcceptedTypes(None)),
    ],
)
def test_an_accept_is_read_up_to_its_limits(accept: str, found: AcceptedTypes) -> None:
    assert parse_accept(accept) == found


async def test_an_accept_beyond_its_limits_is_refused_with_the_limits(served: Served) -> None:
    async with served.http.post(
        f"{served.url}/graphql", json={"query": "{ areas }"}, headers={"Accept": "application/json," * 100}
    ) as response:
        payload = (await response.json())["errors"][0]
        assert (response.status, payload["extensions"]) == (406, {"code": "BAD_USER_INPUT"})
        assert "at most 1,024 bytes and 32 media types" in payload["message"]


@pytest.mark.parametrize("name", LIST_HEADERS)
def test_long_lists_of_a_handshake_are_not_read(name: str) -> None:
    refused: list[tuple[int, str]] = []
    handshakes = Handshakes(lambda status, code: refused.append((status, code)))
    fields = {"Host": "here", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = Headers(fields | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    for _ in range(4):
        headers[name] = "a, " * (MAX_LIST_BYTES // 9)
    with CountingCalls() as counting:
        response = handshakes.accept(Handshake("/graphql", headers))
    assert response.status_code == 431
    assert b"Sec-WebSocket-Protocol" in response.body
    assert counting.calls < MOST_CALLS
    assert refused == [(431, "BAD_USER_INPUT")]


async def test_a_handshake_with_a_long_list_is_refused() -> None:
    async with serve_websockets() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(upgrade("here", f"Sec-WebSocket-Extensions: {'a, ' * 2000}\r\n"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert int(head.split()[1]) == 431
        writer.close()


async def test_a_client_of_another_websocket_version_learns_the_right_one() -> None:
    async with serve_websockets() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(upgrade("here").replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert int(head.split()[1]) == 400
        assert b"\r\nSec-WebSocket-Version: 13\r\n" in head
        writer.close()


async def test_a_long_range_or_condition_of_a_picture_takes_little_work(served: Served) -> None:
    objects = served.gateway.objects
    assert isinstance(objects, LocalObjects)
    await objects.write("originals/1.png", b"0123456789", content_type="image/png")
    address = await objects.url("originals/1.png", now=NOON)
    assert address is not None
    path = address.removeprefix(served.url)
    plain = await calls_per_request(served, "GET", path)
    for name, value in (("range", "bytes=" + long("0-1,") + "0-1x"), ("if-none-match", long('"a",') + "x")):
        assert await calls_per_request(served, "GET", path, (name, value)) < plain + MOST_CALLS
