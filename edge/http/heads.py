"""The head of a request: what of it is not taken, though the parser reads it."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import httptools

from datastore.errors import BadUserInput, DomainError


class Unacceptable(Exception):
    """Raised inside the parser's callbacks, which end the parsing thereby."""

    def __init__(self, status: int, error: DomainError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class Target(NamedTuple):
    """What a request is about: its path without and with percent-encoding, and its query."""

    path: str
    raw_path: bytes
    query: bytes


# Most requests go to a few addresses.
LONGEST_KEPT = 64


def target_of(url: bytes) -> Target:
    """A path, or a URL that has one. Raises `Unacceptable` for anything else."""
    return _kept(url) if len(url) <= LONGEST_KEPT else _target_of(url)


def _target_of(url: bytes) -> Target:
    try:
        found = httptools.parse_url(url)
        raw: bytes | None = found.path
    except httptools.HttpParserInvalidURLError:
        raw = None
    if raw is None or not raw.isascii():
        raise Unacceptable(400, BadUserInput("A request's target must be a path in ASCII."))
    path = raw.decode("ascii")
    return Target(unquote(path) if "%" in path else path, raw, found.query or b"")


_kept = lru_cache(maxsize=64)(_target_of)


def check_version(version: str) -> None:
    """Other versions are framed otherwise, or not at all: RFC 9110, 15.6.6."""
    if version not in ("1.1", "1.0"):
        raise Unacceptable(505, BadUserInput("HTTP/1.1 is spoken here, and HTTP/1.0."))


def check_framing(headers: Iterable[tuple[bytes, bytes]], version: str) -> None:
    """Where a request ends must be beyond doubt, and for which host it is: RFC 9112, 3.2 and 6.1."""
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and version != "1.1":
        raise Unacceptable(400, BadUserInput("Transfer-Encoding is HTTP/1.1's: send Content-Length."))
    if codings not in ([], [b"chunked"]):
        raise Unacceptable(501, BadUserInput("The only Transfer-Encoding that is read is chunked."))
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version == "1.1"):
        raise Unacceptable(400, BadUserInput("A request of HTTP/1.1 must have one header Host."))


def tells_of_a_body(name: bytes, value: bytes) -> bool:
    """Whether such a header says that a body follows."""
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")


def name_host(url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """A URL as the target names the host: a Host header beside it counts for nothing.

    https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2
    """
    named = None if url.startswith(b"/") else httptools.parse_url(url)
    if named is None or named.host is None:
        return
    host = b"[%b]" % named.host if b":" in named.host else named.host
    host += b":%d" % named.port if named.port else b""
    headers[:] = [header for header in headers if header[0] != b"host"] + [(b"host", host)]


def without_upgrade(method: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head as it would be without the wish for another protocol."""
    lines = [method.encode(), b" ", url, b" HTTP/1.1\r\n"]
    for name, value in headers:
        if name not in (b"upgrade", b"connection"):
            lines += [name, b": ", value, b"\r\n"]
    return b"".join([*lines, b"\r\n"])
