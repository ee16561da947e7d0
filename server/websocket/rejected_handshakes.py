"""Opening handshakes of WebSockets that fail: told as every other answer is, in JSON."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from datastore.errors import BadUserInput, DomainError, Forbidden, Internal, Unavailable
from server.http.headers import SECURITY_HEADERS
from server.http.media_types import JSON
from server.operations.outcome import encode, told_error

# Headers that hold lists. Those that clients send have some 100 bytes, and each element is read by itself.
LISTS = ("Connection", "Upgrade", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions")
MOST_LIST_BYTES = 1024


class Handshakes(ServerProtocol):
    """The protocol of websockets, which words its refusals as plain text, with Python's words in it.

    `on_refusal` is told the status and the code of each.
    """

    def __init__(self, on_refusal: Callable[[int, str], None], **given: Any) -> None:
        super().__init__(**given)
        self._on_refusal = on_refusal

    def accept(self, request: Request) -> Response:
        """A response to the handshake; a refusal where lists in its headers are too long to be read."""
        if any(sum(map(len, request.headers.get_all(name))) > MOST_LIST_BYTES for name in LISTS):
            return self.reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "")
        return super().accept(request)

    def reject(self, status: StatusLike, text: str) -> Response:
        """A response that refuses the handshake. `text` is left out."""
        status = HTTPStatus(status)
        error = _error(status)
        self._on_refusal(status.value, error.code)
        body = encode({"errors": [told_error(error)]})
        headers = Headers(
            [
                ("Connection", "close"),
                ("Content-Length", str(len(body))),
                ("Content-Type", f"{JSON}; charset=utf-8"),
                ("Sec-WebSocket-Version", "13"),  # RFC 6455, 4.2.2: a client of another version has to be told
                *((name.decode(), value.decode()) for name, value in SECURITY_HEADERS),
            ]
        )
        return Response(status.value, status.phrase, headers, body)


def _error(status: HTTPStatus) -> DomainError:
    match status:
        case HTTPStatus.FORBIDDEN:
            return Forbidden("A WebSocket may not be opened here, or not from this page.")
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            return Internal("Something went wrong on our side.")
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return Unavailable("The server is shutting down; connect again.")
        case HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE | HTTPStatus.REQUEST_URI_TOO_LONG:
            return BadUserInput(
                "A WebSocket's URL, and each of its headers, may have at most 8,192 bytes; "
                f"each of {', '.join(LISTS)} at most {MOST_LIST_BYTES:,}."
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return BadUserInput("A WebSocket is opened with GET.")
        case _:
            return BadUserInput("This is no opening handshake of a WebSocket, version 13 (RFC 6455).")
