"""Who speaks on a socket: said with connection_init, renewed with a ping, and looked at before each answer."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any

from datastore.errors import Unauthenticated, Unavailable
from datastore.model.identity import Identity
from server.security.jwt import Identify, bearer_token
from server.websocket.messages import ProtocolError

AUTHORIZATION = "authorization"
# A key set is fetched in less. Whatever verifies a token, the peer does not keep its place meanwhile without end.
IDENTIFY_SECONDS = 10.0


class SocketAuth:
    """The peer's identity, None for a peer without a token. Whatever is wrong with a token ends the socket.

    `offered` is what the upgrade's header said, which browsers cannot send.
    """

    __slots__ = ("_identify", "_offered", "expires_at", "identity")

    def __init__(self, identify: Identify, offered: str | None) -> None:
        self.identity: Identity | None = None
        self.expires_at = inf
        self._identify = identify
        self._offered = offered

    async def introduce(self, payload: Mapping[str, Any]) -> None:
        """The token in connection_init, or else the one of the upgrade."""
        offered, self._offered = self._offered, None
        self._speaks(await self._verified(_given(payload) or offered))

    async def renew(self, payload: Mapping[str, Any]) -> None:
        """Go on with the token of a ping.

        It must be the same user's and grant the same: what runs was begun with these rights, and is not asked again.
        """
        renewed = await self._verified(_given(payload))
        if renewed is None or self.identity is None or renewed.user_id != self.identity.user_id:
            raise ProtocolError(
                4403, "Forbidden: the new token is not of the user who connected; connect again with it."
            )
        if (renewed.role, renewed.email) != (self.identity.role, self.identity.email):
            raise ProtocolError(4403, "Forbidden: the new token grants other rights; connect again with it.")
        self._speaks(renewed)

    def _speaks(self, identity: Identity | None) -> None:
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
    """Whether a ping brings a token, of whatever kind."""
    return any(_is_authorization(key) for key in payload)


def without_authorization(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What may be sent back of a payload."""
    return {key: value for key, value in payload.items() if not _is_authorization(key)}


def _given(payload: Mapping[str, Any]) -> object:
    """The one there is: several are a list, which is no token."""
    values = [value for key, value in payload.items() if _is_authorization(key)]
    return values[0] if len(values) == 1 else values or None


def _is_authorization(key: str) -> bool:
    return key.lower() == AUTHORIZATION
