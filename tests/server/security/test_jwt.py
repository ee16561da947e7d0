"""The identity of a token, and the many ways in which a token is invalid."""

import asyncio
import base64
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.errors import Unauthenticated
from datastore.model.identity import Identity, Role
from server.security.jwt import MAX_TOKEN_BYTES, Tokens, TokenSettings, bearer_token
from tests.support.issuers import NOW, RSA_ONE, SECRET, IssuerClock, hashed, published, raw_token, signed


def tokens_with(clock: Callable[[], float] | None = None, **configured: Any) -> Tokens:
    return Tokens(TokenSettings(secret=SECRET, **configured), clock=clock or IssuerClock())


async def identify_token(token: str, **configured: Any) -> Identity:
    identity = await tokens_with(**configured).identify(token)
    assert identity is not None
    return identity


async def assert_refused_token(token: str, saying: str, **configured: Any) -> None:
    with pytest.raises(Unauthenticated, match=saying) as caught:
        await tokens_with(**configured).identify(token)
    assert token not in str(caught.value)


async def test_without_a_token_the_caller_is_anonymous() -> None:
    assert await tokens_with().identify(None) is None


async def test_an_issued_token_identifies_its_user() -> None:
    clock = IssuerClock()
    keeper = tokens_with(clock, issuer="us", audience="gateway")
    token = keeper.issue("ann", Role.ADMIN, "ann@example.org", lifetime=60)
    assert await keeper.identify(token) == Identity("ann", Role.ADMIN, "ann@example.org", NOW + 60)


async def test_expiry_counts_with_leeway_also_for_a_cached_token() -> None:
    clock = IssuerClock()
    keeper = tokens_with(clock)
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
    await assert_refused_token(signed(**claims), saying)


@pytest.mark.parametrize(
    "payload", [b"NaN", b"[1]", b"{", b"\xff", b'{"sub":"a","exp":NaN}', b'{"exp":1e999,"sub":"a"}']
)
async def test_a_signed_payload_that_is_no_set_of_claims(payload: bytes) -> None:
    await assert_refused_token(jwt.PyJWS().encode(payload, SECRET, algorithm="HS256"), "token")


async def test_endless_expiry_is_no_expiry() -> None:
    await assert_refused_token(
        jwt.PyJWS().encode(b'{"sub":"a","exp":' + b"9" * 5000 + b"}", SECRET, algorithm="HS256"), "token"
    )


async def test_not_before_has_leeway() -> None:
    assert await identify_token(signed(nbf=NOW + 4))


async def test_issuer_and_audience_are_checked_when_configured() -> None:
    assert await identify_token(signed(iss="us", aud=["x", "gateway"]), issuer="us", audience="gateway")
    await assert_refused_token(signed(iss="them"), "issuer", issuer="us")
    await assert_refused_token(signed(), "issuer", issuer="us")
    await assert_refused_token(signed(aud="other"), "audience", audience="gateway")
    await assert_refused_token(signed(), "audience", audience="gateway")


async def test_cognito_access_tokens_name_the_app_in_client_id() -> None:
    assert await identify_token(signed(client_id="gateway"), audience="gateway")
    await assert_refused_token(signed(client_id="other"), "audience", audience="gateway")
    await assert_refused_token(signed(client_id="gateway", aud="other"), "audience", audience="gateway")


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
    assert (await identify_token(signed(role=claim))).role is role
    assert (await identify_token(signed(**{"cognito:groups": claim}), role_claim="cognito:groups")).role is role


@pytest.mark.parametrize(
    ("verified", "email"), [(True, "a@b.c"), ("true", "a@b.c"), (False, None), ("yes", None), (1, None), (None, None)]
)
async def test_email_counts_only_when_verified(verified: Any, email: str | None) -> None:
    assert (await identify_token(signed(email="a@b.c", email_verified=verified))).email == email


async def test_forged_tokens() -> None:
    claims = {"sub": "ann", "exp": NOW + 60}
    await assert_refused_token(signed("another secret of more than thirty-two bytes"), "signature")
    await assert_refused_token(raw_token({"alg": "none"}, claims), "algorithm")
    await assert_refused_token(raw_token({"alg": "HS512"}, claims), "algorithm")
    await assert_refused_token(jwt.encode(claims, RSA_ONE, algorithm="RS256"), "algorithm")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "..",
        "é" * 10,
        "a.b.c.d",
        raw_token([], {}),
        raw_token({}, {}),
        raw_token({"alg": 1}, {}),
        raw_token({"alg": "HS256"}, {}),
        raw_token({"alg": "HS256", "crit": ["x"]}, {}),
        raw_token({"alg": ["HS256"]}, {}),
        "." + "[" * 6000 + ".",
        base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.x",
    ],
)
async def test_malformed_tokens(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens_with().identify(token)


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "nOnE", "NONE", "", None, 0, [], {}, "HS256 ", "hs256", "HS384", "RS256"]
)
async def test_no_spelling_of_an_algorithm_is_accepted_but_the_secrets(algorithm: Any) -> None:
    claims = {"sub": "ann", "exp": NOW + 60}
    for signature in (b"", b"x" * 32):
        await assert_refused_token(raw_token({"alg": algorithm, "typ": "JWT"}, claims, signature), "algorithm")


async def test_a_key_in_a_header_is_ignored() -> None:
    """Keys, addresses of keys and certificates in a header come from the forger."""
    key = published(RSA_ONE, "r")
    for brought in (
        {"jwk": key},
        {"jku": "https://evil.example/jwks"},
        {"x5u": "https://evil.example"},
        {"x5c": ["MII"]},
    ):
        claims = {"sub": "ann", "exp": NOW + 60}
        await assert_refused_token(jwt.encode(claims, RSA_ONE, algorithm="RS256", headers=brought), "algorithm")
        await assert_refused_token(jwt.encode(claims, "f" * 32, algorithm="HS256", headers=brought), "signature")
        # Beside the right signature they have no effect.
        assert await identify_token(jwt.encode(claims, SECRET, algorithm="HS256", headers=brought))


@pytest.mark.parametrize("crit", [["b64"], ["exp"], [], "b64", None])
async def test_extensions_that_must_be_understood_are_not(crit: Any) -> None:
    header = {"alg": "HS256", "crit": crit, "b64": True}
    await assert_refused_token(hashed(header, {"sub": "ann", "exp": NOW + 60}, SECRET.encode()), "crit|well-formed")


@pytest.mark.parametrize(
    "spelled",
    ["{0}=", "{0}==", "{0}===", " {0}", "{0} ", "{0}\n", "{0}.", ".{0}", "{0}A", "{0}\x00", "\ufeff{0}"],
)
async def test_a_token_has_one_spelling(spelled: str) -> None:
    """Almost: a signature may be padded. Each other spelling would take a place of the cache."""
    keeper = tokens_with()
    token = signed()
    assert await keeper.identify(token)
    other = spelled.format(token)
    try:
        known = await keeper.identify(other)
    except Unauthenticated:
        known = None
    assert (known is not None) == (spelled == "{0}=")


async def test_other_bits_behind_the_signature_are_no_other_spelling() -> None:
    """The last character holds unused bits: a lax decoder accepts four spellings of one token."""
    token = signed()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    keeper = tokens_with()
    good = 0
    for last in alphabet:
        try:
            good += await keeper.identify(token[:-1] + last) is not None
        except Unauthenticated:
            continue
    assert good == 1


@pytest.mark.parametrize(
    "payload",
    [
        b'{"sub":"\\ud800","exp":1900000000}',
        b'{"sub":"a","exp":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"sub":"a","exp":1900000000,"x":' + b"[" * 1500 + b"]" * 1500 + b"}",
        b'{"sub":["a"],"exp":1900000000}',
        b'{"sub":{"a":1},"exp":1900000000}',
        b'{"sub":7,"exp":1900000000}',
        b'{"sub":true,"exp":1900000000}',
        b'{"sub":"a","exp":1e400}',
        b'{"sub":"a","exp":-1e400}',
        b'{"sub":"a","exp":Infinity}',
        b'{"sub":"a","exp":"1900000000"}',
        b'{"sub":"a","exp":false}',
        b'{"sub":"a","exp":1900000000,"nbf":1e400}',
        b'{"sub":"a","exp":1900000000,"nbf":true}',
        b'{"sub":"a","exp":-1}',
        b'{"sub":"a","exp":0}',
        b'{"sub":"a","exp":1900000000,"exp":1}',
        b'"sub"',
        b"null",
        b"",
    ],
)
async def test_signed_claims_that_are_refused(payload: bytes) -> None:
    await assert_refused_token(jwt.PyJWS().encode(payload, SECRET, algorithm="HS256"), "token")


async def test_of_doubled_claims_the_last_counts() -> None:
    """RFC 7519, 4: refused, or the last one; an issuer that lets clients write claims has lost anyway."""
    doubled = b'{"sub":"a","sub":"b","exp":1900000000,"role":"admin","role":"user"}'
    who = await identify_token(jwt.PyJWS().encode(doubled, SECRET, algorithm="HS256"))
    assert (who.user_id, who.role) == ("b", Role.USER)


async def test_when_a_token_was_issued_does_not_matter() -> None:
    """`nbf` states when a token begins; clocks of issuers run ahead."""
    assert await identify_token(signed(iat=NOW + 3600))


@pytest.mark.parametrize(
    "audience", [None, 5, True, {"gateway": 1}, ["gate", "way"], [["gateway"]], "gateway ", "GATEWAY"]
)
async def test_audiences_that_are_not_ours(audience: Any) -> None:
    token = jwt.PyJWS().encode(
        json.dumps({"sub": "a", "exp": NOW + 60, "aud": audience, "client_id": "gateway"}).encode(),
        SECRET,
        algorithm="HS256",
    )
    await assert_refused_token(token, "audience", audience="gateway")


@pytest.mark.parametrize("issuer", ["us/", "US", ["us"], {"us": 1}, "", 0])
async def test_issuers_that_are_not_ours(issuer: Any) -> None:
    token = jwt.PyJWS().encode(
        json.dumps({"sub": "a", "exp": NOW + 60, "iss": issuer}).encode(), SECRET, algorithm="HS256"
    )
    await assert_refused_token(token, "issuer", issuer="us")


@pytest.mark.parametrize(
    "token",
    [
        "." * 8000,
        "." * 10_000,
        "a." * 4000,
        "a.b.c.d.e",
        raw_token({"alg": "dir", "enc": "A256GCM", "zip": "DEF"}, {}) + ".a.b",
    ],
)
async def test_tokens_of_other_shapes(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens_with().identify(token)


async def test_a_compressed_payload_is_not_inflated() -> None:
    bomb = zlib.compress(b"[" * 1_000_000)
    await assert_refused_token(
        jwt.PyJWS().encode(bomb, SECRET, algorithm="HS256", headers={"zip": "DEF"}), "well-formed"
    )


async def test_wide_characters_count_by_their_bytes() -> None:
    """3,000 of them are 12,000 bytes; none is part of a token anyway."""
    await assert_refused_token("😀" * 3000, "longer than|well-formed")
    await assert_refused_token("\ud800" * 10, "well-formed")


async def test_a_refused_token_is_not_cached() -> None:
    keeper = tokens_with()
    for number in range(50):
        with pytest.raises(Unauthenticated):
            await keeper.identify(signed("f" * 40, sub=f"u{number}"))
        with pytest.raises(Unauthenticated):
            await keeper.identify(signed(sub=f"u{number}", exp=NOW - 60))
    assert not keeper._verified


async def test_an_expired_token_gives_its_place_back() -> None:
    clock = IssuerClock()
    keeper = tokens_with(clock)
    token = signed()
    await keeper.identify(token)
    clock.now += 66
    with pytest.raises(Unauthenticated, match="expired"):
        await keeper.identify(token)
    assert not keeper._verified


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_refused_politely(token: str) -> None:
    with pytest.raises(Unauthenticated):
        asyncio.run(tokens_with().identify(token))


async def test_long_tokens_are_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("parsed"))
    await assert_refused_token("x" * (MAX_TOKEN_BYTES + 1), "longer than")


async def test_a_hot_token_costs_no_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = tokens_with()
    token = signed()
    first = await keeper.identify(token)
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("verified again"))
    assert await keeper.identify(token) is first


async def test_the_cache_is_bounded() -> None:
    keeper = tokens_with()
    for number in range(2100):
        await keeper.identify(signed(sub=f"u{number}"))
    assert len(keeper._verified) == 2048


def test_settings_that_cannot_be_safe() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSettings(secret="short")
    with pytest.raises(ValueError, match="not both"):
        TokenSettings(secret=SECRET, jwks_url="https://x")
    with pytest.raises(ValueError, match=r"http\(s\)"):
        TokenSettings(jwks_url="file:///etc/passwd")
    with pytest.raises(ValueError, match="session"):
        Tokens(TokenSettings(jwks_url="https://x"))


async def test_without_settings_no_token_is_good() -> None:
    with pytest.raises(Unauthenticated, match="not configured"):
        await Tokens(TokenSettings()).identify(signed())


def test_bearer() -> None:
    assert bearer_token(None) is None
    assert bearer_token("") is None
    assert bearer_token("bEaReR  abc ") == "abc"
    for wrong in ("Basic abc", "Bearer", "Bearer ", "abc", "Bearer a b", "Bearer a, Bearer b", "Bearer é", "Bearer\ta"):
        with pytest.raises(Unauthenticated, match="Bearer <token>"):
            bearer_token(wrong)


async def test_time_comes_from_the_system_by_default() -> None:
    keeper = Tokens(TokenSettings(secret=SECRET))
    identity = await keeper.identify(keeper.issue("ann", Role.USER, lifetime=60))
    assert identity is not None
    assert identity.expires_at == pytest.approx(time.time() + 60, abs=2)
