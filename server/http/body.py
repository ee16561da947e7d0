"""The content of an HTTP request, read within limits: the body of a POST, or the parameters of a GET's URL."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sized
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.types import Receive

from datastore.errors import BadUserInput, Throttled, Timeout, Unavailable
from server.admission.quotas import KeyedQuota
from server.http.cycle import ClientGone
from server.http.headers import JSON, Headers, is_json
from server.http.responses import Refused
from server.security.strict_json import json_problem

MAX_BODY = 262_144
BODY_SECONDS = 15.0
MAX_PARAMETERS = 100
# Limits of partially received bodies, in all and per client address. A body that arrives whole does not count.
MAX_PARTIAL_BYTES, MAX_PARTIAL_BYTES_PER_ADDRESS = 64 * 2**20, 8 * 2**20


class Bodies:
    """A reader of request bodies of at most `max_bytes`, each within `seconds`.

    Partially received bodies together have at most `max_partial` bytes, and those of a client's address at most
    `max_partial_per_address`.
    """

    def __init__(
        self,
        max_bytes: int = MAX_BODY,
        seconds: float = BODY_SECONDS,
        *,
        max_partial: int = MAX_PARTIAL_BYTES,
        max_partial_per_address: int = MAX_PARTIAL_BYTES_PER_ADDRESS,
    ) -> None:
        self.max_bytes = max_bytes
        self._seconds = seconds
        self.held = KeyedQuota("bytes of requests under way", max_partial, max_partial_per_address, "client")

    async def read(self, headers: Headers, receive: Receive, address: str = "") -> bytes:
        """Wait for the body of a POST, and return it. Raises `Refused` and `ClientGone`."""
        self._check(headers)
        return await self._body(headers, receive, address)

    def _check(self, headers: Headers) -> None:
        if not is_json(headers.raw.get(b"content-type", b"")):
            raise Refused(415, BadUserInput(f"The body must be sent as Content-Type: {JSON}, in UTF-8."))
        if b"content-encoding" in headers.raw and headers["content-encoding"].lower() != "identity":
            raise Refused(415, BadUserInput("The body must be sent without a Content-Encoding."))

    def parameters(self, headers: Headers, query_string: bytes) -> dict[str, Any]:
        """Return the parameters of a GET, with `variables` and `extensions` decoded.

        Raises:
            Refused: The type of the request is not JSON, or the query string is too long.
            BadUserInput: A parameter is repeated or malformed.
        """
        # By a defect of a browser, pages could send other types without a preflight: advisory GHSA-9q82-xgwf-vj6h.
        if b"content-type" in headers.raw and not is_json(headers.raw[b"content-type"]):
            raise Refused(415, BadUserInput(f"A GET has no body; its Content-Type may only be {JSON}."))
        if len(query_string) > self.max_bytes:
            raise Refused(414, BadUserInput(f"A URL's query may hold at most {self.max_bytes:,} bytes: use POST."))
        pairs = _pairs(query_string)
        repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
        if repeated:
            raise BadUserInput(f"The parameter {repeated[0][:80]} is given twice.")
        parameters: dict[str, Any] = dict(pairs)
        for name in ("variables", "extensions"):
            if name in parameters:
                text = parameters[name]
                parameters[name] = decode_content(text.encode(), f"The parameter {name}") if text else None
        return parameters

    async def _body(self, headers: Mapping[str, str], receive: Receive, address: str) -> bytes:
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > self.max_bytes):
            raise self.too_large()
        try:
            async with asyncio.timeout(self._seconds):
                return await self._streamed(receive, address)
        except TimeoutError:
            # The connection closes: otherwise a client could hold it by sending a byte now and then.
            raise Refused(408, Timeout("The request's body did not arrive in time."), connection="close") from None

    async def _streamed(self, receive: Receive, address: str) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            whole: bytes = message.get("body", b"")
            self._check_size(whole)
            return whole
        body = bytearray()
        held = 0
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                body += piece
                self._check_size(body)
                if not message.get("more_body", False):
                    return bytes(body)
                self._hold(address, len(piece))
                held += len(piece)
                message = await receive()
        finally:
            self.held.release(address, held)

    def _hold(self, address: str, size: int) -> None:
        """Count the bytes of a partial body. Raise `Refused` if they exceed a limit."""
        try:
            self.held.acquire(address, size)
        except (Throttled, Unavailable) as error:
            status = 429 if isinstance(error, Throttled) else 503
            retry_after = str(error.extensions["retryAfter"])
            raise Refused(status, error, **{"retry-after": retry_after, "connection": "close"}) from None

    def _check_size(self, body: Sized) -> None:
        if len(body) > self.max_bytes:
            raise self.too_large()

    def too_large(self) -> Refused:
        """Return the refusal of a body of more than `max_bytes`."""
        return Refused(413, BadUserInput(f"A request may hold at most {self.max_bytes:,} bytes."))


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    try:
        text = query_string.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except UnicodeError:
        raise BadUserInput("The query string is not percent-encoded UTF-8.") from None
    except ValueError:
        raise BadUserInput(f"A URL may hold at most {MAX_PARAMETERS} parameters.") from None


def decode_content(text: bytes, noun: str) -> Any:
    """Return the decoded JSON; of a repeated key the last value, as in browsers. Raises `BadUserInput`."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadUserInput(json_problem(text, noun, error)) from None
