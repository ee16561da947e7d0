"""Security headers of every HTTP response.

https://cheatsheetseries.owasp.org/cheatsheets/HTTP_Headers_Cheat_Sheet.html
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.cycle import cycle_of
from server.http.headers import SECURITY_HEADERS, lines_of

# RFC 6797. Subdomains are not included: they belong to other services.
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")
# Complete responses set the first header, about caching, themselves.
_LINES = lines_of(SECURITY_HEADERS[1:])
_LINES_BY_TLS = _LINES + lines_of([_ONLY_TLS])


class SecurityHeaders:
    """Middleware that adds the headers. With `always_https` all clients connect by TLS."""

    def __init__(self, app: ASGIApp, *, always_https: bool) -> None:
        self._app = app
        self._always_https = always_https

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)

        # Called when headers are sent: by then the scheme is that of a trusted proxy's X-Forwarded-Proto.
        def lines() -> bytes:
            return _LINES_BY_TLS if self._always_https or scope["scheme"] == "https" else _LINES

        async def guard(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = (
                    (*SECURITY_HEADERS, _ONLY_TLS)
                    if self._always_https or scope["scheme"] == "https"
                    else SECURITY_HEADERS
                )
                present = {name.lower() for name, _ in message.get("headers", ())}
                headers = [*message.get("headers", ()), *(pair for pair in added if pair[0] not in present)]
                message = {**message, "headers": headers}
            await send(message)

        cycle = cycle_of(scope)
        if cycle is not None:
            cycle.add_header_lines(lines)
        return self._app(scope, receive, guard)
