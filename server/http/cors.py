"""Cross-origin resource sharing: only pages of the configured origins can read the responses.

https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.http.cycle import CYCLE
from server.security.origins import canonical_origin, canonical_origins

PREFLIGHT_SECONDS = 600
_REQUEST_HEADERS = (
    "accept",
    "apollo-require-preflight",
    "apollographql-client-name",
    "apollographql-client-version",
    "authorization",
    "cache-control",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "traceparent",
    "tracestate",
    "x-apollo-operation-name",
    "x-explain",
    "x-graphql-require-preflight",
    "x-request-id",
)
_RESPONSE_HEADERS = (
    "etag",
    "idempotency-replayed",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "www-authenticate",
    "x-request-id",
)
_PREFLIGHT_HEADERS = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", ", ".join(_REQUEST_HEADERS).encode()),
    (b"access-control-max-age", str(PREFLIGHT_SECONDS).encode()),
]


class CrossOrigin:
    """Middleware that shares responses, errors included, with pages of `allowed_origins`, as `https://host[:port]`.

    Without allowed origins it changes nothing. The gateway uses no cookies, so credentials are not allowed.
    """

    def __init__(self, app: ASGIApp, allowed_origins: Collection[str]) -> None:
        self._app = app
        self._allowed = canonical_origins(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._allowed:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        shared = [(b"vary", b"origin")]
        if canonical_origin(origin) in self._allowed:
            shared.append((b"access-control-allow-origin", origin.encode("latin-1")))
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await send({"type": "http.response.start", "status": 204, "headers": shared + _PREFLIGHT_HEADERS})
                await send({"type": "http.response.body", "body": b""})
                return
            shared.append((b"access-control-expose-headers", ", ".join(_RESPONSE_HEADERS).encode()))

        scope[CYCLE].add_headers(shared)
        await self._app(scope, receive, send)
