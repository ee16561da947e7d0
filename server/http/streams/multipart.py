"""Multipart subscriptions: the format of streams that Apollo's clients use by default.

https://www.apollographql.com/docs/graphos/routing/operations/subscriptions/multipart-protocol
"""

from datastore.errors import Unavailable
from server.http.headers import MULTIPART
from server.operations.outcome import Outcome, encode, format_error
from server.operations.request import Transport

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


def _transport_errors(errors: object) -> bytes:
    return _PART + encode({"payload": None, "errors": errors}) + _DELIMITER


def _cut(retry_ms: int | None) -> object:
    delay = {} if retry_ms is None else {"retryAfter": retry_ms / 1000}
    return format_error(Unavailable("The gateway shuts down. Subscribe again.", **delay))
