"""The page `/metrics`: the metrics of this process in Prometheus's text format, for authorized callers."""

import hmac

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from datastore.errors import DomainError, Forbidden, Unauthenticated
from datastore.model.identity import Identity, Role
from server.operations.outcome import format_error
from server.security.jwt import Identify, bearer_token


class MetricsPage:
    """The endpoint of metrics. Callers need the metrics token `token`, or a JWT of an admin or a service."""

    def __init__(self, registry: CollectorRegistry, identify: Identify, token: str | None = None) -> None:
        self._registry = registry
        self._identify = identify
        self._token = token

    async def respond(self, request: Request) -> Response:
        try:
            await self._check(bearer_token(request.headers.get("authorization")))
        except DomainError as error:
            headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthenticated) else {}
            status = {Unauthenticated.code: 401, Forbidden.code: 403}.get(error.code, 503)
            return JSONResponse({"errors": [format_error(error)]}, status, headers)
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _check(self, token: str | None) -> None:
        if token is None:
            raise Unauthenticated("Metrics need the metrics token, or a token of an admin or a service.")
        if self._token is not None and hmac.compare_digest(token.encode(), self._token.encode()):
            return
        identity = await self._identity_of(token)
        if identity is None or identity.role is Role.USER:
            raise Forbidden("Metrics are for admins and services only.")

    async def _identity_of(self, token: str) -> Identity | None:
        try:
            return await self._identify(token)
        except Unauthenticated as error:
            if self._token is None:
                raise
            problem = str(error)
            message = f"This is neither the metrics token nor a valid JWT: {problem[0].lower()}{problem[1:]}"
            raise Unauthenticated(message) from None
