"""Who a token speaks for, and the many ways in which it does not."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from datastore.errors import Unauthenticated, Unavailable
from edge.identity import MAX_TOKEN_BYTES, Tokens, TokenSettings, bearer
from resolvers.access import Identity, Role

SECRET = "a secret of more than thirty-two bytes"
NOW = 1_800_000_000.0
RSA_ONE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
RSA_TWO = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_ONE = ec.generate_private_key(ec.SECP256R1())


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def signed(secret: str = SECRET, **claims: Any) -> str:
    given = {"sub": "ann", "exp": int(NOW) + 60, **claims}
    return jwt.encode({name: value for name, value in given.items() if value is not None}, secret, algorithm="HS256")


def tokens(clock: Callable[[], float] | None = None, **configured: Any) -> Tokens:
    return Tokens(TokenSettings(secret=SECRET, **configured), clock=clock or Clock())


async def identify(token: str, **configured: Any) -> Identity:
    identity = await tokens(**configured).identify(token)
    assert identity is not None
    return identity


async def refused(token: str, saying: str, **configured: Any) -> None:
    with pytest.raises(Unauthenticated, match=saying) as caught:
        await tokens(**configured).identify(token)
    assert token not in str(caught.value)


def raw(header: Any, payload: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), payload if isinstance(payload, bytes) else json.dumps(payload).encode()]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


async def test_no_token_is_nobody() -> None:
    assert await tokens().identify(None) is None


async def test_an_issued_token_comes_back_as_its_identity() -> None:
    clock = Clock()
    keeper = tokens(clock, issuer="us", audience="gateway")
    token = keeper.issue("ann", Role.ADMIN, "ann@example.org", lifetime=60)
    assert await keeper.identify(token) == Identity("ann", Role.ADMIN, "ann@example.org", NOW + 60)


async def test_expiry_counts_with_leeway_also_for_a_cached_token() -> None:
    clock = Clock()
    keeper = tokens(clock)
    token = keeper.issue("ann", Role.USER, lifetime=60)
    for elapsed in (0, 59, 64.9):
        clock.now = NOW + elapsed
        assert await keeper.identify(token)
    clock.now = NOW + 65
    with pytest.raises(Unauthenticated, match="expired"):
        await keeper.identify(token)


@pytest.mark.parametrize(
    ("claims", "saying"),
    [
        ({"exp": None}, "no expiry"),
        ({"exp": NOW - 6}, "expired"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": [1]}, "exp is not a time"),
        ({"nbf": NOW + 6}, "not valid yet"),
        ({"nbf": "later"}, "nbf is not a time"),
        ({"sub": None}, "no subject"),
        ({"sub": ""}, "no subject"),
        ({"sub": "  "}, "no subject"),
        ({"sub": "x" * 257}, "longer than 256"),
    ],
)
async def test_claims_that_do_not_hold(claims: dict[str, Any], saying: str) -> None:
    await refused(signed(**claims), saying)


@pytest.mark.parametrize(
    "payload", [b"NaN", b"[1]", b"{", b"\xff", b'{"sub":"a","exp":NaN}', b'{"exp":1e999,"sub":"a"}']
)
async def test_a_signed_payload_that_is_no_set_of_claims(payload: bytes) -> None:
    await refused(jwt.PyJWS().encode(payload, SECRET, algorithm="HS256"), "token")


async def test_endless_expiry_is_no_expiry() -> None:
    await refused(jwt.PyJWS().encode(b'{"sub":"a","exp":' + b"9" * 5000 + b"}", SECRET, algorithm="HS256"), "token")


async def test_not_before_has_leeway() -> None:
    assert await identify(signed(nbf=NOW + 4))


async def test_issuer_and_audience_are_checked_when_configured() -> None:
    assert await identify(signed(iss="us", aud=["x", "gateway"]), issuer="us", audience="gateway")
    await refused(signed(iss="them"), "issuer", issuer="us")
    await refused(signed(), "issuer", issuer="us")
    await refused(signed(aud="other"), "audience", audience="gateway")
    await refused(signed(), "audience", audience="gateway")


async def test_cognito_access_tokens_name_the_app_in_client_id() -> None:
    assert await identify(signed(client_id="gateway"), audience="gateway")
    await refused(signed(client_id="other"), "audience", audience="gateway")
    await refused(signed(client_id="gateway", aud="other"), "audience", audience="gateway")


@pytest.mark.parametrize(
    ("claim", "role"),
    [
        ("admin", Role.ADMIN),
        ("system", Role.SYSTEM),
        ("root", Role.USER),
        (None, Role.USER),
        (["user", "system", "admin"], Role.ADMIN),
        (["readers", "system"], Role.SYSTEM),
        ([], Role.USER),
        ([{}, 1], Role.USER),
        ({"admin": True}, Role.USER),
    ],
)
async def test_the_strongest_known_role_counts(claim: Any, role: Role) -> None:
    assert (await identify(signed(role=claim))).role is role
    assert (await identify(signed(**{"cognito:groups": claim}), role_claim="cognito:groups")).role is role


@pytest.mark.parametrize(
    ("verified", "email"), [(True, "a@b.c"), ("true", "a@b.c"), (False, None), ("yes", None), (1, None), (None, None)]
)
async def test_email_counts_only_when_verified(verified: Any, email: str | None) -> None:
    assert (await identify(signed(email="a@b.c", email_verified=verified))).email == email


async def test_forged_tokens() -> None:
    claims = {"sub": "ann", "exp": NOW + 60}
    await refused(signed("another secret of more than thirty-two bytes"), "signature")
    await refused(raw({"alg": "none"}, claims), "algorithm")
    await refused(raw({"alg": "HS512"}, claims), "algorithm")
    await refused(jwt.encode(claims, RSA_ONE, algorithm="RS256"), "algorithm")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "..",
        "é" * 10,
        "a.b.c.d",
        raw([], {}),
        raw({}, {}),
        raw({"alg": 1}, {}),
        raw({"alg": "HS256"}, {}),
        raw({"alg": "HS256", "crit": ["x"]}, {}),
        raw({"alg": ["HS256"]}, {}),
        "." + "[" * 6000 + ".",
        base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.x",
    ],
)
async def test_malformed_tokens(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens().identify(token)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_refused_politely(token: str) -> None:
    with pytest.raises(Unauthenticated):
        asyncio.run(tokens().identify(token))


async def test_long_tokens_are_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("parsed"))
    await refused("x" * (MAX_TOKEN_BYTES + 1), "longer than")


async def test_a_hot_token_costs_no_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = tokens()
    token = signed()
    first = await keeper.identify(token)
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("verified again"))
    assert await keeper.identify(token) is first


async def test_the_cache_is_bounded() -> None:
    keeper = tokens()
    for number in range(2100):
        await keeper.identify(signed(sub=f"u{number}"))
    assert len(keeper._verified) == 2048


def test_settings_that_cannot_be_safe() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSettings(secret="short")
    with pytest.raises(ValueError, match="not both"):
        TokenSettings(secret=SECRET, jwks_url="https://x")
    with pytest.raises(ValueError, match="session"):
        Tokens(TokenSettings(jwks_url="https://x"))


async def test_without_settings_no_token_is_good() -> None:
    with pytest.raises(Unauthenticated, match="not configured"):
        await Tokens(TokenSettings()).identify(signed())


def test_bearer() -> None:
    assert bearer(None) is None
    assert bearer("") is None
    assert bearer("bEaReR  abc ") == "abc"
    for wrong in ("Basic abc", "Bearer", "Bearer ", "abc"):
        with pytest.raises(Unauthenticated, match="Bearer <token>"):
            bearer(wrong)


class Publisher:
    """A JWKS URL whose keys and moods the tests change."""

    url = ""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.fetches = 0
        self.status = 200
        self.delay = 0.0

    async def answer(self, _request: web.Request) -> web.Response:
        self.fetches += 1
        await asyncio.sleep(self.delay)
        return web.json_response({"keys": self.keys}, status=self.status)


def published(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def with_key(key: Any, kid: str | None, algorithm: str = "RS256") -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode({"sub": "ann", "exp": int(NOW) + 10_000}, key, algorithm=algorithm, headers=headers)


def signed_with_public_key(key: rsa.RSAPrivateKey, header: dict[str, str]) -> str:
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = raw(header, {"sub": "ann", "exp": NOW + 60}).rstrip(".")
    digest = hmac.new(pem, unsigned.encode(), "sha256").digest()
    return f"{unsigned}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    publisher = Publisher()
    app = web.Application()
    app.router.add_get("/jwks", publisher.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    publisher.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    yield publisher
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(publisher: Publisher, session: aiohttp.ClientSession, clock: Clock) -> Tokens:
    return Tokens(TokenSettings(jwks_url=publisher.url), open_session=lambda: session, clock=clock)


async def test_keys_are_fetched_once_and_by_type(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r", alg="RS256", use="sig"), published(EC_ONE, "e")]
    assert await keeper.identify(with_key(RSA_ONE, "r"))
    assert await keeper.identify(with_key(EC_ONE, "e", "ES256"))
    assert publisher.fetches == 1


async def test_the_algorithm_is_the_keys_and_never_the_tokens(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r", alg="RS256"), {"kty": "oct", "k": "c2VjcmV0", "kid": "o"}]
    confused = signed_with_public_key(RSA_ONE, {"alg": "HS256", "kid": "r"})
    for token in (confused, with_key(RSA_ONE, "r", "RS512"), raw({"alg": "none", "kid": "r"}, {"sub": "ann"})):
        with pytest.raises(Unauthenticated, match="algorithm"):
            await keeper.identify(token)
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(jwt.encode({"sub": "a"}, "secret" * 6, algorithm="HS256", headers={"kid": "o"}))


async def test_keys_for_encryption_and_unknown_kinds_are_left_out(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r", use="enc"), {"kty": "new"}, {"kty": "EC", "crv": "P-256"}]
    publisher.keys += [published(RSA_TWO, "two"), published(EC_ONE, "e", alg="RS256")]
    assert await keeper.identify(with_key(RSA_TWO, "two"))
    for token in (with_key(RSA_ONE, "r"), with_key(EC_ONE, "e", "ES256")):
        with pytest.raises(Unauthenticated, match="unknown key"):
            await keeper.identify(token)


async def test_a_token_without_kid_is_checked_with_the_only_key(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r")]
    assert await keeper.identify(with_key(RSA_ONE, None))


async def test_rotation(publisher: Publisher, keeper: Tokens, clock: Clock) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    old, new = with_key(RSA_ONE, "one"), with_key(RSA_TWO, "two")
    assert await keeper.identify(old)
    publisher.keys = [published(RSA_TWO, "two")]
    clock.now += 31
    assert await keeper.identify(new)
    clock.now += 601
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(old)


async def test_unknown_kids_cause_one_fetch_in_thirty_seconds(
    publisher: Publisher, keeper: Tokens, clock: Clock
) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    for number in range(10):
        with pytest.raises(Unauthenticated, match="unknown key"):
            await keeper.identify(with_key(RSA_TWO, f"made up {number}"))
    assert publisher.fetches == 1
    clock.now += 30
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(with_key(RSA_TWO, "made up"))
    assert publisher.fetches == 2


async def test_old_keys_outlive_a_failing_url(publisher: Publisher, keeper: Tokens, clock: Clock) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    await keeper.identify(with_key(RSA_ONE, "one"))
    for publisher.status, publisher.keys in ((500, []), (200, [])):
        clock.now += 700
        assert await keeper.identify(with_key(RSA_ONE, "one"))
    assert publisher.fetches == 3


async def test_without_any_key_the_caller_may_come_again(publisher: Publisher, keeper: Tokens, clock: Clock) -> None:
    publisher.status = 500
    for _ in range(3):
        with pytest.raises(Unavailable):
            await keeper.identify(with_key(RSA_ONE, "one"))
    assert publisher.fetches == 1
    publisher.status, publisher.keys = 200, [published(RSA_ONE, "one")]
    clock.now += 1
    assert await keeper.identify(with_key(RSA_ONE, "one"))


async def test_callers_share_a_fetch_and_may_leave(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys, publisher.delay = [published(RSA_ONE, "one")], 0.05
    token = with_key(RSA_ONE, "one")
    callers = [asyncio.create_task(keeper.identify(token)) for _ in range(5)]
    await asyncio.sleep(0.01)
    callers[0].cancel()
    rest = await asyncio.gather(*callers[1:])
    assert all(rest)
    assert publisher.fetches == 1


async def test_time_comes_from_the_system_by_default() -> None:
    keeper = Tokens(TokenSettings(secret=SECRET))
    identity = await keeper.identify(keeper.issue("ann", Role.USER, lifetime=60))
    assert identity is not None
    assert identity.expires_at == pytest.approx(time.time() + 60, abs=2)
