"""Requests that are rejected before any application runs: the errors, and their responses."""

import logging

import httptools
from starlette.types import Receive, Scope, Send

from datastore.errors import BadUserInput, DomainError
from server.admission.connection_limits import Connections
from server.http.cycle import CYCLE, RequestCycle
from server.http.headers import SECURITY_HEADERS, lines_of
from server.operations.outcome import encode, format_error

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
ALLOW = ", ".join(sorted(METHODS))

_log = logging.getLogger(__name__)


class RequestRejected(Exception):
    """A request that is answered with `status` and `error`, and ends its connection.

    In a callback of the parser it also ends the parsing.
    """

    def __init__(self, status: int, error: DomainError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


def method_not_allowed() -> RequestRejected:
    return RequestRejected(405, BadUserInput(f"The method of a request must be one of {ALLOW}."))


async def refuse_method(limits: Connections, scope: Scope, receive: Receive, _: Send) -> None:
    """Answer other methods than `METHODS`, as an ASGI application. Read some content, so that a request can follow."""
    rejected, left = method_not_allowed(), limits.http_limits.discard_bytes
    cycle: RequestCycle = scope[CYCLE]
    while (message := await receive()).get("more_body") and left > 0:
        left -= len(message["body"])
    limits.on_refusal(rejected.status, rejected.error.code)
    await cycle.respond(rejected.status, *error_response(rejected.status, rejected.error))


def rejection_of(problem: httptools.HttpParserError, data: bytes, *, begins_here: bool) -> RequestRejected:
    """Return the rejection for a parser error in `data`. With `begins_here` the request begins in `data`."""
    cause = problem.__context__
    if isinstance(cause, RequestRejected):
        return cause
    if isinstance(problem, httptools.HttpParserCallbackError):
        _log.error("A request could not be read", exc_info=problem)
    # A request that began in earlier data, or begins with a capital letter, has an unknown method.
    if isinstance(problem, httptools.HttpParserInvalidMethodError) and (
        not begins_here or data.lstrip(b"\r\n")[:1].isupper()
    ):
        return method_not_allowed()
    return RequestRejected(400, BadUserInput("This is not a well-formed HTTP/1.1 request."))


def check_size(fields: str, size: int, limit: int, url: bytes = b"") -> None:
    """Raise `RequestRejected` for a section of headers or trailers (`fields`) of more than `limit` bytes."""
    if size > limit and fields == "headers" and len(url) * 2 > limit:
        raise RequestRejected(414, BadUserInput(f"A URL and its headers may have at most {limit:,} bytes: use POST."))
    if size > limit:
        raise RequestRejected(431, BadUserInput(f"The {fields} of a request may have at most {limit:,} bytes."))


def error_response(status: int, error: DomainError, own_lines: bytes = b"") -> tuple[bytes, bytes]:
    """Return the header lines, which begin with `own_lines`, and the body of a response with an error."""
    body = encode({"errors": [format_error(error)]})
    lines = own_lines + b"content-type: application/json; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
    lines += lines_of(SECURITY_HEADERS)
    if status == 405:
        lines += b"allow: %b\r\n" % ALLOW.encode()
    if "retryAfter" in error.extensions:
        lines += b"retry-after: %d\r\n" % error.extensions["retryAfter"]
    return lines, body
