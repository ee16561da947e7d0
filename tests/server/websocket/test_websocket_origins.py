"""The origins of pages that may connect with WebSockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from server.security.origins import Origins, canonical_origin, canonical_origins
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import ServedSockets, serve_websockets, upgrade


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    allowed = [
        "https://Friend.example/",
        "https://bücher.example",
        "http://tools.example:443",
        "https://std.example:443",
    ]
    async with serve_websockets(allowed_origins=allowed) as served:
        yield served
    assert not unexpected_errors(caplog)


async def test_pages_of_other_origins_are_refused_before_the_handshake(server: ServedSockets) -> None:
    own = f"127.0.0.1:{server.port}"
    for origin in (
        "https://evil.example",
        "null",
        f"http://127.0.0.1:{server.port + 1}",
        f"http://{own}.evil.example",
        "http://friend.example",
        "https://friend.example.evil.example",
        "https://friend.example:8443",
    ):
        with pytest.raises(InvalidStatus, match="403"):
            await server.peer(origin=origin)
    for origin in (f"http://{own}", "https://friend.example"):
        async with server.ready(origin=origin):
            pass


async def test_programs_send_no_origin(server: ServedSockets) -> None:
    async with server.ready(origin=None):
        pass


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://a.example", "a.example", 101),
        ("https://a.example", "a.example:443", 101),
        ("https://A.example:443", "a.example", 101),
        ("http://a.example", "A.EXAMPLE:80", 101),
        ("http://[::1]:8000", "[::1]:8000", 101),
        ("https://user@friend.example", "10.0.0.7:8000", 403),
        ("https://friend.example/page", "10.0.0.7:8000", 403),
        ("https://friend.example?page", "10.0.0.7:8000", 403),
        ("https://a.example", "x@a.example", 400),
        ("https://a.example", "a.example/x", 400),
        ("https://a.example", "a.example:8443", 403),
        ("https://a.example:8443", "a.example", 403),
        ("http://a.example:99999", "a.example", 403),
        ("https://a.example", "b.example", 403),
        ("https://sub.a.example", "a.example", 403),
        ("file://", "", 400),
        ("null", "null", 403),
        ("chrome-extension://abcdef", "abcdef", 403),
        ("", "", 400),
        # Behind a proxy that does not pass on the Host, the pages have to be configured.
        ("https://friend.example", "10.0.0.7:8000", 101),
        ("https://xn--bcher-kva.example", "10.0.0.7:8000", 101),
        ("https://std.example", "10.0.0.7:8000", 101),
        ("http://tools.example:443", "10.0.0.7:8000", 101),
        ("https://tools.example", "10.0.0.7:8000", 403),
    ],
)
async def test_origins_and_hosts(server: ServedSockets, origin: str, host: str, status: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(upgrade(host, f"Origin: {origin}\r\n"))
    assert int((await reader.readline()).split()[1]) == status
    writer.close()


@given(st.text(max_size=80) | st.from_regex(r"https?://[^/]{0,40}(:\d{0,6})?", fullmatch=True), st.text(max_size=40))
def test_no_origin_or_host_is_too_strange(origin: str, host: str) -> None:
    page = canonical_origin(origin)
    assert page is None or canonical_origin(page) == page
    assert Origins([origin]).may_connect(origin, host) is (page is not None)
    for configured in canonical_origins([origin]):  # in Punycode, as a browser sends it
        assert Origins([origin]).may_connect(configured, host)
