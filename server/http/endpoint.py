"""GraphQL over HTTP: POST and GET, answered with JSON whatever goes wrong, or with a stream of events where wanted.

https://graphql.github.io/graphql-over-http/draft/
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import NamedTuple

from graphql.language import OperationType
from starlette.types import Receive, Scope, Send

from datastore.errors import BadUserInput, Internal, Unauthenticated, Unavailable
from datastore.model.identity import Identity
from server.admission.callers import Caller
from server.admission.client_address import address_in
from server.documents.request import GraphQLParams, read_params
from server.http.body import BODY_SECONDS, MAX_BODY, Bodies, posted
from server.http.cache import Caching
from server.http.csrf import check_get
from server.http.cycle import RequestCycle, cycle_of
from server.http.disconnect import DisconnectWatch
from server.http.headers import Headers
from server.http.media_types import EVENTS, GRAPHQL, JSON, MOST_ACCEPT_BYTES, MOST_RANGES, AcceptedTypes, wanted
from server.http.refusals import ClientGone, Refused
from server.http.responses import HttpProfile, Reply, fault, head_of, refusal, reply, send_reply
from server.http.sse import END_ID, EventStreams, send_end
from server.operations.outcome import Outcome
from server.operations.request import Request, Transport
from server.operations.runner import Runner
from server.security.jwt import Identify, bearer_token
from server.security.origins import canonical_origins
from server.subscriptions.subscriber import PullPosition

_METHODS = "GET, POST"
_ANYTHING = wanted("")
_NOT_ACCEPTED = (
    f"`Accept` must allow one of: {GRAPHQL}, {JSON}, {EVENTS}. "
    f"It may have at most {MOST_ACCEPT_BYTES:,} bytes and {MOST_RANGES} media types."
)
_QUERY, _MUTATION, _SUBSCRIPTION = OperationType.QUERY, OperationType.MUTATION, OperationType.SUBSCRIPTION
# Headers that say more of an operation. Few requests have one.
_WISHES = frozenset({b"idempotency-key", b"x-explain", b"traceparent", b"last-event-id"})


class Streamed(NamedTuple):
    """What is answered event by event."""

    outcomes: AsyncGenerator[Outcome, None]
    caller: Caller
    pull_position: PullPosition | None = None
    ends_soon: bool = True


class GraphQLHTTP:
    """The ASGI application behind the GraphQL URL.

    `allowed_origins` are the pages on other hosts that may ask with GET, as `https://host[:port]`. `streams` are those
    of events that are open, and `caching` tells which answers of a GET may be kept: none, without it. `known` tells at
    once whom a token speaks for that was verified lately. `on_refusal` is told the status and the code of requests that
    come to no operation.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        streams: EventStreams | None = None,
        profile: HttpProfile = HttpProfile.EDITION_2025,
        allowed_origins: Collection[str] = (),
        caching: Caching | None = None,
        known: Callable[[str], Identity | None] = lambda _token: None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._runner = runner
        self._identify = identify
        self._known = known
        self.streams = EventStreams() if streams is None else streams
        self._profile = profile
        self._allowed_origins = canonical_origins(allowed_origins)
        self._caching = caching
        self._on_refusal = on_refusal
        self._bodies = Bodies(max_body, body_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, cycle = Headers(scope["headers"]), cycle_of(scope)
        accept = headers.raw.get(b"accept")
        accepted = _ANYTHING if accept is None else wanted(accept.decode("latin-1"))
        if accepted.events and headers.get("last-event-id") == END_ID:
            await send_end(send)
            return
        try:
            answer = await self._answer(scope, headers, accepted, receive, cycle)
        except ClientGone:
            return
        except Refused as refused:
            self._on_refusal(refused.status, refused.error.code)
            answer = refusal(refused, accepted.single or JSON)
        except Exception as error:
            self._on_refusal(500, Internal.code)
            answer = fault(error)
        if isinstance(answer, Streamed):
            if cycle is not None:
                cycle.begin_stream()
            outcomes, caller, pull_position, ends_soon = answer
            reads = await self.streams.serve(outcomes, caller, receive, send, pull_position, ends_soon=ends_soon)
            if cycle is not None and not reads:
                cycle.abort()
        elif cycle is None:
            await send_reply(send, answer)
        else:
            await cycle.respond(answer.status, head_of(answer), answer.body)

    async def _answer(
        self,
        scope: Scope,
        headers: Headers,
        accepted: AcceptedTypes,
        receive: Receive,
        cycle: RequestCycle | None,
    ) -> Reply | Streamed:
        method = scope["method"]
        if method not in ("GET", "POST"):
            raise Refused(405, BadUserInput("GraphQL is spoken with GET and POST here."), allow=_METHODS)
        if accepted.single is None and not accepted.events:
            raise Refused(406, BadUserInput(_NOT_ACCEPTED))
        if method == "GET":
            check_get(headers, self._allowed_origins)
        try:
            self._runner.check_load()
        except Unavailable as error:
            # What would not be executed is not read either.
            raise Refused(503, error, **{"retry-after": str(error.extensions["retryAfter"])}) from None
        try:
            if method == "GET":
                operation = read_params(self._bodies.parameters(headers, scope["query_string"]))
            else:
                body = None if cycle is None else self._bodies.taken(headers, cycle)
                if body is None:
                    body = await self._bodies.received(headers, receive, address_in(scope))
                operation = read_params(posted(body), len(body))
            operation = _with_wishes(operation, headers)
        except BadUserInput as error:
            raise Refused(400, error) from None
        identity = None
        if b"authorization" in headers.raw:
            authorization = headers["authorization"]
            identity = self._known(authorization[7:]) if authorization.startswith("Bearer ") else None
            identity = identity or await self._identified(authorization)
        caller = Caller(identity, address_in(scope))
        watch = DisconnectWatch(cycle, receive)
        try:
            return await self._execute(operation, caller, method, accepted, headers)
        except asyncio.CancelledError:
            watch.absolve()
            raise
        finally:
            watch.stop()

    async def _execute(
        self, asked: GraphQLParams, caller: Caller, method: str, accepted: AcceptedTypes, headers: Mapping[str, str]
    ) -> Reply | Streamed:
        single = None if accepted.rather_events else accepted.single
        request = await self._runner.prepare(asked, caller, Transport.HTTP if single else Transport.EVENTS)
        if not isinstance(request, Request):
            # Errors are events too where events are wanted: an EventSource would show its page no others.
            return reply(request, single, self._profile) if single else Streamed(_only(request), caller)
        kind = request.operation.kind
        if kind is not _QUERY:
            _check_carried(kind, method, accepted)
        if kind is _SUBSCRIPTION:
            request.transport = Transport.EVENTS
            pull_position = PullPosition()
            return Streamed(self._runner.stream(request, pull_position), caller, pull_position, ends_soon=False)
        if single is None:
            return Streamed(self._single(request), caller)
        outcome = await self._runner.run(request)
        answer = reply(outcome, single, self._profile)
        if self._caching is None or method != "GET":
            return answer
        return self._caching.told(answer, request, outcome, headers)

    async def _single(self, request: Request) -> AsyncGenerator[Outcome, None]:
        yield await self._runner.run(request)

    async def _identified(self, authorization: str) -> Identity | None:
        try:
            return await self._identify(bearer_token(authorization))
        except Unauthenticated as error:
            raise Refused(401, error, **{"www-authenticate": "Bearer"}) from None
        except Unavailable as error:
            later = {"retry-after": f"{error.extensions['retryAfter']:g}"} if "retryAfter" in error.extensions else {}
            raise Refused(503, error, **later) from None


async def _only(outcome: Outcome) -> AsyncGenerator[Outcome, None]:
    yield outcome


def _check_carried(kind: OperationType, method: str, accepted: AcceptedTypes) -> None:
    """Raises `Refused` for what this method does not carry, or not in a form that is accepted."""
    if kind is _MUTATION and method != "POST":
        raise Refused(405, BadUserInput("A mutation has to be sent with POST."), allow="POST")
    if kind is _SUBSCRIPTION and not accepted.events:
        hint = (
            f"Subscriptions are streamed: ask with Accept: {EVENTS}, "
            "or connect to this URL over WebSocket with the subprotocol graphql-transport-ws."
        )
        raise Refused(406, BadUserInput(hint))


def _with_wishes(operation: GraphQLParams, headers: Headers) -> GraphQLParams:
    """What is asked for by headers, beside the operation."""
    if _WISHES.isdisjoint(headers.raw):
        return operation
    operation.idempotency_key = headers.get("idempotency-key", operation.idempotency_key)
    explain = headers.get("x-explain")
    operation.explain = explain is not None and _is_on("X-Explain", explain)
    operation.traceparent = headers.get("traceparent")
    last_event = headers.get("last-event-id")
    if last_event:  # an EventSource sends it empty, or not at all, before it has had one
        operation.resume_after = last_event
    return operation


def _is_on(name: str, value: str) -> bool:
    """Raises `BadUserInput` for what means neither yes nor no."""
    if value.strip().lower() not in ("1", "true", "0", "false", ""):
        raise BadUserInput(f"The header {name} must be 1 or true, or 0 or false.")
    return value.strip().lower() in ("1", "true")
