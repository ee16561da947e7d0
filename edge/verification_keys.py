"""The public keys that tokens are checked with, as a JWKS URL publishes them (RFC 7517)."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import jwt
import orjson

from datastore.errors import Unauthenticated, Unavailable

OpenSession = Callable[[], aiohttp.ClientSession]

KEYS_FRESH_SECONDS = 600.0
KEYS_RETRY_SECONDS = 30.0
# Without any key nobody can sign in, so the next try may come sooner.
KEYS_RETRY_EMPTY_SECONDS = 1.0
KEYS_FETCH_SECONDS = 3.0

_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the only algorithms that may be used with it."""

    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The public keys at a JWKS URL: cached, rotated, and kept when the URL fails."""

    def __init__(self, url: str, open_session: OpenSession, clock: Callable[[], float]) -> None:
        self._url = url
        self._open_session = open_session
        self._clock = clock
        self._keys: dict[str | None, VerificationKey] = {}
        self._fetched_at = -math.inf
        self._tried_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> VerificationKey:
        """The key with this id; the only key there is answers for a token that names none."""
        if self._clock() >= self._fetched_at + KEYS_FRESH_SECONDS or self._pick(kid) is None:
            await self._refresh()
        key = self._pick(kid)
        if key is not None:
            return key
        if not self._keys:
            raise Unavailable("The keys that tokens are checked with cannot be fetched at the moment.")
        raise Unauthenticated("The token is signed with an unknown key (kid).")

    def _pick(self, kid: str | None) -> VerificationKey | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if kid is not None else None

    async def _refresh(self) -> None:
        """All callers wait for one fetch; a caller that is cancelled leaves it running for the others."""
        pause = KEYS_RETRY_SECONDS if self._keys else KEYS_RETRY_EMPTY_SECONDS
        if self._fetching is None and self._clock() >= self._tried_at + pause:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._fetch())
        if self._fetching is not None:
            await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        try:
            keys = dict(_usable_keys(await self._download()))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.warning("The key set at %s could not be fetched: %s", self._url, error or type(error).__name__)
        else:
            self._accept(keys)
        finally:
            self._fetching = None

    def _accept(self, keys: dict[str | None, VerificationKey]) -> None:
        if not keys:
            _log.warning("The key set at %s holds no usable key; the known ones are kept.", self._url)
            return
        self._keys, self._fetched_at = keys, self._clock()

    async def _download(self) -> object:
        limit = aiohttp.ClientTimeout(total=KEYS_FETCH_SECONDS)
        async with self._open_session().get(self._url, timeout=limit) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())


def _usable_keys(document: object) -> Iterator[tuple[str | None, VerificationKey]]:
    """The signing keys of a JWKS document; symmetric, encrypting and unknown kinds are left out."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a JSON Web Key Set")
    for entry in entries:
        algorithms = _algorithms_for(entry) if isinstance(entry, dict) else ()
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK(entry, algorithm=algorithms[0]).key
        except (jwt.PyJWTError, ValueError) as error:
            _log.warning("A key of the key set is unusable: %s", type(error).__name__)
            continue
        kid = entry.get("kid")
        yield kid if isinstance(kid, str) else None, VerificationKey(key, algorithms)


def _algorithms_for(entry: Mapping[str, Any]) -> tuple[str, ...]:
    if entry.get("use", "sig") != "sig":
        return ()
    kind, curve = entry.get("kty"), entry.get("crv")
    fitting: tuple[str, ...] = ()
    if kind == "RSA":
        fitting = _RSA_ALGORITHMS
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _CURVE_ALGORITHMS:
        fitting = (_CURVE_ALGORITHMS[curve],)
    named = entry.get("alg")
    return fitting if named is None else tuple(name for name in fitting if name == named)
