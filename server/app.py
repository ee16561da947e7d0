"""The ASGI application: the routes, the middleware, and the errors of both."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from datastore.errors import BadUserInput, NotFound
from server import asgi
from server.admission.client_address import behind_proxies
from server.http import graphiql
from server.http.cors import CrossOrigin
from server.http.cycle import CYCLE
from server.http.security_headers import SecurityHeaders
from server.operations.outcome import encode, format_error, mask_error
from server.version import running_build
from server.wiring import ServerComponents

GRAPHQL, MCP = "/graphql", "/mcp"
READY_SECONDS = 2.0


class GatewayProcess(Protocol):
    """The gateway of this process, as the application and uvicorn see it."""

    server: ServerComponents

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Run the gateway for the duration of a block."""

    async def readiness(self, seconds: float) -> dict[str, Any]:
        """Return `ready`, and the problems found within `seconds`."""


class Application(Starlette):
    """A Starlette application whose responses, errors of the router included, all have the security headers.

    HTTP requests to `/graphql`, which are nearly all requests, go to `graphql` without routing.
    """

    def __init__(self, graphql: ASGIApp, *, always_https: bool, proxies: Sequence[Middleware], **options: Any) -> None:
        self._security_headers = SecurityHeaders(always_https=always_https)
        super().__init__(middleware=proxies, **options)
        # Starlette would redirect to the Host header, which a client can forge, and from https to http behind a proxy.
        self.router.redirect_slashes = False
        for proxy in proxies:
            graphql = proxy.cls(graphql, *proxy.args, **proxy.kwargs)
        self._graphql = graphql

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.request_coroutine(scope, receive, send)

    def request_coroutine(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return the coroutine that serves a request, for servers that save the coroutine of `__call__` around it."""
        if CYCLE in scope:
            scope[CYCLE].security_headers = self._security_headers
            if scope["path"] == GRAPHQL and not scope["root_path"]:
                return self._graphql(scope, receive, send)
        elif asgi.is_from_other_server(scope):
            return asgi.serve(self, scope, receive, send)
        return super().__call__(scope, receive, send)


def application(gateway: GatewayProcess) -> Application:
    """Return the application of a gateway, which runs for the lifespan of the application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with gateway.running():
            yield gateway.server.admission.connections.lifespan_state()

    server, build = gateway.server, running_build()
    health = {"alive": True, "version": build.version, **({"revision": build.revision} if build.revision else {})}

    async def config(request: Request) -> Response:
        return server.graphiql.response(request)

    async def examples(request: Request) -> Response:
        return server.graphiql.examples(request)

    def schema(request: Request) -> Response:
        """Return the schema. It takes a moment for the first time: Starlette runs this in a thread."""
        return server.graphiql.schema(request)

    async def ready(_: Request) -> Response:
        if server.is_draining:
            return JSONResponse({"ready": False, "draining": True}, status_code=503)
        state = await gateway.readiness(READY_SECONDS)
        return JSONResponse(state, status_code=200 if state["ready"] else 503)

    graphql: ASGIApp = server.http
    mcp: ASGIApp = server.mcp
    if server.settings.allowed_origins:
        graphql = CrossOrigin(graphql, server.settings.allowed_origins)
        mcp = CrossOrigin(mcp, server.settings.allowed_origins)
    return Application(
        graphql,
        always_https=server.settings.reached_at.startswith("https:"),
        proxies=behind_proxies(server.settings.capacity.trusted_proxies),
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused, Exception: _failed},
        routes=[
            Route("/", lambda _: RedirectResponse(GRAPHQL)),
            WebSocketRoute(GRAPHQL, server.socket),
            # For applications that mount this one under a path of their own.
            Route(GRAPHQL, graphql),
            Route(MCP, mcp),
            Route("/graphiql/config.json", config),
            Route(graphiql.EXAMPLES_PATH, examples),
            Route(graphiql.SCHEMA_PATH, schema),
            Route("/media", server.media),
            Route("/media/{token}", server.media),
            Mount("/graphiql/assets", graphiql.assets()),
            Route("/metrics", server.metrics_page.respond),
            Route("/healthz", lambda _: JSONResponse(health)),
            Route("/readyz", ready),
        ],
    )


async def _refused(_: Request, error: Exception) -> Response:
    """Return the response to an `HTTPException`, such as an unknown path, in the format of the API's errors."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        body = format_error(NotFound("There is nothing at this address: GraphQL is served at /graphql."))
    else:
        body = format_error(BadUserInput(f"{error.detail}."))
    headers = {"Cache-Control": "no-store", **(error.headers or {})}
    return Response(encode({"errors": [body]}), error.status_code, headers, "application/json")


async def _failed(_: Request, error: Exception) -> Response:
    """Return the response to an unexpected error."""
    return Response(encode({"errors": [mask_error(error)]}), 500, {"Cache-Control": "no-store"}, "application/json")
