"""JSON responses over HTTP: their headers, and their status by two editions of GraphQL over HTTP.

https://graphql.github.io/graphql-over-http/draft/
"""

import math
from enum import StrEnum

from msgspec import Struct

from datastore.errors import (
    DomainError,
    Forbidden,
    IdempotencyMismatch,
    Internal,
    Throttled,
    Timeout,
    Unauthenticated,
    Unavailable,
)
from server.admission.budgets import Allowance
from server.documents.request import Stage
from server.http.headers import GRAPHQL, JSON, lines_of
from server.operations.outcome import Outcome, encode, format_error, mask_error

_STATUS_OF_CODE: dict[str, int] = {
    Unauthenticated.code: 401,
    Forbidden.code: 403,
    # https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2.7
    IdempotencyMismatch.code: 422,
    Throttled.code: 429,
    Internal.code: 500,
    Unavailable.code: 503,
    Timeout.code: 504,
}
# These set the status for every media type: proxies and older clients, too, must slow down or retry later.
_ALWAYS_IN_STATUS = (Throttled.code, Unavailable.code)


class Refused(Exception):
    """A refused request. The response has this status and error, and additionally `headers`."""

    def __init__(self, status: int, error: DomainError, **headers: str) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = tuple((name.encode(), value.encode()) for name, value in headers.items())


class HttpProfile(StrEnum):
    """The edition of GraphQL over HTTP that statuses follow: that of the public audit, or the draft of 2026.

    The draft distinguishes an invalid document (422) from one that cannot be parsed (400), also for plain JSON. Its
    status 294 for partial results is not sent: it is a SHOULD that the draft's own examples contradict.
    """

    EDITION_2025 = "2025"
    DRAFT_2026 = "draft2026"


class Reply(Struct, frozen=True):
    """A status and a JSON body. The remaining budget is sent in headers; `headers` replace the default ones."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    allowance: Allowance | None = None


def reply(outcome: Outcome, content_type: str, profile: HttpProfile) -> Reply:
    """Return the response for an operation that has ended, or was not admitted."""
    if not outcome.errors and outcome.replayed is None:
        return Reply(200, outcome.body, content_type, (), outcome.allowance)
    status, headers = _status(outcome, content_type, profile), _headers_of(outcome)
    return Reply(status, outcome.body, content_type, headers, outcome.allowance)


def refusal(refused: Refused, content_type: str) -> Reply:
    """Return the response for a refused request."""
    return Reply(refused.status, encode({"errors": [format_error(refused.error)]}), content_type, refused.headers)


def fault(error: Exception) -> Reply:
    """Return the response for an unexpected error."""
    return Reply(500, encode({"errors": [mask_error(error)]}))


def head_of(response: Reply) -> bytes:
    """Return the header lines of a response, for `RequestCycle.respond`."""
    if response.headers:
        return lines_of(_headers(response))
    common, allowance = _COMMON_LINES[response.content_type] % len(response.body), response.allowance
    if allowance is None:
        return common
    left, reset = allowance.remaining, allowance.reset
    return b"%bratelimit-limit: %.0f\r\nratelimit-remaining: %.0f\r\nratelimit-reset: %d\r\n" % (
        common,
        allowance.limit,
        left if left > 0 else 0,
        math.ceil(reset) if reset else 0,
    )


# The header lines of nearly all responses, formatted in advance.
_COMMON_LINES = {
    media: b"content-type: %b; charset=utf-8\r\ncontent-length: %%d\r\ncache-control: no-store\r\nvary: accept\r\n"
    % media.encode()
    for media in (JSON, GRAPHQL)
}


def _headers(response: Reply) -> list[tuple[bytes, bytes]]:
    headers = {
        b"content-type": f"{response.content_type}; charset=utf-8".encode(),
        b"content-length": b"%d" % len(response.body),
        b"cache-control": b"no-store",
        b"vary": b"accept",
    }
    if response.status == 304:  # it has no body
        del headers[b"content-type"], headers[b"content-length"]
    if response.allowance is not None:
        headers[b"ratelimit-limit"] = b"%.0f" % response.allowance.limit
        headers[b"ratelimit-remaining"] = b"%.0f" % max(response.allowance.remaining, 0)
        headers[b"ratelimit-reset"] = b"%d" % math.ceil(response.allowance.reset)
    headers.update(response.headers)
    return [*headers.items()]


def _status(outcome: Outcome, content_type: str, profile: HttpProfile) -> int:
    if not outcome.is_failure:
        return 200
    # In the older edition, clients that accept plain JSON take any other status for a failure of the connection.
    if profile is HttpProfile.EDITION_2025 and content_type == JSON and outcome.code not in _ALWAYS_IN_STATUS:
        return 200
    if profile is HttpProfile.DRAFT_2026 and outcome.stage is not Stage.PARSING:
        return _STATUS_OF_CODE.get(outcome.code or "", 422)
    return _STATUS_OF_CODE.get(outcome.code or "", 400)


def _headers_of(outcome: Outcome) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that an outcome adds."""
    headers: dict[str, str] = {}
    if outcome.is_failure and "retryAfter" in outcome.formatted_errors[0]["extensions"]:
        headers["retry-after"] = f"{math.ceil(outcome.formatted_errors[0]['extensions']['retryAfter'])}"
    if outcome.replayed is not None:
        headers["idempotency-replayed"] = "true"
    return tuple((name.encode(), value.encode()) for name, value in headers.items())
