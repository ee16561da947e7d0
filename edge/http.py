"""GraphQL over HTTP: POST and GET, one JSON answer each, whatever goes wrong."""

import asyncio
import math
from collections.abc import Mapping, Sized
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import orjson
from graphql.language import OperationType
from starlette.types import Receive, Scope, Send

from datastore.errors import BadUserInput, DomainError, Internal, Throttled, Timeout, Unauthenticated, Unavailable
from edge.answers import Outcome, encode, masked, told_error
from edge.execution import Identify, Request, Runner
from edge.identity import bearer
from edge.operations import Caller, Operation, Transport, read_operation
from resolvers.access import Identity

MAX_BODY = 262_144
BODY_SECONDS = 30.0

_JSON = "application/json"
_GRAPHQL = "application/graphql-response+json"
_METHODS = "GET, POST"
_ALLOWED = {
    "GET": frozenset({OperationType.QUERY}),
    "POST": frozenset({OperationType.QUERY, OperationType.MUTATION}),
}
_STATUS_OF_CODE = {
    Unauthenticated.code: 401,
    Throttled.code: 429,
    Internal.code: 500,
    Unavailable.code: 503,
    Timeout.code: 504,
}
# Proxies and clients of any age are to slow down, or come back later.
_WHATEVER_THE_TYPE = (Throttled.code, Unavailable.code)


class Reply(NamedTuple):
    """A status and a JSON body."""

    status: int
    body: bytes
    content_type: str = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Refused(Exception):
    """The request is answered without executing anything."""

    def __init__(self, status: int, error: DomainError, **headers: str) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = tuple((name.encode(), value.encode()) for name, value in headers.items())


class ClientGone(Exception):
    """Nobody is left to answer."""


class GraphQLHTTP:
    """The ASGI application behind the GraphQL URL."""

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._runner = runner
        self._identify = identify
        self._max_body = max_body
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        try:
            reply = await self._reply(scope, headers, receive)
        except ClientGone:
            return
        except Refused as refusal:
            body = encode({"errors": [told_error(refusal.error)]})
            reply = Reply(refusal.status, body, _negotiated(headers.get("accept", "")) or _JSON, refusal.headers)
        except Exception as error:
            reply = Reply(500, encode({"errors": [masked(error)]}))
        await _send(send, reply)

    async def _reply(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Reply:
        allowed = _ALLOWED.get(scope["method"])
        if allowed is None:
            raise Refused(405, BadUserInput("GraphQL is spoken with GET and POST here."), allow=_METHODS)
        content_type = _negotiated(headers.get("accept", ""))
        if content_type is None:
            raise Refused(406, BadUserInput(f"Answers come as {_GRAPHQL} or {_JSON}; Accept names neither."))
        asked = await self._operation(scope, headers, receive)
        caller = Caller(await self._caller(headers), _address(scope))
        outcome = await self._execute(asked, caller, allowed, receive)
        return Reply(_status(outcome, content_type), outcome.body, content_type, _told_by(outcome))

    async def _operation(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Operation:
        try:
            if scope["method"] == "GET":
                return _with_wishes(read_operation(self._query_parameters(scope["query_string"])), headers)
            _check_content(headers)
            return _with_wishes(read_operation(_decoded(await self._body(headers, receive), "The body")), headers)
        except BadUserInput as error:
            raise Refused(400, error) from None

    def _query_parameters(self, query_string: bytes) -> dict[str, Any]:
        if len(query_string) > self._max_body:
            raise self._too_large()
        try:
            pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise BadUserInput("The query string is not percent-encoded UTF-8.") from None
        parameters: dict[str, Any] = dict(pairs)
        for name in ("variables", "extensions"):
            if name in parameters:
                text = parameters[name]
                parameters[name] = _decoded(text.encode(), f"The parameter {name}") if text else None
        return parameters

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > self._max_body):
            raise self._too_large()
        try:
            async with asyncio.timeout(self._body_seconds):
                return await self._streamed(receive)
        except TimeoutError:
            # Closed, so that neither the body's rest is waited for nor a socket held with a byte now and then.
            raise Refused(408, Timeout("The request's body did not arrive in time."), connection="close") from None

    async def _streamed(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            whole: bytes = message.get("body", b"")
            self._check_size(whole)
            return whole
        body = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            self._check_size(body)
            if not message.get("more_body", False):
                return bytes(body)
            message = await receive()

    def _check_size(self, body: Sized) -> None:
        if len(body) > self._max_body:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, BadUserInput(f"A request may hold at most {self._max_body} bytes."))

    async def _execute(
        self, asked: Operation, caller: Caller, allowed: frozenset[OperationType], receive: Receive
    ) -> Outcome:
        watch = _Watch(receive)
        try:
            request = await self._runner.prepare(asked, caller, Transport.HTTP)
            if not isinstance(request, Request):
                return request
            if request.kind not in allowed:
                raise _not_carried(request.kind)
            return await self._runner.run(request)
        except asyncio.CancelledError:
            watch.absolve()
            raise
        finally:
            watch.stop()

    async def _caller(self, headers: Mapping[str, str]) -> Identity | None:
        try:
            return await self._identify(bearer(headers.get("authorization")))
        except Unauthenticated as error:
            raise Refused(401, error, **{"www-authenticate": "Bearer"}) from None
        except Unavailable as error:
            raise Refused(503, error) from None


class _Watch:
    """Cancels the work in hand when its client disconnects.

    It begins when the work first suspends: `call_soon` runs only then, so work that never waits pays for no task.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._work = asyncio.current_task()
        self._gone = False
        self._task: asyncio.Task[None] | None = None
        self._start = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._work is not None:
            self._work.cancel()

    def absolve(self) -> None:
        """Turn our own cancellation into `ClientGone`; one from outside is left as it is."""
        if self._gone and self._work is not None and self._work.uncancel() == 0:
            raise ClientGone from None

    def stop(self) -> None:
        self._start.cancel()
        if self._task is not None:
            self._task.cancel()


def _not_carried(kind: OperationType) -> Refused:
    if kind is OperationType.SUBSCRIPTION:
        hint = "Subscriptions are served over WebSocket: connect to this URL with the subprotocol graphql-transport-ws."
        return Refused(406, BadUserInput(hint))
    return Refused(405, BadUserInput("A mutation has to be sent with POST."), allow="POST")


def _headers(scope: Scope) -> Mapping[str, str]:
    """By name in lower case, as ASGI has them; several of one name are one list, which is what HTTP makes of them."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_content(headers: Mapping[str, str]) -> None:
    if not _is_json(headers.get("content-type", "")):
        raise Refused(415, BadUserInput(f"The body must be sent as Content-Type: {_JSON}, in UTF-8."))
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, BadUserInput("The body must be sent without a Content-Encoding."))


@lru_cache(maxsize=256)
def _is_json(content_type: str) -> bool:
    media, parameters = _media_type(content_type)
    return media == _JSON and parameters.get("charset", "utf-8") in ("utf-8", "utf8")


def _media_type(value: str) -> tuple[str, dict[str, str]]:
    media, *rest = (part.strip() for part in value.lower().split(";"))
    pairs = (part.partition("=") for part in rest)
    return media, {name.strip(): text.strip().strip('"') for name, _, text in pairs}


def _decoded(text: bytes, what: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadUserInput(f"{what} is not valid JSON: {error}") from None


@lru_cache(maxsize=256)
def _negotiated(accept: str) -> str | None:
    """The content type of the answer; wildcards and silence mean plain JSON, which is what older clients expect."""
    if not accept.strip():
        return _JSON
    weights = dict(filter(None, map(_weighted, accept.split(","))))
    plain = weights.get(_JSON, weights.get("application/*", weights.get("*/*", 0.0)))
    graphql = weights.get(_GRAPHQL, 0.0)
    if graphql > 0 and graphql >= plain:
        return _GRAPHQL
    return _JSON if plain > 0 else None


def _weighted(media_range: str) -> tuple[str, float] | None:
    media, parameters = _media_type(media_range)
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return None
    return (media, weight) if parameters.get("charset", "utf-8") in ("utf-8", "utf8") else None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _with_wishes(operation: Operation, headers: Mapping[str, str]) -> Operation:
    """What is asked for by headers, beside the operation."""
    return replace(
        operation,
        idempotency_key=headers.get("idempotency-key"),
        explain=headers.get("x-explain") == "1",
        traceparent=headers.get("traceparent"),
    )


def _status(outcome: Outcome, content_type: str) -> int:
    """Older clients, which ask for plain JSON, take everything but 200 for a failure of the way here."""
    if not outcome.is_failure or (content_type == _JSON and outcome.code not in _WHATEVER_THE_TYPE):
        return 200
    return _STATUS_OF_CODE.get(outcome.code or "", 400)


def _told_by(outcome: Outcome) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that an outcome brings along."""
    told: dict[str, str] = {}
    if outcome.allowance is not None:
        told["ratelimit-limit"] = f"{outcome.allowance.limit:.0f}"
        told["ratelimit-remaining"] = f"{max(outcome.allowance.remaining, 0):.0f}"
        told["ratelimit-reset"] = f"{math.ceil(outcome.allowance.reset)}"
    if outcome.is_failure and "retryAfter" in outcome.described[0]["extensions"]:
        told["retry-after"] = f"{math.ceil(outcome.described[0]['extensions']['retryAfter'])}"
    if outcome.replayed is not None:
        told["idempotency-replayed"] = "true"
    return tuple((name.encode(), value.encode()) for name, value in told.items())


async def _send(send: Send, reply: Reply) -> None:
    headers = [
        (b"content-type", f"{reply.content_type}; charset=utf-8".encode()),
        (b"content-length", str(len(reply.body)).encode()),
        (b"cache-control", b"no-store"),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
