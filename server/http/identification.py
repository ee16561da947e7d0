"""The identity in the Authorization header of an HTTP request."""

from datastore.errors import Unauthenticated, Unavailable
from datastore.model.identity import Identity
from server.http.responses import Refused
from server.security.jwt import Identify, bearer_token


async def identified(identify: Identify, authorization: str) -> Identity | None:
    """Return the identity in an Authorization header.

    Raises:
        Refused: the token is invalid (401), or cannot be verified at the moment (503).
    """
    try:
        return await identify(bearer_token(authorization))
    except Unauthenticated as error:
        raise Refused(401, error, **{"www-authenticate": "Bearer"}) from None
    except Unavailable as error:
        has_delay = "retryAfter" in error.extensions
        headers = {"retry-after": f"{error.extensions['retryAfter']:g}"} if has_delay else {}
        raise Refused(503, error, **headers) from None
