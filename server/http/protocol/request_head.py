"""Validation of request heads: the checks that the parser does not make."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import httptools
from msgspec import Struct

from datastore.errors import BadUserInput
from server.http.headers import Header, RequestHeaders
from server.http.protocol.rejections import RequestRejected, method_not_allowed
from server.request_identity import REQUEST_ID, TRACEPARENT, valid_request_id, valid_traceparent

# A name or an address, with an optional port: RFC 9110, 7.2.
_HOST = re.compile(rb"(?:[\w.~-]+|\[[\dA-Fa-f:.]+\])(?::\d{1,5})?")

END_OF_HEAD = b"\r\n\r\n"
# A connection keeps the head of its latest request up to this size.
MAX_KNOWN_HEAD_BYTES = 4_096


class RequestTarget(NamedTuple):
    """A request target: its path without and with percent-encoding, its query, and its authority if it has one."""

    path: str
    raw_path: bytes
    query: bytes
    authority: bytes


class RequestHead(Struct, eq=False):
    """The head of a valid request. Requests with equal heads may share it."""

    method: str
    version: str
    target: RequestTarget
    headers: list[Header]
    #: The valid values of X-Request-Id and traceparent.
    request_id: bytes | None
    traceparent: bytes | None
    #: Whether the client waits for `100 Continue` before it sends the content.
    expects_100: bool
    #: The headers by name, once the application has needed them.
    fields: RequestHeaders | None = None


class WholeRequest(NamedTuple):
    """The head of a request that arrived together with its content."""

    #: The bytes before the empty line.
    text: bytes
    head: RequestHead
    content_length: int


def whole_request(head: RequestHead, text: bytes, content: bytes) -> WholeRequest | None:
    """Return the request if the parser would read the same request from any data with this `text`; otherwise None.

    `text` and `content` are the data that the parser has read as complete requests, the last of which has this `head`.
    """
    declared = [value for name, value in head.headers if name == b"content-length"]
    # Otherwise the data end in another request than they begin with, or the content is framed by chunks.
    is_whole = declared == [b"%d" % len(content)] or not (declared or content)
    is_known = is_whole and len(text) <= MAX_KNOWN_HEAD_BYTES and not head.expects_100
    return WholeRequest(text, head, len(content)) if is_known else None


def check_head(method: str, version: str, url: bytes, headers: list[Header]) -> RequestHead:
    """Return the head of a request.

    Raises:
        RequestRejected: The method is CONNECT, or the version, the framing, the host or the target is invalid.
    """
    if method == "CONNECT":  # the following data would belong to the tunnel
        raise method_not_allowed()
    if version not in ("1.1", "1.0"):  # others are framed differently: RFC 9110, 15.6.6
        raise RequestRejected(505, BadUserInput("The server supports HTTP/1.1 and HTTP/1.0."))
    target = parse_target(url)
    by_name = dict(headers)
    if len(by_name) < len(headers) or b"host" not in by_name or b"transfer-encoding" in by_name:
        _check_framing(headers, version)
    if not _HOST.fullmatch(by_name.get(b"host", b"-")):
        raise RequestRejected(400, BadUserInput("The header Host must be a host with an optional port."))
    if target.authority and by_name.get(b"host", target.authority).lower() != target.authority.lower():
        raise RequestRejected(400, BadUserInput("The header Host must be the authority of the request's target."))
    expects_100 = version == "1.1" and b"expect" in by_name and by_name[b"expect"].lower() == b"100-continue"
    request_id, traceparent = valid_request_id(by_name.get(REQUEST_ID)), valid_traceparent(by_name.get(TRACEPARENT))
    return RequestHead(method, version, target, headers, request_id, traceparent, expects_100)


def _check_framing(headers: Sequence[Header], version: str) -> None:
    """Check that the end and the host of a request are unambiguous: RFC 9112, 3.2 and 6.1. Raise `RequestRejected`."""
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and version != "1.1":
        raise RequestRejected(400, BadUserInput("HTTP/1.0 has no Transfer-Encoding: send Content-Length."))
    if codings not in ([], [b"chunked"]):
        raise RequestRejected(501, BadUserInput("The only Transfer-Encoding that the server reads is chunked."))
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version == "1.1"):
        raise RequestRejected(400, BadUserInput("An HTTP/1.1 request must have exactly one header Host."))


@lru_cache(maxsize=64)
def parse_target(url: bytes) -> RequestTarget:
    """Parse a path, or an absolute URL. Raises `RequestRejected` for anything else."""
    try:
        parsed = httptools.parse_url(url)
        is_http = parsed.schema in (None, b"http", b"https") and not parsed.userinfo
        raw: bytes | None = parsed.path if is_http else None
    except httptools.HttpParserInvalidURLError:
        raw = None
    if raw is None or raw[:1] != b"/" or b"#" in url or not url.isascii():
        raise RequestRejected(
            400, BadUserInput("The target of a request must be a path or a URL in ASCII, with no fragment.")
        )
    path = raw.decode("ascii")
    authority = b""
    if parsed.host is not None:
        authority = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
    return RequestTarget(unquote(path) if "%" in path else path, raw, parsed.query or b"", authority)


def is_websocket_handshake(version: str, headers: Sequence[Header]) -> bool:
    """Return whether a head with `Upgrade` requests a WebSocket.

    In HTTP/1.0 that header is ignored: RFC 9110, 7.8.
    """
    protocols = [value.strip().lower() for name, value in headers if name == b"upgrade"]
    return version == "1.1" and protocols == [b"websocket"]


def has_content(headers: Sequence[Header]) -> bool:
    """Return whether content follows the head."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0") for name, value in headers
    )


def size_of(headers: Sequence[Header]) -> int:
    """Return the number of bytes of header lines."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def encode_head(method: str, url: bytes, version: str, headers: Sequence[Header], *, upgrade: bool) -> bytes:
    """Encode a head, with or without its `Upgrade` header."""
    lines = [b"%b %b HTTP/%b\r\n" % (method.encode(), url, version.encode())]
    lines += [b"%b: %b\r\n" % (name, value) for name, value in headers if upgrade or name != b"upgrade"]
    return b"".join([*lines, b"\r\n"])
