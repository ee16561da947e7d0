"""Verification of bearer tokens (JWT): signatures and claims, and the identity of a token."""

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jwt
import orjson

from datastore.errors import Unauthenticated
from datastore.model.identifiers import MAX_USER_ID_BYTES, user_id_fits
from datastore.model.identity import Identity, Role
from datastore.model.text_characters import has_forbidden_characters
from datastore.primitives.lru_cache import LruCache
from server.security.jwks import KEYS_RETRY_SECONDS, KeySet, OpenSession, VerificationKey

MAX_TOKEN_BYTES = 8192
CACHED_TOKENS = 2048
CACHED_SECONDS = 600.0
# RFC 7518, 3.2: an HS256 secret is at least as long as the hash.
MIN_SECRET_BYTES = 32

_STRONGEST_FIRST = (Role.ADMIN, Role.SYSTEM, Role.USER)
# RFC 6750, 2.1
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_signatures = jwt.PyJWS()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The tokens that are accepted: signed with `secret` or `other_secrets` (HS256), or with a key at `jwks_url`."""

    secret: str | None = None
    other_secrets: tuple[str, ...] = ()
    jwks_url: str | None = None
    issuer: str | None = None
    audience: str | None = None
    role_claim: str = "role"
    leeway: float = 5.0

    def __post_init__(self) -> None:
        if self.secret is not None and self.jwks_url is not None:
            raise ValueError("Configure a secret or a JWKS URL, not both: a token must have one way to be valid.")
        if any(len(secret.encode()) < MIN_SECRET_BYTES for secret in self.accepted):
            raise ValueError(f"The token secret needs at least {MIN_SECRET_BYTES} bytes.")
        if self.jwks_url is not None and not self.jwks_url.startswith(("http://", "https://")):
            raise ValueError("The JWKS URL must be an http(s) URL.")

    @property
    def accepted(self) -> tuple[str, ...]:
        """The secrets that verify tokens."""
        return () if self.secret is None else (self.secret, *self.other_secrets)


def bearer_token(authorization: str | None) -> str | None:
    """Return the token in an `Authorization` header; None without the header. Raises `Unauthenticated`."""
    if authorization is None or not authorization.strip():
        return None
    scheme, _, token = authorization.strip().partition(" ")
    # A longer token is not matched here: it is refused for its length later.
    if scheme.lower() != "bearer" or not (len(token) > MAX_TOKEN_BYTES or _TOKEN.fullmatch(token.strip())):
        raise Unauthenticated("The Authorization header must read: Bearer <token>.")
    return token.strip()


#: Returns the identity of a token, None without a token. Raises `Unauthenticated`.
Identify = Callable[[str | None], Awaitable[Identity | None]]


class Tokens:
    """The verifier of tokens, with a cache of verified ones until they expire."""

    def __init__(
        self,
        settings: TokenSettings,
        *,
        open_session: OpenSession | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if settings.jwks_url is not None and open_session is None:
            raise ValueError("A JWKS URL needs an HTTP session to fetch it with.")
        self._settings = settings
        self._clock = clock
        self._secrets = [VerificationKey(secret, ("HS256",)) for secret in settings.accepted]
        self._keys = KeySet(settings.jwks_url, open_session, clock) if settings.jwks_url and open_session else None
        self._verified = LruCache[str, tuple[Identity, float]](CACHED_TOKENS)

    async def identify(self, token: str | None) -> Identity | None:
        """Return the identity of a token. Raises `Unauthenticated` with the reason, which never contains the token."""
        if token is None:
            return None
        return self.cached_identity(token) or await self._verify(token)

    def cached_identity(self, token: str) -> Identity | None:
        """Return the cached identity of a verified token that is still valid."""
        # The least recently verified token is evicted: each is verified again soon anyway.
        found = self._verified.peek(token)
        if found is None or self._clock() >= found[1]:
            return None
        return found[0]

    def issue(self, user_id: str, role: Role, email: str | None = None, lifetime: float = 3600.0) -> str:
        """Sign a token with the secret, for the command line and for tests."""
        if self._settings.secret is None:
            raise ValueError("Tokens can only be issued with a secret.")
        now = int(self._clock())
        claims: dict[str, Any] = {"sub": user_id, self._settings.role_claim: role.value, "iat": now}
        claims["exp"] = now + int(lifetime)
        optional = {"iss": self._settings.issuer, "aud": self._settings.audience, "email": email}
        claims.update({name: value for name, value in optional.items() if value is not None})
        if email is not None:
            claims["email_verified"] = True
        return jwt.encode(claims, self._settings.secret, algorithm="HS256")

    async def _verify(self, token: str) -> Identity:
        self._verified.pop(token)
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated(f"The token is longer than {MAX_TOKEN_BYTES:,} bytes.")
        claims = _signed_claims(token, await self._keys_of(_header(token)))
        now = self._clock()
        expires_at = _check_times(claims, now, self._settings.leeway)
        self._check_parties(claims)
        identity = _identity(claims, self._settings.role_claim, expires_at)
        self._verified.put(token, (identity, min(expires_at + self._settings.leeway, self._cached_until(now))))
        return identity

    def _cached_until(self, now: float) -> float:
        """Return the time at which a verified token is verified again, because its key may have been withdrawn."""
        if self._keys is None:
            return now + CACHED_SECONDS
        return max(self._keys.fresh_until, now + KEYS_RETRY_SECONDS)

    async def _keys_of(self, header: Mapping[str, Any]) -> list[VerificationKey]:
        """Return the candidate keys. The token's header never adds a key or an algorithm."""
        if self._secrets:
            return self._secrets
        if self._keys is None:
            raise Unauthenticated("This gateway is not configured to accept tokens.")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("The token's key id (kid) is not a string.")
        return [await self._keys.find(kid)]

    def _check_parties(self, claims: Mapping[str, Any]) -> None:
        if self._settings.issuer is not None and claims.get("iss") != self._settings.issuer:
            raise Unauthenticated("The token comes from another issuer (iss).")
        if self._settings.audience is not None and self._settings.audience not in _audiences(claims):
            raise Unauthenticated("The token is meant for another audience (aud).")


def _header(token: str) -> Mapping[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("The token is not a well-formed JWT.") from None
    if "crit" in header:
        # RFC 7515, 4.1.11: an extension that is critical and not supported makes a token invalid.
        raise Unauthenticated("The token needs extensions (crit) that are not supported here.")
    return header


def _signed_claims(token: str, keys: Sequence[VerificationKey]) -> dict[str, Any]:
    *others, last = keys
    try:
        for key in others:
            with suppress(jwt.InvalidSignatureError):
                return _claims(token, key)
        return _claims(token, last)
    except jwt.InvalidAlgorithmError:
        raise Unauthenticated("The token is signed with an algorithm that is not accepted.") from None
    except jwt.InvalidSignatureError:
        raise Unauthenticated("The token's signature is wrong.") from None
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("The token is not a well-formed JWT.") from None


def _claims(token: str, key: VerificationKey) -> dict[str, Any]:
    """Return the claims of a token that is signed with this key. Raises PyJWT's errors."""
    claims = orjson.loads(_signatures.decode_complete(token, key.key, algorithms=list(key.algorithms))["payload"])
    if not isinstance(claims, dict):
        raise Unauthenticated("The token's claims are not an object.")
    return claims


def _check_times(claims: Mapping[str, Any], now: float, leeway: float) -> float:
    expires_at = _epoch(claims, "exp")
    if expires_at is None:
        raise Unauthenticated("The token has no expiry (exp).")
    if now >= expires_at + leeway:
        raise Unauthenticated("The token has expired.")
    not_before = _epoch(claims, "nbf")
    if not_before is not None and now < not_before - leeway:
        raise Unauthenticated("The token is not valid yet (nbf).")
    return expires_at


def _epoch(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unauthenticated(f"The token's {name} is not a time.")
    return float(value)


def _audiences(claims: Mapping[str, Any]) -> list[Any]:
    # Cognito's access tokens name the app in client_id and carry no aud.
    audience = claims["aud"] if "aud" in claims else claims.get("client_id")
    return audience if isinstance(audience, list) else [audience]


def _identity(claims: Mapping[str, Any], role_claim: str, expires_at: float) -> Identity:
    user_id = claims.get("sub")
    if not isinstance(user_id, str) or not user_id.strip():
        raise Unauthenticated("The token names no subject (sub).")
    if not user_id_fits(user_id):
        raise Unauthenticated(f"The token's subject (sub) is longer than {MAX_USER_ID_BYTES} bytes of UTF-8.")
    if has_forbidden_characters(user_id):
        raise Unauthenticated("The token's subject (sub) holds control characters or invisible ones.")
    return Identity(user_id, _role(claims.get(role_claim)), _verified_email(claims), expires_at)


def _role(claim: object) -> Role:
    claimed = claim if isinstance(claim, list) else [claim]
    return next((role for role in _STRONGEST_FIRST if role.value in claimed), Role.USER)


def _verified_email(claims: Mapping[str, Any]) -> str | None:
    email, verified = claims.get("email"), claims.get("email_verified")
    if not isinstance(email, str) or not email:
        return None
    return email if verified is True or verified == "true" else None
