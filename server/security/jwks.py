"""The public keys that tokens are checked with, as a JWKS URL publishes them (RFC 7517)."""

import asyncio
import ipaddress
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from datastore.errors import Unauthenticated, Unavailable

OpenSession = Callable[[], aiohttp.ClientSession]

# Read anew in the background after the first, and waited for after the second: requests under load never wait.
KEYS_AHEAD_SECONDS = 300.0
KEYS_FRESH_SECONDS = 600.0
KEYS_RETRY_SECONDS = 30.0
# Without any key nobody can sign in, so the next try may come sooner.
KEYS_RETRY_EMPTY_SECONDS = 1.0
KEYS_FETCH_SECONDS = 3.0
MOST_BYTES = 262_144
MOST_KEYS = 100
# RFC 7518, 3.3 asks for 2048 at least; to verify with huge ones takes long.
RSA_BITS = range(2048, 8193)

_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the only algorithms that may be used with it."""

    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The public keys at a JWKS URL: cached, rotated, and kept when the URL fails.

    One fetch at a time. Who asks for a known key waits for none while the URL fails; who asks for an unknown one waits
    for the next, of which there is one in `KEYS_RETRY_SECONDS`.
    """

    def __init__(self, url: str, open_session: OpenSession, clock: Callable[[], float]) -> None:
        self._url = url
        self._open_session = open_session
        self._clock = clock
        self._keys: dict[str | None, VerificationKey] = {}
        self._fetched_at = -math.inf
        self._tried_at = -math.inf
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None
        if not _is_private(url):
            _log.warning(
                "The key set is fetched over plain HTTP: who sits on the way can make tokens count. Use https."
            )

    @property
    def fresh_until(self) -> float:
        """Until when what was verified with these keys needs no other look, in epoch seconds."""
        return self._fetched_at + KEYS_FRESH_SECONDS

    async def find(self, kid: str | None) -> VerificationKey:
        """The key with this id; the only key there is answers for a token that names none."""
        age = self._clock() - self._fetched_at
        if self._pick(kid) is None or (age >= KEYS_FRESH_SECONDS and not self._failing):
            await self._refresh()
        elif age >= KEYS_AHEAD_SECONDS:
            self._begin_fetch()
        key = self._pick(kid)
        if key is not None:
            return key
        if not self._keys:
            raise Unavailable(
                "The keys that tokens are checked with cannot be fetched at the moment.",
                retryAfter=KEYS_RETRY_EMPTY_SECONDS,
            )
        raise Unauthenticated("The token is signed with an unknown key (kid).")

    def _pick(self, kid: str | None) -> VerificationKey | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if kid is not None else None

    async def _refresh(self) -> None:
        """All callers wait for one fetch; a caller that is cancelled leaves it running for the others."""
        self._begin_fetch()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)

    def _begin_fetch(self) -> None:
        pause = KEYS_RETRY_SECONDS if self._keys else KEYS_RETRY_EMPTY_SECONDS
        if self._fetching is None and self._clock() >= self._tried_at + pause:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._fetch())

    async def _fetch(self) -> None:
        self._failing = True
        try:
            keys = _usable_keys(await self._download())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.warning("The key set could not be fetched: %s", error or type(error).__name__)
        except Exception:
            # Whatever is published there, the known keys go on counting.
            _log.exception("The key set could not be read")
        else:
            self._accept(keys)
        finally:
            self._fetching = None

    def _accept(self, keys: dict[str | None, VerificationKey]) -> None:
        if not keys:
            _log.warning("The key set holds no usable key; the known ones are kept.")
            return
        self._keys, self._fetched_at, self._failing = keys, self._clock(), False

    async def _download(self) -> object:
        """The document. Nowhere else than at the URL: whoever may answer for it would be who is asked."""
        limit = aiohttp.ClientTimeout(total=KEYS_FETCH_SECONDS)
        as_it_is = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with self._open_session().get(
            self._url, timeout=limit, headers=as_it_is, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise ValueError(f"answered with status {response.status}")
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise ValueError(f"larger than {MOST_BYTES:,} bytes")
            return orjson.loads(content)


def _is_private(url: str) -> bool:
    """Whether nobody on the way can change what is fetched: https, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _usable_keys(document: object) -> dict[str | None, VerificationKey]:
    """The signing keys of a JWKS document by their ids. Of two with one id the first counts."""
    keys: dict[str | None, VerificationKey] = {}
    for kid, key in _signing_keys(document):
        if kid in keys:
            _log.warning("The key set has several keys of one id (kid): the first counts.")
        keys.setdefault(kid, key)
    return keys


def _signing_keys(document: object) -> Iterator[tuple[str | None, VerificationKey]]:
    """Symmetric, private, encrypting, weak and unknown kinds are left out."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a JSON Web Key Set")
    if len(entries) > MOST_KEYS:
        raise ValueError(f"more than {MOST_KEYS} keys")
    for entry in entries:
        algorithms = _algorithms_for(entry) if isinstance(entry, dict) else ()
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK(entry, algorithm=algorithms[0]).key
        except (jwt.PyJWTError, ValueError) as error:
            _log.warning("A key of the key set is unusable: %s", type(error).__name__)
            continue
        if isinstance(key, RSAPublicKey) and key.key_size not in RSA_BITS:
            _log.warning("A key of the key set has %d bits: it is left out.", key.key_size)
            continue
        kid = entry.get("kid")
        yield kid if isinstance(kid, str) else None, VerificationKey(key, algorithms)


def _algorithms_for(entry: Mapping[str, Any]) -> tuple[str, ...]:
    uses = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return ()
    if "d" in entry:
        _log.warning("A key of the key set is private: whoever fetched it can sign tokens. It is left out.")
        return ()
    kind, curve = entry.get("kty"), entry.get("crv")
    fitting: tuple[str, ...] = ()
    if kind == "RSA":
        fitting = _RSA_ALGORITHMS
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _CURVE_ALGORITHMS:
        fitting = (_CURVE_ALGORITHMS[curve],)
    named = entry.get("alg")
    return fitting if named is None else tuple(name for name in fitting if name == named)
