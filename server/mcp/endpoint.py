"""The Model Context Protocol over Streamable HTTP, without sessions: a POST is one message, its response is JSON.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
"""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from datastore.errors import BadUserInput, DomainError, Forbidden, Internal, Throttled, Unavailable
from datastore.model.identity import Identity
from server.admission.budgets import CallerBudgets
from server.admission.callers import Caller
from server.admission.client_address import address_in
from server.documents.persisted.tool_marks import MarkedDocument
from server.http.body import Bodies
from server.http.cycle import CYCLE, ClientGone, RequestCycle
from server.http.headers import JSON, RequestHeaders
from server.http.identification import identified
from server.http.responses import Refused, Reply, head_of
from server.mcp.exchange import EXCHANGE, Exchange
from server.mcp.messages import OTHER, error_body, method_of, read_message, refusal_body
from server.mcp.resources import Resources
from server.mcp.tools import Toolset
from server.operations.outcome import mask_error
from server.operations.request import RESPONSE_BYTES_PER_UNIT, preparation_units
from server.operations.runner import Runner
from server.security.jwt import Identify
from server.security.origins import canonical_origin, canonical_origins

if TYPE_CHECKING:
    from server.mcp.sdk_server import SdkServer


class McpEndpoint:
    """The ASGI application behind the URL of the protocol. Without tools there is nothing at this URL.

    `marked` returns the present tools. Pages may send requests only from `origins`, as `https://host[:port]`: the Host
    header is no evidence, because any site can point its name to the address of the gateway (DNS rebinding).
    `cached_identity` returns the identity of a recently verified token without waiting. `on_refusal` is called with the
    status and the error code of each refusal, and `on_request` with the method and the status of each request.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        marked: Callable[[], Sequence[MarkedDocument]],
        resources: Resources,
        *,
        budgets: CallerBudgets,
        bodies: Bodies,
        origins: Collection[str] = (),
        cached_identity: Callable[[str], Identity | None] = lambda _token: None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
        on_request: Callable[[str, int], None] = lambda _method, _status: None,
    ) -> None:
        self._runner = runner
        self._identify = identify
        self._marked = marked
        self._resources = resources
        self._budgets = budgets
        self._bodies = bodies
        self._origins = canonical_origins(origins)
        self._cached_identity = cached_identity
        self._on_refusal = on_refusal
        self._on_request = on_request
        self._tools = Toolset(())
        self._sdk: SdkServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tools = self._current_tools()
        if not tools:
            raise HTTPException(404)
        cycle: RequestCycle = scope[CYCLE]
        message: dict[str, Any] | None = None
        try:
            headers = cycle.headers(scope["headers"])
            self._check_head(scope, headers)
            body = await self._read_body(scope, headers, receive, cycle)
            message = _read(body)
            caller = await self._caller(scope, headers)
            exchange = _exchange(caller, tools, cycle, headers, len(body))
            response = await self._respond(scope, body, exchange, cycle)
        except ClientGone:
            return
        except Refused as refused:
            self._on_refusal(refused.status, refused.error.code)
            response = Reply(refused.status, refusal_body(refused, message), JSON, refused.headers)
        except Exception as error:
            self._on_refusal(500, Internal.code)
            response = Reply(500, error_body(mask_error(error, "MCP"), message))
        self._on_request(OTHER if message is None else method_of(message), response.status)
        await cycle.respond(response.status, head_of(response), response.body)

    def _current_tools(self) -> Toolset:
        marked = self._marked()
        if self._tools.marked is not marked:
            self._tools = Toolset(marked)
        return self._tools

    def _check_head(self, scope: Scope, headers: RequestHeaders) -> None:
        """Raise `Refused` for another method, a page of another origin, and while the gateway is overloaded."""
        if scope["method"] != "POST":
            # A client that opens a stream or ends a session with another method learns that there are none.
            raise Refused(405, BadUserInput("MCP is served by POST, without sessions and streams."), allow="POST")
        origin = headers.get("origin")
        if origin is not None and canonical_origin(origin) not in self._origins:
            message = "Pages of this origin may not call tools: add it to GATEWAY_ALLOWED_ORIGINS."
            raise Refused(403, Forbidden(message))
        load = self._runner.load
        if load.late_turns or load.waiting:
            try:
                load.check()
            except Unavailable as error:
                raise _try_later(503, error) from None

    async def _read_body(self, scope: Scope, headers: RequestHeaders, receive: Receive, cycle: RequestCycle) -> bytes:
        body = cycle.take_content() if headers.has_json_content else None
        if body is None:
            return await self._bodies.read(headers, receive, address_in(scope))
        if len(body) > self._bodies.max_bytes:
            raise self._bodies.too_large()
        return body

    async def _caller(self, scope: Scope, headers: RequestHeaders) -> Caller:
        """Return the caller. Raise `Refused` for an invalid token, and for a caller in debt."""
        identity = None if headers.token is None else self._cached_identity(headers.token)
        if identity is None and headers.authorization is not None:
            identity = await identified(self._identify, headers.authorization)
        caller = Caller(None, address_in(scope)) if identity is None else Caller(identity)
        if self._budgets.has_debts:
            try:
                self._budgets.check(caller)
            except Throttled as error:
                raise _try_later(429, error) from None
        return caller

    async def _respond(self, scope: Scope, body: bytes, exchange: Exchange, cycle: RequestCycle) -> Reply:
        """Have the SDK handle a message, charge what no operation has paid for, and return the response."""
        sdk = self._sdk
        if sdk is None:
            # Each import of a module waits for its lock: two requests at once import the modules once.
            sdk = self._sdk = await asyncio.to_thread(_load_sdk, self._runner, self._resources)
        cycle.watch()
        try:
            status, content = await _handled(sdk, {**scope, EXCHANGE: exchange}, body)
        except asyncio.CancelledError:
            cycle.raise_if_gone()
            raise
        finally:
            cycle.unwatch()
        allowance = exchange.allowance
        if not exchange.is_charged:
            units = preparation_units(0, size=exchange.size) + len(content) / RESPONSE_BYTES_PER_UNIT
            allowance = await self._budgets.settle(exchange.caller, units)
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if exchange.retry_after is not None:
            headers = ((b"retry-after", b"%d" % math.ceil(exchange.retry_after)),)
        return Reply(exchange.status or status, content, JSON, headers, allowance)


def _read(body: bytes) -> dict[str, Any]:
    try:
        return read_message(body)
    except BadUserInput as error:
        raise Refused(400, error) from None


def _exchange(caller: Caller, tools: Toolset, cycle: RequestCycle, headers: RequestHeaders, size: int) -> Exchange:
    traceparent = None if cycle.traceparent is None else cycle.traceparent.decode()
    return Exchange(caller, tools, cycle.id, traceparent, headers.get("idempotency-key"), size)


def _try_later(status: int, error: DomainError) -> Refused:
    return Refused(status, error, **{"retry-after": str(error.extensions["retryAfter"])})


def _load_sdk(runner: Runner, resources: Resources) -> "SdkServer":
    from server.mcp.sdk_server import SdkServer

    return SdkServer(runner, resources)


async def _handled(sdk: "SdkServer", scope: Scope, body: bytes) -> tuple[int, bytes]:
    """Return the status and the content of the SDK's response to a message."""
    parts: list[bytes] = []
    status = 0
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Future()  # a client that disconnects cancels the request
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await sdk.handle(scope, receive, send)
    if not status:
        raise RuntimeError("The SDK sent no response.")
    return status, b"".join(parts)
