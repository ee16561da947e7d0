"""Keys published at a URL: fetched once, rotated, and kept whatever becomes of the URL."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import jwt
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from datastore.errors import Unauthenticated, Unavailable
from server.security.jwt import Tokens, TokenSettings
from tests.support.issuers import (
    EC_ONE,
    NOW,
    RSA_ONE,
    RSA_TWO,
    IssuerClock,
    Publisher,
    hashed,
    public_spellings,
    published,
    publishing,
    raw_token,
    with_key,
)
from tests.support.until import until


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    async with publishing() as publisher:
        yield publisher


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def clock() -> IssuerClock:
    return IssuerClock()


@pytest.fixture
def keeper(publisher: Publisher, session: aiohttp.ClientSession, clock: IssuerClock) -> Tokens:
    return Tokens(TokenSettings(jwks_url=publisher.url), open_session=lambda: session, clock=clock)


async def test_keys_are_fetched_once_and_by_type(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r", alg="RS256", use="sig"), published(EC_ONE, "e")]
    assert await keeper.identify(with_key(RSA_ONE, "r"))
    assert await keeper.identify(with_key(EC_ONE, "e", "ES256"))
    assert publisher.fetches == 1


async def test_the_algorithm_is_the_keys_and_never_the_tokens(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "r", alg="RS256"), {"kty": "oct", "k": "c2VjcmV0", "kid": "o"}]
    for token in (with_key(RSA_ONE, "r", "RS512"), raw_token({"alg": "none", "kid": "r"}, {"sub": "ann"})):
        with pytest.raises(Unauthenticated, match="algorithm"):
            await keeper.identify(token)
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(jwt.encode({"sub": "a"}, "secret" * 6, algorithm="HS256", headers={"kid": "o"}))


async def test_a_public_key_is_no_secret(publisher: Publisher, keeper: Tokens) -> None:
    """The best known attack: HS256, signed with the public key in any of its encodings."""
    publisher.keys = [published(RSA_ONE, "r")]
    for secret in public_spellings(RSA_ONE):
        for algorithm in ("HS256", "HS384", "HS512"):
            forged = hashed({"alg": algorithm, "kid": "r"}, {"sub": "ann", "exp": NOW + 60}, secret)
            with pytest.raises(Unauthenticated, match="algorithm"):
                await keeper.identify(forged)


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


async def test_rotation(publisher: Publisher, keeper: Tokens, clock: IssuerClock) -> None:
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
    publisher: Publisher, keeper: Tokens, clock: IssuerClock
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


@pytest.mark.parametrize(
    "moods",
    [
        {"status": 500},
        {"status": 404},
        {"answers": lambda: web.Response(text="<html>Sorry</html>", content_type="text/html")},
        {"answers": lambda: web.Response(body=b"\xff\xfe")},
        {"answers": lambda: web.json_response({"keys": {}})},
        {"answers": lambda: web.json_response([])},
        {"answers": lambda: web.json_response({"keys": []})},
        {"answers": lambda: web.json_response({"keys": [None, 5, "x", [], {}]})},
        {"answers": lambda: web.json_response({"keys": [published(RSA_ONE, f"k{n}") for n in range(101)]})},
        {"answers": lambda: web.Response(body=_padded(300_000))},
        {"answers": lambda: web.Response(body=b'{"keys":' + b"[" * 100_000)},
        {"answers": lambda: web.Response(status=302, headers={"location": "/elsewhere"})},
        {"answers": lambda: web.Response(status=307, headers={"location": "file:///etc/passwd"})},
        {"answers": lambda: _bomb()},
    ],
    ids=[
        "500",
        "404",
        "html",
        "bytes",
        "object",
        "array",
        "none",
        "junk",
        "too many",
        "too large",
        "deep",
        "redirect",
        "file",
        "bomb",
    ],
)
async def test_old_keys_outlive_whatever_the_url_answers(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock, moods: dict[str, Any]
) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    await keeper.identify(with_key(RSA_ONE, "one"))
    publisher.status = moods.get("status", 200)
    publisher.answers = moods["answers"]() if "answers" in moods else None
    clock.now += 700
    assert await keeper.identify(with_key(RSA_ONE, "one"))
    assert publisher.fetches == 2
    # It recovers by itself, without a waiting request.
    publisher.status, publisher.keys = 200, [published(RSA_TWO, "two")]
    clock.now += 31
    assert await keeper.identify(with_key(RSA_ONE, "one"))
    await until(lambda: publisher.fetches == 3)
    assert await keeper.identify(with_key(RSA_TWO, "two"))


def _padded(size: int) -> bytes:
    """A set without the old key, which would be accepted if it were smaller."""
    return orjson.dumps({"keys": [published(RSA_TWO, "two")]}) + b" " * size


def _bomb() -> web.Response:
    """Return a response that is compressed although the request did not ask for it."""
    return web.Response(body=gzip.compress(_padded(20_000_000)), headers={"content-encoding": "gzip"})


async def test_without_any_key_the_caller_may_come_again(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock
) -> None:
    publisher.status = 500
    for _ in range(3):
        with pytest.raises(Unavailable):
            await keeper.identify(with_key(RSA_ONE, "one"))
    assert publisher.fetches == 1
    publisher.status, publisher.keys = 200, [published(RSA_ONE, "one")]
    clock.now += 1
    assert await keeper.identify(with_key(RSA_ONE, "one"))


async def test_a_withdrawn_key_stops_counting_for_tokens_that_are_remembered(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock
) -> None:
    """Ten minutes after the keys were read, whatever used the token in between."""
    publisher.keys = [published(RSA_ONE, "one"), published(RSA_TWO, "two")]
    token, late = with_key(RSA_ONE, "one"), with_key(RSA_ONE, "one")
    await keeper.identify(with_key(RSA_TWO, "two"))
    publisher.keys = [published(RSA_TWO, "two")]
    for _ in range(2):
        clock.now += 290
        assert await keeper.identify(token)
    clock.now += 19
    assert await keeper.identify(late)
    clock.now += 1
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(token)
    with pytest.raises(Unauthenticated, match="unknown key"):
        await keeper.identify(late)


async def test_while_the_url_fails_a_known_token_costs_no_cryptography(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    await keeper.identify(with_key(RSA_ONE, "one"))
    publisher.status = 500
    clock.now += 1000
    token = with_key(RSA_ONE, "one")
    await keeper.identify(token)
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("verified again"))
    assert await keeper.identify(token)


@pytest.mark.parametrize(
    "kid",
    ["../../etc/passwd", "' OR 1=1 --", "one\0", "", "ONE", " one", "x" * 4000, "/dev/null", "http://evil.example"],
)
async def test_the_id_of_a_key_is_compared_and_nothing_else(publisher: Publisher, keeper: Tokens, kid: str) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="unknown key"):
            await keeper.identify(with_key(RSA_ONE, kid))
    assert publisher.fetches == 1


async def test_of_two_keys_with_one_id_the_first_counts(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys = [published(RSA_ONE, "one"), published(RSA_TWO, "one")]
    assert await keeper.identify(with_key(RSA_ONE, "one"))
    with pytest.raises(Unauthenticated, match="signature"):
        await keeper.identify(with_key(RSA_TWO, "one"))


async def test_private_weak_and_odd_keys_are_left_out(publisher: Publisher, keeper: Tokens) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    private = {**RSAAlgorithm.to_jwk(RSA_TWO, as_dict=True), "kid": "private", "key_ops": ["verify"]}
    good = published(RSA_ONE, "one", key_ops=["verify"])
    values: tuple[Any, ...] = (5, [], {}, None, "", "!")
    odd = [{**good, "kid": "odd", name: value} for name in ("n", "e", "kty") for value in values]
    algorithms: tuple[Any, ...] = (5, [], {}, "", "none", "HS256")
    odd += [{**good, "kid": "odd", "alg": alg} for alg in algorithms]
    odd += [{**good, "kid": "odd", "use": use} for use in (5, [], ["sig"], "")]
    key_ops: tuple[Any, ...] = (5, [], ["sign"], "verify", {})
    odd += [{**good, "kid": "odd", "key_ops": ops} for ops in key_ops]
    publisher.keys = [published(weak, "weak"), private, *odd, good, {**good, "kid": ["one"]}]
    assert await keeper.identify(with_key(RSA_ONE, "one"))
    weakly = raw_token({"alg": "RS256", "kid": "weak"}, {"sub": "ann", "exp": NOW + 60}, b"x" * 128)
    for token in (weakly, with_key(RSA_TWO, "private"), with_key(RSA_ONE, "odd")):
        with pytest.raises(Unauthenticated, match="unknown key"):
            await keeper.identify(token)


async def test_plain_http_is_warned_of_except_on_this_machine(caplog: pytest.LogCaptureFixture) -> None:
    for url, warned in {
        "http://keys.example.com/jwks": True,
        "http://10.0.0.1/jwks": True,
        "https://keys.example.com/jwks": False,
        "http://localhost:80/jwks": False,
        "http://127.0.0.2/jwks": False,
        "http://[::1]/jwks": False,
    }.items():
        caplog.clear()
        Tokens(TokenSettings(jwks_url=url), open_session=aiohttp.ClientSession)
        assert ("plain HTTP" in caplog.text) == warned, url


async def identify_all(keeper: Tokens, tokens: Iterable[str]) -> list[str]:
    """Identify tokens concurrently. Return the user or the code of the error for each."""

    async def one(token: str) -> str:
        try:
            identity = await keeper.identify(token)
        except (Unauthenticated, Unavailable) as error:
            return error.code
        assert identity is not None
        return identity.user_id

    return await asyncio.gather(*[one(token) for token in tokens])


def crowd(key: Any, kid: str, count: int = 200) -> list[str]:
    """Return tokens of `count` users."""
    return [with_key(key, kid, sub=f"u{number}") for number in range(count)]


async def test_two_hundred_at_once_are_one_fetch(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys, publisher.delay = [published(RSA_ONE, "one")], 0.05
    assert await identify_all(keeper, crowd(RSA_ONE, "one")) == [f"u{number}" for number in range(200)]
    assert publisher.fetches == 1


async def test_under_load_no_request_waits_for_a_hanging_url(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock, session: aiohttp.ClientSession
) -> None:
    """The keys are fetched again before they expire: the fetch hangs, and tokens are checked with the known ones."""
    publisher.keys = [published(RSA_ONE, "one")]
    await keeper.identify(with_key(RSA_ONE, "one"))
    publisher.delay = 60
    clock.now += 301
    assert set(await identify_all(keeper, crowd(RSA_ONE, "one"))) == {f"u{number}" for number in range(200)}
    # The fetch is in flight all the time: no request waited for its end.
    await until(lambda: publisher.at_once == 1)
    assert publisher.fetches == 2


async def test_rotation_under_load(publisher: Publisher, keeper: Tokens, clock: IssuerClock) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    await keeper.identify(with_key(RSA_ONE, "one"))
    publisher.keys, publisher.delay = [published(RSA_ONE, "one"), published(RSA_TWO, "two")], 0.02
    clock.now += 31
    mixed = [*crowd(RSA_ONE, "one", 100), *crowd(RSA_TWO, "two", 100), *crowd(RSA_TWO, "made up", 100)]
    answers = await identify_all(keeper, mixed)
    assert answers[:200] == [f"u{number}" for number in range(100)] * 2
    assert set(answers[200:]) == {"UNAUTHENTICATED"}
    assert publisher.fetches == 2


async def test_without_keys_all_requests_are_told_to_retry(
    publisher: Publisher, keeper: Tokens, clock: IssuerClock
) -> None:
    publisher.status = 503
    for _ in range(3):
        assert set(await identify_all(keeper, crowd(RSA_ONE, "one"))) == {"UNAVAILABLE"}
    assert publisher.fetches == 1
    with pytest.raises(Unavailable) as caught:
        await keeper.identify(with_key(RSA_ONE, "one"))
    assert caught.value.extensions["retryAfter"] == 1
    publisher.status, publisher.keys = 200, [published(RSA_ONE, "one")]
    clock.now += 1
    assert set(await identify_all(keeper, crowd(RSA_ONE, "one"))) == {f"u{number}" for number in range(200)}
    assert (publisher.fetches, publisher.most_at_once) == (2, 1)


async def test_callers_share_a_fetch_and_may_leave(publisher: Publisher, keeper: Tokens) -> None:
    publisher.keys, publisher.delay = [published(RSA_ONE, "one")], 0.05
    token = with_key(RSA_ONE, "one")
    callers = [asyncio.create_task(keeper.identify(token)) for _ in range(5)]
    await asyncio.sleep(0.01)
    callers[0].cancel()
    rest = await asyncio.gather(*callers[1:])
    assert all(rest)
    assert publisher.fetches == 1
