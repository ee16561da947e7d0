"""A strict parser of responses: any deviation from RFC 9112 is a failure."""

import re
from collections.abc import Callable
from dataclasses import dataclass

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [\x20-\x7e]*")
_FIELD = re.compile(rb"([-!#$%&'*+.^_`|~0-9a-zA-Z]+): ?([\x21-\xff](?:[\x20-\xff\t]*[\x21-\xff])?|)")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY = (204, 304)


class Malformed(Exception):
    """The server's output is not a valid response."""


@dataclass(frozen=True)
class Response:
    """A final response and how its end was determined. `whole` is False if the connection ended within it."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    whole: bool = True
    interim: tuple[int, ...] = ()

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a header, `name` in lower case."""
        return [value for found, value in self.headers if found.lower() == name]

    @property
    def closes(self) -> bool:
        """Return whether the response closes the connection."""
        tokens = b",".join(self.values(b"connection")).lower().split(b",")
        return b"close" in [token.strip() for token in tokens]


def read_responses(
    said: bytes, is_to_head: Callable[[Response], bool], after_switch: Callable[[bytes], None]
) -> list[Response]:
    """Parse the output of a server. `is_to_head` decides by a response's headers whether it answers a HEAD.

    The bytes after a 101 go to `after_switch`. Only the last response may be cut short. Raises `Malformed`.
    """
    responses: list[Response] = []
    at = 0
    while at < len(said):
        if said[at:] == _CONTINUE:  # the connection ended before its body came
            break
        response, at = _read(said, at, is_to_head)
        responses.append(response)
        if response.status == 101:
            after_switch(said[at:])
            break
        if response.closes and at < len(said):
            raise Malformed(f"There is more after a response that closes the connection: {said[at : at + 200]!r}")
    return responses


def _read(said: bytes, at: int, is_to_head: Callable[[Response], bool]) -> tuple[Response, int]:
    interim: list[int] = []
    while True:
        head_end = said.find(b"\r\n\r\n", at)
        if head_end < 0:
            raise Malformed(f"A head has no end: {said[at : at + 200]!r}")
        status, headers = _head(said[at:head_end])
        at = head_end + 4
        if status >= 200 or status == 101:
            break
        interim.append(status)
        if len(interim) > 1:
            raise Malformed("There are two interim responses to one request.")
    response = Response(status, headers, b"", True, tuple(interim))
    if status == 101 or status in _NO_BODY or is_to_head(response):
        if status in _NO_BODY and (response.values(b"transfer-encoding") or response.values(b"content-length")):
            raise Malformed(f"A {status} tells of a body.")
        return response, at
    body, at, whole = _body(said, at, response)
    return Response(status, headers, body, whole, tuple(interim)), at


def _head(text: bytes) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    first, *lines = text.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise Malformed(f"This is no status line: {first[:200]!r}")
    headers = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Malformed(f"This is no header: {line[:200]!r}")
        headers.append((field[1], field[2]))
    return int(found[1]), tuple(headers)


def _body(said: bytes, at: int, response: Response) -> tuple[bytes, int, bool]:
    lengths, codings = response.values(b"content-length"), response.values(b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise Malformed(f"The body's end is stated twice: {lengths} {codings}")
    if codings:
        if codings != [b"chunked"]:
            raise Malformed(f"This is no Transfer-Encoding that a client takes: {codings}")
        return _chunked(said, at)
    if lengths:
        if not lengths[0].isdigit():
            raise Malformed(f"This is no Content-Length: {lengths[0]!r}")
        end = at + int(lengths[0])
        return said[at:end], min(end, len(said)), end <= len(said)
    if not response.closes:
        raise Malformed("Nothing tells where the body ends.")
    return said[at:], len(said), True


def _chunked(said: bytes, at: int) -> tuple[bytes, int, bool]:
    body = bytearray()
    while True:
        line_end = said.find(b"\r\n", at)
        if line_end < 0:
            return bytes(body), len(said), False
        line = said[at:line_end]
        if not re.fullmatch(rb"[0-9a-f]{1,8}", line):
            raise Malformed(f"This is no size of a chunk: {line[:200]!r}")
        size, start = int(line, 16), line_end + 2
        chunk, rest = said[start : start + size], said[start + size : start + size + 2]
        if len(rest) < 2:
            return bytes(body + chunk), len(said), False
        if rest != b"\r\n":
            raise Malformed(f"A chunk does not end where it is to end: {rest!r}")
        at = start + size + 2
        if not size:
            return bytes(body), at, True
        body += chunk
