"""Multipart responses: subscriptions in the format that Apollo's clients use by default, and incremental responses.

https://www.apollographql.com/docs/graphos/routing/operations/subscriptions/multipart-protocol
https://github.com/graphql/graphql-over-http/blob/main/rfcs/IncrementalDelivery.md
"""

from datastore.errors import Unavailable
from server.http.headers import MULTIPART
from server.operations.incremental.delivery import IncrementalOutcome
from server.operations.outcome import Outcome, encode, format_error
from server.operations.request import IncrementalFormat, Transport

BOUNDARY = "graphql"
_DELIMITER = f"\r\n--{BOUNDARY}".encode()
_PART = b"\r\ncontent-type: application/json; charset=utf-8\r\n\r\n"


class MultipartSubscription:
    """Results as parts of JSON, each in a `payload`.

    The errors of GraphQL are in the payload. An error beside the payload is one of the transport: the subscription has
    ended, and the client may subscribe again. A client processes a part when it receives the next delimiter, so that
    each part is sent with the delimiter after it. The resume id is in `extensions.eventId` of each result.
    """

    transport = Transport.MULTIPART
    content_type = f'{MULTIPART}; boundary="{BOUNDARY}"; subscriptionSpec=1.0'.encode()
    heartbeat = _PART + b"{}" + _DELIMITER
    complete = b""

    def begin(self, retry_seconds: float) -> bytes:
        return _DELIMITER

    def result(self, outcome: Outcome, id: str | None, *, will_retry: bool) -> bytes:
        if will_retry:
            return _transport_errors(outcome.formatted_errors)
        return b'%b{"payload":%b}%b' % (_PART, outcome.body, _DELIMITER)

    def position(self, id: str) -> bytes:
        return self.heartbeat

    def end(self, retry_ms: int | None, *, is_cut: bool) -> bytes:
        return (_transport_errors([_cut(retry_ms)]) if is_cut else b"") + b"--\r\n"


class MultipartIncrements:
    """The payloads of an incremental response as parts of JSON. There are no heartbeats: the deadline is near."""

    transport = Transport.MULTIPART
    heartbeat = b""
    complete = b""

    def __init__(self, format: IncrementalFormat) -> None:
        parameter = {IncrementalFormat.IDS: "incrementalSpec=v0.2", IncrementalFormat.PATHS: "deferSpec=20220824"}
        self.content_type = f'{MULTIPART}; boundary="{BOUNDARY}"; {parameter[format]}'.encode()

    def begin(self, retry_seconds: float) -> bytes:
        return _DELIMITER

    def result(self, outcome: Outcome, id: str | None, *, will_retry: bool) -> bytes:
        if isinstance(outcome, IncrementalOutcome):
            return _PART + outcome.body + _DELIMITER
        return b'%b%b,"hasNext":false}%b' % (_PART, outcome.body[:-1], _DELIMITER)

    def position(self, id: str) -> bytes:
        return b""

    def end(self, retry_ms: int | None, *, is_cut: bool) -> bytes:
        """Return the last bytes. Without the closing delimiter a client reports that the response is incomplete."""
        return b"" if is_cut else b"--\r\n"


def _transport_errors(errors: object) -> bytes:
    return _PART + encode({"payload": None, "errors": errors}) + _DELIMITER


def _cut(retry_ms: int | None) -> object:
    delay = {} if retry_ms is None else {"retryAfter": retry_ms / 1000}
    return format_error(Unavailable("The gateway shuts down. Subscribe again.", **delay))
