"""Issuers of tokens: with a secret, with keys published at a URL, and as a forger."""

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

SECRET = "a secret of more than thirty-two bytes"
NOW = 1_800_000_000.0
RSA_ONE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
RSA_TWO = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_ONE = ec.generate_private_key(ec.SECP256R1())


class IssuerClock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def signed(secret: str = SECRET, **claims: Any) -> str:
    given = {"sub": "ann", "exp": int(NOW) + 60, **claims}
    return jwt.encode({name: value for name, value in given.items() if value is not None}, secret, algorithm="HS256")


def raw_token(header: Any, payload: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), payload if isinstance(payload, bytes) else json.dumps(payload).encode()]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


class Publisher:
    """A JWKS URL whose keys and behaviour tests change. `answers`, if set, replaces its keys."""

    url = ""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.fetches = 0
        self.at_once = 0
        self.most_at_once = 0
        self.status = 200
        self.delay = 0.0
        self.answers: web.Response | None = None

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.fetches += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.at_once -= 1
        if self.answers is not None:
            answer, self.answers = self.answers, None
            return answer
        return web.json_response({"keys": self.keys}, status=self.status)


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    """Publish keys at a URL while the context is open."""
    publisher = Publisher()
    app = web.Application()
    app.router.add_get("/{path}", publisher.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    publisher.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    yield publisher
    await runner.cleanup()


def published(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def with_key(key: Any, kid: str | None, algorithm: str = "RS256", sub: str = "ann") -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode({"sub": sub, "exp": int(NOW) + 10_000}, key, algorithm=algorithm, headers=headers)


def hashed(header: Any, claims: Any, secret: bytes) -> str:
    """Return a token with a signature of HS256, whatever its header says."""
    unsigned = raw_token(header, claims).rstrip(".")
    digest = hmac.new(secret, unsigned.encode(), "sha256").digest()
    return f"{unsigned}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def public_spellings(key: rsa.RSAPrivateKey) -> list[bytes]:
    """Return the encodings of a public key that a forger may use as a secret."""
    public = key.public_key()
    spellings = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(published(key, "r")).encode(),
        json.dumps(published(key, "r"), separators=(",", ":")).encode(),
        published(key, "r")["n"].encode(),
    ]
    return spellings + [spelled.rstrip(b"\n") for spelled in spellings[:2]]
