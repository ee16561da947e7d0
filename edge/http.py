"""GraphQL over HTTP: POST and GET, one JSON answer each, whatever goes wrong.

https://graphql.github.io/graphql-over-http/draft/
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from graphql.language import OperationType
from starlette.types import Receive, Scope, Send

from datastore.errors import BadUserInput, Unauthenticated, Unavailable
from edge.answers import Outcome
from edge.bodies import BODY_SECONDS, MAX_BODY, Bodies
from edge.execution import Identify, Request, Runner
from edge.identity import bearer
from edge.media_types import GRAPHQL, JSON, wanted
from edge.operations import Caller, Operation, Transport, read_operation
from edge.refusals import ClientGone, Refused
from edge.replies import HttpProfile, Reply, fault, refusal, reply, send_reply
from resolvers.access import Identity

_METHODS = "GET, POST"
_ALLOWED = {
    "GET": frozenset({OperationType.QUERY}),
    "POST": frozenset({OperationType.QUERY, OperationType.MUTATION}),
}


class GraphQLHTTP:
    """The ASGI application behind the GraphQL URL."""

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        profile: HttpProfile = HttpProfile.EDITION_2025,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._runner = runner
        self._identify = identify
        self._profile = profile
        self._bodies = Bodies(max_body, body_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        try:
            answer = await self._reply(scope, headers, receive)
        except ClientGone:
            return
        except Refused as refused:
            answer = refusal(refused, wanted(headers.get("accept", "")).single or JSON)
        except Exception as error:
            answer = fault(error)
        await send_reply(send, answer)

    async def _reply(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Reply:
        allowed = _ALLOWED.get(scope["method"])
        if allowed is None:
            raise Refused(405, BadUserInput("GraphQL is spoken with GET and POST here."), allow=_METHODS)
        content_type = wanted(headers.get("accept", "")).single
        if content_type is None:
            raise Refused(406, BadUserInput(f"Answers come as {GRAPHQL} or {JSON}; Accept names neither."))
        asked = await self._operation(scope, headers, receive)
        caller = Caller(await self._caller(headers), _address(scope))
        outcome = await self._execute(asked, caller, allowed, receive)
        return reply(outcome, content_type, self._profile)

    async def _operation(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Operation:
        try:
            if scope["method"] == "GET":
                asked = self._bodies.parameters(headers, scope["query_string"])
            else:
                asked = await self._bodies.posted(headers, receive)
            return _with_wishes(read_operation(asked), headers)
        except BadUserInput as error:
            raise Refused(400, error) from None

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
