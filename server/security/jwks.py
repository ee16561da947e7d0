"""JWKS: the public keys that verify tokens, from a URL that publishes a key set (RFC 7517)."""

import ipaddress
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from datastore.errors import Unauthenticated, Unavailable
from datastore.primitives.single_flight import SingleFlight

if TYPE_CHECKING:
    import aiohttp

OpenSession = Callable[[], "aiohttp.ClientSession"]

# A key set is refreshed in the background after the first time, and before use after the second: requests do not wait
# while there is traffic.
KEYS_AHEAD_SECONDS = 300.0
KEYS_FRESH_SECONDS = 600.0
KEYS_RETRY_SECONDS = 30.0
# Without keys no token can be verified, so that the next attempt comes sooner.
KEYS_RETRY_EMPTY_SECONDS = 1.0
KEYS_FETCH_SECONDS = 3.0
MAX_BYTES = 262_144
MAX_KEYS = 100
# RFC 7518, 3.3 requires at least 2048 bits; verification with huge keys is slow.
RSA_BITS = range(2048, 8193)

_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the algorithms that may be used with it."""

    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The public keys at a JWKS URL: cached, rotated, and kept while the URL fails.

    One fetch runs at a time, at most one in `KEYS_RETRY_SECONDS`. While the URL fails, a known key is returned without
    waiting; an unknown key waits for the next fetch.
    """

    def __init__(self, url: str, open_session: OpenSession, clock: Callable[[], float]) -> None:
        self._url = url
        self._open_session = open_session
        self._clock = clock
        self._keys: dict[str | None, VerificationKey] = {}
        self._fetched_at = -math.inf
        self._attempted_at = -math.inf
        self._failing = False
        self._fetches = SingleFlight[str, None]()
        if not _is_private(url):
            _log.warning(
                "The key set is fetched over plain HTTP: an attacker on the network can forge tokens. Use https."
            )

    @property
    def fresh_until(self) -> float:
        """The time until which verified tokens stay valid in a cache, in epoch seconds."""
        return self._fetched_at + KEYS_FRESH_SECONDS

    async def find(self, kid: str | None) -> VerificationKey:
        """Return the key with this id; without an id, the only key. Raises `Unauthenticated` or `Unavailable`."""
        age = self._clock() - self._fetched_at
        if self._lookup(kid) is None or (age >= KEYS_FRESH_SECONDS and not self._failing):
            if self._may_fetch():
                await self._fetches.join(self._url, self._fetch)
        elif age >= KEYS_AHEAD_SECONDS and self._may_fetch():
            self._fetches.start(self._url, self._fetch)
        key = self._lookup(kid)
        if key is not None:
            return key
        if not self._keys:
            raise Unavailable(
                "The keys that verify tokens cannot be fetched at the moment.",
                retryAfter=KEYS_RETRY_EMPTY_SECONDS,
            )
        raise Unauthenticated("The token is signed with an unknown key (kid).")

    def _lookup(self, kid: str | None) -> VerificationKey | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if kid is not None else None

    def _may_fetch(self) -> bool:
        """Return whether a fetch is running, or may begin."""
        pause = KEYS_RETRY_SECONDS if self._keys else KEYS_RETRY_EMPTY_SECONDS
        return self._url in self._fetches or self._clock() >= self._attempted_at + pause

    async def _fetch(self) -> None:
        import aiohttp  # imported late: many gateways fetch no keys

        self._attempted_at, self._failing = self._clock(), True
        try:
            keys = _usable_keys(await self._download())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.warning("The key set could not be fetched: %s", error or type(error).__name__)
        except Exception:
            # Whatever the URL publishes, the known keys stay valid.
            _log.exception("The key set could not be read")
        else:
            self._accept(keys)

    def _accept(self, keys: dict[str | None, VerificationKey]) -> None:
        if not keys:
            _log.warning("The key set has no usable key; the known keys stay in use.")
            return
        self._keys, self._fetched_at, self._failing = keys, self._clock(), False

    async def _download(self) -> object:
        """Return the document at the URL. Do not follow redirects: the target could serve its own keys."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=KEYS_FETCH_SECONDS)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with self._open_session().get(
            self._url, timeout=limit, headers=headers, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise ValueError(f"the response has status {response.status}")
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise ValueError(f"larger than {MAX_BYTES:,} bytes")
            return orjson.loads(content)


def _is_private(url: str) -> bool:
    """Return whether the transport is protected: https, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _usable_keys(document: object) -> dict[str | None, VerificationKey]:
    """Return the signing keys of a JWKS document by their ids; of equal ids the first key."""
    keys: dict[str | None, VerificationKey] = {}
    for kid, key in _signing_keys(document):
        if kid in keys:
            _log.warning("The key set has several keys with one id (kid): the first is used.")
        keys.setdefault(kid, key)
    return keys


def _signing_keys(document: object) -> Iterator[tuple[str | None, VerificationKey]]:
    """Yield the usable keys: not symmetric, private, for encryption, weak or of an unknown kind."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a JSON Web Key Set")
    if len(entries) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS} keys")
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
            _log.warning("A key of the key set has %d bits: it is ignored.", key.key_size)
            continue
        kid = entry.get("kid")
        yield kid if isinstance(kid, str) else None, VerificationKey(key, algorithms)


def _algorithms_for(entry: Mapping[str, Any]) -> tuple[str, ...]:
    uses = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return ()
    if "d" in entry:
        _log.warning("A key of the key set is private: any client that fetched it can sign tokens. It is ignored.")
        return ()
    kind, curve = entry.get("kty"), entry.get("crv")
    fitting: tuple[str, ...] = ()
    if kind == "RSA":
        fitting = _RSA_ALGORITHMS
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _CURVE_ALGORITHMS:
        fitting = (_CURVE_ALGORITHMS[curve],)
    named = entry.get("alg")
    return fitting if named is None else tuple(name for name in fitting if name == named)
