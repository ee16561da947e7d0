"""The authentication of a socket: by connection_init, renewed by a ping, and checked before each result."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any

from datastore.errors import Unauthenticated, Unavailable
from datastore.model.identity import Identity
from server.security.jwt import Identify, bearer_token
from server.websocket.messages import ProtocolError

AUTHORIZATION = "authorization"
# The fetch of a key set takes less. The limit holds for any verifier: a socket waits for it, and counts in its quota.
IDENTIFY_SECONDS = 10.0


class SocketAuth:
    """The identity of the peer, None without a token. An invalid token ends the socket.

    `authorization` is the Authorization header of the upgrade, which browsers cannot send.
    """

    __slots__ = ("_authorization", "_identify", "expires_at", "identity")

    def __init__(self, identify: Identify, authorization: str | None) -> None:
        self.identity: Identity | None = None
        self.expires_at = inf
        self._identify = identify
        self._authorization = authorization

    async def authenticate(self, payload: Mapping[str, Any]) -> None:
        """Authenticate by the token in connection_init, or else by the token of the upgrade."""
        authorization, self._authorization = self._authorization, None
        self._set_identity(await self._verified(_token_in(payload) or authorization))

    async def renew(self, payload: Mapping[str, Any]) -> None:
        """Replace the token by the token of a ping.

        It must have the same user and the same rights, with which the running operations were authorized.
        """
        renewed = await self._verified(_token_in(payload))
        if renewed is None or self.identity is None or renewed.user_id != self.identity.user_id:
            raise ProtocolError(
                4403, "Forbidden: the new token is not of the user who connected; connect again with it."
            )
        if (renewed.role, renewed.email) != (self.identity.role, self.identity.email):
            raise ProtocolError(4403, "Forbidden: the new token grants other rights; connect again with it.")
        self._set_identity(renewed)

    def _set_identity(self, identity: Identity | None) -> None:
        self.identity = identity
        self.expires_at = inf if identity is None or identity.expires_at is None else identity.expires_at

    async def _verified(self, authorization: object) -> Identity | None:
        try:
            if authorization is not None and not isinstance(authorization, str):
                raise Unauthenticated("Authorization must be a string.")
            async with asyncio.timeout(IDENTIFY_SECONDS):
                return await self._identify(bearer_token(authorization))
        except TimeoutError:
            raise ProtocolError(1013, "The token could not be verified in time; connect again.") from None
        except Unauthenticated as error:
            raise ProtocolError(4403, f"Forbidden: {error}") from None
        except Unavailable as error:
            raise ProtocolError(1013, str(error)) from None


def renews(payload: Mapping[str, Any]) -> bool:
    """Return whether a ping contains a token, valid or not."""
    return any(_is_authorization(key) for key in payload)


def without_authorization(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a payload that may be sent back."""
    return {key: value for key, value in payload.items() if not _is_authorization(key)}


def _token_in(payload: Mapping[str, Any]) -> object:
    """Return the token; if there are several, a list, which is no valid token."""
    values = [value for key, value in payload.items() if _is_authorization(key)]
    return values[0] if len(values) == 1 else values or None


def _is_authorization(key: str) -> bool:
    return key.lower() == AUTHORIZATION
