"""GraphQL over HTTP: POST and GET, answered with JSON, errors included, or with a stream by request.

https://graphql.github.io/graphql-over-http/draft/
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from typing import NamedTuple

from graphql.language import OperationType
from starlette.types import ASGIApp, Receive, Scope, Send

from datastore.errors import BadUserInput, Internal, Unavailable
from datastore.model.identity import Identity
from server.admission.callers import Caller
from server.admission.client_address import address_in
from server.documents.request import GraphQLParams, read_params
from server.http.body import BODY_SECONDS, MAX_BODY, Bodies, decode_content
from server.http.cache import Caching
from server.http.csrf import check_get
from server.http.cycle import CYCLE, ClientGone, RequestCycle
from server.http.graphiql import is_visit
from server.http.headers import (
    EVENTS,
    GRAPHQL,
    JSON,
    MAX_ACCEPT_BYTES,
    MAX_ACCEPT_TYPES,
    MULTIPART,
    AcceptedIncrements,
    AcceptedTypes,
    RequestHeaders,
)
from server.http.identification import identified
from server.http.responses import HttpProfile, Refused, Reply, fault, head_of, refusal, reply
from server.http.streams.multipart import MultipartIncrements, MultipartSubscription
from server.http.streams.response_stream import BegunOutcomes, Outcomes, ResponseStreams, StreamFormat
from server.http.streams.sse import END_ID, ServerSentEvents, send_end
from server.operations.incremental.delivery import IncrementalOutcome
from server.operations.outcome import Outcome
from server.operations.request import IncrementalFormat, Request, Transport
from server.operations.runner import Runner
from server.security.jwt import Identify
from server.security.origins import canonical_origins
from server.subscriptions.manager import SubscriptionManager

_METHODS = "GET, POST"
_NOT_ACCEPTED = (
    f"`Accept` must allow one of: {GRAPHQL}, {JSON}, {EVENTS}, {MULTIPART};subscriptionSpec=1.0. "
    f"It may have at most {MAX_ACCEPT_BYTES:,} bytes and {MAX_ACCEPT_TYPES} media types."
)
_INCREMENTS_HINT = (
    f"The response to @defer and @stream comes in parts: send Accept: {MULTIPART};incrementalSpec=v0.2, "
    f"{MULTIPART};deferSpec=20220824 or {EVENTS}, or set the argument `if` of the directives to false."
)
_QUERY, _MUTATION, _SUBSCRIPTION = OperationType.QUERY, OperationType.MUTATION, OperationType.SUBSCRIPTION


_EVENTS, _MULTIPART = ServerSentEvents(), MultipartSubscription()
_INCREMENTS = {format: MultipartIncrements(format) for format in IncrementalFormat}


class Streamed(NamedTuple):
    """A response that is sent result by result."""

    outcomes: Outcomes
    format: StreamFormat
    caller: Caller
    is_subscription: bool = False


class GraphQLHTTP:
    """The ASGI application behind the GraphQL URL. A browser that visits the URL gets `page`, if there is one.

    Pages on `allowed_origins`, as `https://host[:port]`, may send a GET besides those of this host. `caching` marks the
    responses to a GET that caches may store; without it there are none. `cached_identity` returns the identity of a
    recently verified token without waiting. `on_refusal` is called with the status and the error code of each refusal.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        subscriptions: SubscriptionManager | None = None,
        streams: ResponseStreams | None = None,
        profile: HttpProfile = HttpProfile.EDITION_2025,
        allowed_origins: Collection[str] = (),
        caching: Caching | None = None,
        cached_identity: Callable[[str], Identity | None] = lambda _token: None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
        page: Callable[[], ASGIApp] | None = None,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._runner = runner
        self._subscriptions = subscriptions or SubscriptionManager(runner)
        self._identify = identify
        self._cached_identity = cached_identity
        self.streams = ResponseStreams() if streams is None else streams
        self._profile = profile
        self._allowed_origins = canonical_origins(allowed_origins)
        self._caching = caching
        self._on_refusal = on_refusal
        self._page = page
        self.bodies = Bodies(max_body, body_seconds)
        self._defers = runner.documents.has_incremental_directives

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._page is not None and scope["method"] != "POST" and is_visit(scope):
            await self._page()(scope, receive, send)
            return
        cycle: RequestCycle = scope[CYCLE]
        headers = cycle.headers(scope["headers"])
        accepted = headers.accepted
        if accepted.events and headers.get("last-event-id") == END_ID:
            await send_end(send)
            return
        try:
            response = await self._response(scope, headers, receive, cycle)
        except ClientGone:
            return
        except Refused as refused:
            self._on_refusal(refused.status, refused.error.code)
            response = refusal(refused, accepted.single or JSON)
        except Exception as error:
            self._on_refusal(500, Internal.code)
            response = fault(error)
        match response:
            case Reply():
                await cycle.respond(response.status, head_of(response), response.body)
            case Streamed(outcomes, format, caller, is_subscription):
                cycle.begin_stream()
                if not await self.streams.serve(
                    outcomes, format, caller, receive, send, is_subscription=is_subscription
                ):
                    cycle.abort()

    async def _response(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, cycle: RequestCycle
    ) -> Reply | Streamed:
        method, accepted = scope["method"], headers.accepted
        if method not in ("GET", "POST"):
            raise Refused(405, BadUserInput("GraphQL is served by GET and POST."), allow=_METHODS)
        if accepted.single is None and not accepted.streams and not (self._defers and accepted.increments):
            raise Refused(406, BadUserInput(_NOT_ACCEPTED))
        if method == "GET":
            check_get(headers, self._allowed_origins)
        load = self._runner.load
        if load.late_turns or load.waiting:
            self._check_load()
        try:
            if method == "GET":
                params = read_params(self.bodies.parameters(headers, scope["query_string"]))
            else:
                body = cycle.take_content() if headers.has_json_content else None
                if body is None:
                    body = await self.bodies.read(headers, receive, address_in(scope))
                size = len(body)
                if size > self.bodies.max_bytes:
                    raise self.bodies.too_large()
                params = read_params(decode_content(body, "The body"), size)
            params.request_id, traceparent = cycle.id, cycle.traceparent
            if traceparent is not None:
                params.traceparent = traceparent.decode()
            if headers.has_options:
                _set_options(params, headers)
        except BadUserInput as error:
            raise Refused(400, error) from None
        identity = None if headers.token is None else self._cached_identity(headers.token)
        if identity is None and headers.authorization is not None:
            identity = await identified(self._identify, headers.authorization)
        caller = Caller(None, address_in(scope)) if identity is None else Caller(identity)
        single = None if accepted.prefers_events else accepted.single
        cycle.watch()
        try:
            transport = Transport.HTTP if single else _format(accepted).transport
            request = await self._runner.prepare(params, caller, transport)
            match request:
                case Outcome():
                    return self._failure(request, single, accepted, caller)
            kind = request.operation.kind
            if kind is not _QUERY:
                _check_transport(kind, method, accepted)
            if request.is_incremental:
                return await self._increments(request, single, accepted)
            if single is None or kind is _SUBSCRIPTION:
                return self._streamed(request, _format(accepted))
            outcome = await self._runner.run(request)
        except asyncio.CancelledError:
            cycle.raise_if_gone()
            raise
        finally:
            cycle.unwatch()
        response = reply(outcome, single, self._profile)
        if self._caching is None or method != "GET":
            return response
        return self._caching.apply(response, request, outcome, headers)

    def _failure(
        self, outcome: Outcome, single: str | None, accepted: AcceptedTypes, caller: Caller
    ) -> Reply | Streamed:
        """Return the response for an operation that cannot be executed.

        A client that accepts only streams gets the errors in a stream: its page sees nothing else.
        """
        if single is None:
            return Streamed(_only(outcome), _format(accepted), caller)
        return reply(outcome, single, self._profile)

    def _check_load(self) -> None:
        """Raise `Refused` while the gateway is overloaded: the body of a refused request is not read."""
        try:
            self._runner.load.check()
        except Unavailable as error:
            raise Refused(503, error, **{"retry-after": str(error.extensions["retryAfter"])}) from None

    def _streamed(self, request: Request, format: StreamFormat) -> Streamed:
        if request.operation.kind is not _SUBSCRIPTION:
            return Streamed(self._single(request), format, request.caller)
        request.transport = format.transport
        return Streamed(self._subscriptions.stream(request), format, request.caller, is_subscription=True)

    async def _increments(self, request: Request, single: str | None, accepted: AcceptedTypes) -> Reply | Streamed:
        """Return an incremental response; a JSON response if the operation failed at once, or nothing was deferred."""
        if accepted.increments is None:
            raise Refused(406, BadUserInput(_INCREMENTS_HINT))
        format = _format_of_increments(accepted.increments)
        request.transport = format.transport
        outcomes = self._runner.incremental.run(request, accepted.increments.format)
        first = await anext(outcomes)
        if single is None or isinstance(first, IncrementalOutcome):
            return Streamed(BegunOutcomes(first, outcomes), format, request.caller)
        await outcomes.aclose()
        return reply(first, single, self._profile)

    async def _single(self, request: Request) -> AsyncGenerator[Outcome, None]:
        yield await self._runner.run(request)


async def _only(outcome: Outcome) -> AsyncGenerator[Outcome, None]:
    yield outcome


def _format(accepted: AcceptedTypes) -> StreamFormat:
    if accepted.increments is not None and not accepted.streams:
        return _format_of_increments(accepted.increments)
    return _MULTIPART if accepted.multipart else _EVENTS


def _format_of_increments(increments: AcceptedIncrements) -> StreamFormat:
    return _EVENTS if increments.media == EVENTS else _INCREMENTS[increments.format]


def _check_transport(kind: OperationType, method: str, accepted: AcceptedTypes) -> None:
    """Raise `Refused` for a mutation by GET, and for a subscription whose client does not accept a stream."""
    if kind is _MUTATION and method != "POST":
        raise Refused(405, BadUserInput("A mutation must be sent with POST."), allow="POST")
    if kind is _SUBSCRIPTION and not accepted.streams:
        hint = (
            f"Subscriptions are streamed: send Accept: {EVENTS} or {MULTIPART};subscriptionSpec=1.0, "
            "or connect to this URL over WebSocket with the subprotocol graphql-transport-ws."
        )
        raise Refused(406, BadUserInput(hint))


def _set_options(params: GraphQLParams, headers: RequestHeaders) -> None:
    """Set the options that the headers contain. Raise `BadUserInput` for an invalid one."""
    params.idempotency_key = headers.get("idempotency-key", params.idempotency_key)
    explain = headers.get("x-explain")
    params.explain = explain is not None and _is_on("X-Explain", explain)
    last_event = headers.get("last-event-id")
    if last_event:  # before the first event an EventSource sends it empty, or not at all
        params.resume_after = last_event


def _is_on(name: str, value: str) -> bool:
    """Parse a boolean header. Raise `BadUserInput` for any other value."""
    if value.strip().lower() not in ("1", "true", "0", "false", ""):
        raise BadUserInput(f"The header {name} must be 1 or true, or 0 or false.")
    return value.strip().lower() in ("1", "true")
