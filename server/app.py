"""The ASGI application: the routes, the middleware, and the errors of both."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from datastore.errors import BadUserInput, NotFound
from server.admission.client_address import behind_proxies
from server.http import graphiql
from server.http.cors import CrossOrigin
from server.http.cycle import cycle_of
from server.http.security_headers import SecurityHeaders
from server.operations.outcome import encode, format_error, mask_error
from server.wiring import ServerComponents

GRAPHQL = "/graphql"
READY_SECONDS = 2.0
# A URL with one of these parameters is an operation, even when a browser follows a link.
_OPERATION_PARAMETERS = {"query", "documentId", "extensions"}
# A browser's request for the GraphiQL page is a visit. With a longer query string it is none, and GraphQL reports the
# error.
MAX_VISIT_BYTES = 2048


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
        self._always_https = always_https
        super().__init__(middleware=proxies, **options)
        # Starlette would redirect to the Host header, which a client can forge, and from https to http behind a proxy.
        self.router.redirect_slashes = False
        for proxy in proxies:
            graphql = proxy.cls(graphql, *proxy.args, **proxy.kwargs)
        self._graphql = self._secured(graphql)
        self._graphql_on_other_servers = self._secured(ServerErrorMiddleware(graphql, handler=_failed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != GRAPHQL or scope.get("root_path"):
            await super().__call__(scope, receive, send)
            return
        # The gateway's own HTTP protocol answers failures itself: `RequestCycle` knows whether a response has begun.
        app = self._graphql_on_other_servers if cycle_of(scope) is None else self._graphql
        await app(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        return self._secured(super().build_middleware_stack())

    def _secured(self, app: ASGIApp) -> ASGIApp:
        return SecurityHeaders(app, always_https=self._always_https)


def application(gateway: GatewayProcess) -> Application:
    """Return the application of a gateway, which runs for the lifespan of the application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with gateway.running():
            yield gateway.server.admission.connections.lifespan_state()

    server = gateway.server

    async def config(request: Request) -> Response:
        return server.graphiql.response(request)

    async def ready(_: Request) -> Response:
        if server.is_draining:
            return JSONResponse({"ready": False, "draining": True}, status_code=503)
        state = await gateway.readiness(READY_SECONDS)
        return JSONResponse(state, status_code=200 if state["ready"] else 503)

    graphql: ASGIApp = _GraphQL(server.http, server.graphiql)
    if server.settings.allowed_origins:
        graphql = CrossOrigin(graphql, server.settings.allowed_origins)
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
            Route("/graphiql/config.json", config),
            Route("/media", server.media),
            Route("/media/{token}", server.media),
            Mount("/graphiql/assets", graphiql.assets()),
            Route("/metrics", server.metrics_page.respond),
            Route("/healthz", lambda _: JSONResponse({"alive": True})),
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


class _GraphQL:
    """The GraphQL endpoint for programs, and the GraphiQL page for a browser that visits its URL."""

    def __init__(self, graphql: ASGIApp, graphiql: graphiql.Config) -> None:
        self._graphql = graphql
        self._graphiql = graphiql

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_visit = scope["method"] != "POST" and _is_visit(scope)
        return (self._graphiql.page() if is_visit else self._graphql)(scope, receive, send)


def _is_visit(scope: Scope) -> bool:
    """Return whether a browser requests the page, and no operation."""
    if scope["method"] not in ("GET", "HEAD") or len(scope["query_string"]) > MAX_VISIT_BYTES:
        return False
    request = Request(scope)
    accepts_page = "text/html" in request.headers.get("accept", "")
    return accepts_page and not request.query_params.keys() & _OPERATION_PARAMETERS
