"""Automatic persisted queries: Apollo's protocol, with a limited store that processes share through Redis."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.exceptions import RedisError

from server.documents.persisted import redis as redis_texts
from server.documents.persisted.automatic import MAX_TEXT_BYTES, AutomaticDocuments
from server.documents.persisted.manifest import sha256_of
from server.documents.persisted.redis import PAUSE_SECONDS, RedisTexts
from server.documents.settings import DocumentSettings
from server.settings import Settings
from tests.support.ports import free_port
from tests.support.served import Served
from tests.support.transports import TRANSPORTS, Transport, ask_over, codes_of_answer, get, persisted

REDIS = os.environ.get("GATEWAY_REDIS_URL") or "redis://127.0.0.1:6379/0"
TEXT = "query Kind($no: Boolean = false) { __typename areas @include(if: $no) }"
HASH = sha256_of(TEXT)
ANSWER = {"data": {"__typename": "Query"}}


# The protocol


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_text_is_known_by_its_hash_after_it_was_sent_once(served: Served, transport: Transport) -> None:
    before = await ask_over(served, transport, **persisted(HASH))
    taught = await ask_over(served, transport, query=TEXT, **persisted(HASH))
    by_hash = [await ask_over(served, other, **persisted(HASH)) for other in TRANSPORTS]

    # Apollo Client and urql compare this message and code.
    assert [(error["message"], error["extensions"]["code"]) for error in before["errors"]] == [
        ("PersistedQueryNotFound", "PERSISTED_QUERY_NOT_FOUND")
    ]
    assert [taught, *by_hash] == [ANSWER] * 5
    assert await ask_over(served, transport, **persisted(HASH.upper())) == ANSWER


@pytest.mark.parametrize("accept", ["application/json", "application/graphql-response+json"])
async def test_an_unknown_hash_is_reported_as_json_that_is_not_cacheable(served: Served, accept: str) -> None:
    async with get(served, {"Accept": accept}, **persisted(HASH)) as response:
        answer = await response.json(content_type=None)

    # Apollo Server responds with 200. With the newer media type clients read the errors at any status.
    assert response.status == (200 if accept == "application/json" else 400)
    assert codes_of_answer(answer) == ["PERSISTED_QUERY_NOT_FOUND"]
    assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_text_with_another_hash_is_refused_and_not_stored(served: Served, transport: Transport) -> None:
    refused = await ask_over(served, transport, query="{ areas }", **persisted(HASH))

    assert codes_of_answer(refused) == ["BAD_USER_INPUT"]
    assert codes_of_answer(await ask_over(served, transport, **persisted(HASH))) == ["PERSISTED_QUERY_NOT_FOUND"]
    assert codes_of_answer(await ask_over(served, transport, **persisted(sha256_of("{ areas }")))) == [
        "PERSISTED_QUERY_NOT_FOUND"
    ]


async def test_no_text_is_stored_under_an_invalid_hash(served: Served) -> None:
    assert codes_of_answer(await ask_over(served, "POST", query=TEXT, **persisted("mine"))) == ["BAD_USER_INPUT"]
    assert codes_of_answer(await ask_over(served, "POST", **persisted("mine"))) == ["PERSISTED_QUERY_NOT_FOUND"]


@pytest.mark.parametrize("text", ["{ nothing }", "{", ""])
async def test_an_invalid_document_is_not_stored(served: Served, text: str) -> None:
    assert "errors" in await ask_over(served, "POST", query=text, **persisted(sha256_of(text)))
    assert codes_of_answer(await ask_over(served, "POST", **persisted(sha256_of(text)))) == [
        "PERSISTED_QUERY_NOT_FOUND"
    ]


@pytest.mark.parametrize(
    "extension",
    [
        5,
        {},
        {"version": 2, "sha256Hash": HASH},
        {"version": 1},
        {"version": 1, "sha256Hash": 5},
        {"version": 1, "sha256Hash": ""},
        {"version": 1, "sha256Hash": "x" * 257},
    ],
    ids=str,
)
async def test_an_invalid_extension_ends_its_operation_only(served: Served, extension: Any) -> None:
    for transport in ("POST", "WebSocket"):
        answer = await ask_over(served, transport, extensions={"persistedQuery": extension})
        assert codes_of_answer(answer) == ["BAD_USER_INPUT"]
        assert "persistedQuery" in answer["errors"][0]["message"]


class TestOff:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=DocumentSettings(automatic=False))

    async def test_clients_are_asked_to_send_texts_instead_of_hashes(self, served: Served) -> None:
        for transport in TRANSPORTS:
            answer = await ask_over(served, transport, **persisted(HASH))
            assert [(error["message"], error["extensions"]["code"]) for error in answer["errors"]] == [
                ("PersistedQueryNotSupported", "PERSISTED_QUERY_NOT_SUPPORTED")
            ]
            assert await ask_over(served, transport, query=TEXT, **persisted(HASH)) == ANSWER


# The store


async def test_the_most_recently_used_texts_are_kept() -> None:
    store = AutomaticDocuments(most=2)
    for text in ("a", "b"):
        await store.add(sha256_of(text), text)
    assert await store.text(sha256_of("a")) == "a"

    await store.add(sha256_of("c"), "c")

    assert [await store.text(sha256_of(text)) for text in "abc"] == ["a", None, "c"]


async def test_a_too_long_text_is_not_stored() -> None:
    store = AutomaticDocuments()
    longest, longer = "x" * MAX_TEXT_BYTES, "x" * (MAX_TEXT_BYTES + 1)
    for text in (longest, longer):
        await store.add(sha256_of(text), text)

    assert [await store.text(sha256_of(text)) for text in (longest, longer)] == [longest, None]


@given(st.lists(st.text(st.sampled_from("aé"), max_size=8), max_size=30))
async def test_the_store_never_exceeds_its_limits(texts: list[str]) -> None:
    store = AutomaticDocuments(most=4, most_bytes=20)
    for text in texts:
        await store.add(sha256_of(text), text)

        assert await store.text(sha256_of(text)) == text  # the latest text always fits
        known = {text for text in texts if await store.text(sha256_of(text)) is not None}
        assert len(known) <= 4
        assert sum(len(text.encode()) for text in known) <= 20


# Redis


@pytest.fixture
async def redis(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A client of Redis, with keys that the test does not share and that are deleted afterwards."""
    prefix = f"test:{uuid4().hex}:"
    monkeypatch.setattr(redis_texts, "KEY", prefix)
    monkeypatch.setattr(redis_texts, "TIMEOUT_SECONDS", 30)  # a busy machine is no outage
    client = Redis.from_url(REDIS, socket_connect_timeout=1, decode_responses=True)
    try:
        await client.ping()
    except (RedisError, OSError):
        if os.environ.get("REQUIRE_REDIS"):
            raise
        pytest.skip("no Redis answers")
    yield client
    await client.delete(*[key async for key in client.scan_iter(f"{prefix}*")] or ["none"])
    await client.aclose()


async def test_processes_share_texts_through_redis(redis: Any) -> None:
    one, other = RedisTexts(REDIS), RedisTexts(REDIS)
    await AutomaticDocuments(one).add(HASH, TEXT)

    assert await AutomaticDocuments(other).text(HASH) == TEXT
    assert 0 < await redis.ttl(redis_texts.KEY + HASH) <= redis_texts.SHARED_SECONDS
    assert await AutomaticDocuments(other).text(sha256_of("unknown")) is None
    for texts in (one, other):
        await texts.aclose()


class TestShared:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=replace(settings.capacity, redis_url=REDIS))

    async def test_a_gateway_with_redis_shares_its_texts(self, redis: Any, served: Served) -> None:
        assert await ask_over(served, "POST", query=TEXT, **persisted(HASH)) == ANSWER

        assert await redis.get(redis_texts.KEY + HASH) == TEXT


@pytest.mark.parametrize("stored", ["{ areas }", b"\xff"], ids=["another text", "no text"])
async def test_a_text_from_redis_is_accepted_only_under_its_own_hash(redis: Any, stored: Any) -> None:
    await redis.set(redis_texts.KEY + HASH, stored)
    texts = RedisTexts(REDIS)

    assert await AutomaticDocuments(texts).text(HASH) is None
    await texts.aclose()


async def test_without_redis_texts_are_kept_in_the_process(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    texts = RedisTexts(f"redis://127.0.0.1:{free_port()}/0", lambda: now)
    store = AutomaticDocuments(texts)

    await store.add(HASH, TEXT)

    assert await store.text(HASH) == TEXT
    assert await store.text(sha256_of("unknown")) is None
    # Redis is not called for a while after a failure.
    assert len(caplog.records) == 1
    now = PAUSE_SECONDS
    assert await store.text(sha256_of("unknown")) is None
    assert len(caplog.records) == 2
    await texts.aclose()
