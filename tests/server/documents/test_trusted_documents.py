"""Trusted documents from a file: they run by id on every transport, and alone in the mode enforce."""

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphql import get_introspection_query
from hypothesis import given
from hypothesis import strategies as st

import schema as api
from datastore.model.identity import Role
from server.documents.document_cache import Documents
from server.documents.persisted import trusted
from server.documents.persisted.manifest import ManifestProblem, plain_id, read_manifest, sha256_of
from server.documents.persisted.trusted import ManifestFile
from server.documents.settings import DocumentSettings, DocumentsMode, document_settings
from server.settings import Misconfigured, Settings, from_environment
from tests.support.command_line import refused_in_a_line, run_here
from tests.support.served import Served
from tests.support.transports import TRANSPORTS, Transport, ask_over, codes_of_answer, persisted
from tests.support.trusted_documents import ANSWER, ANYBODY, AREAS, CATEGORIES, HASH, NAMED, manifest, mode, settings

__all__ = ["manifest", "mode", "settings"]

TYPENAME = "{ __typename }"

APOLLO = {
    "format": "apollo-persisted-query-manifest",
    "version": 1,
    "operations": [{"id": HASH, "body": AREAS, "name": "Areas", "type": "query"}],
}

TWICE = [{"id": "a", "body": AREAS}, {"id": "a", "body": CATEGORIES}]


# Every transport


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_in_the_mode_enforce_only_registered_documents_run(served: Served, transport: Transport) -> None:
    by_name = await ask_over(served, transport, documentId="areas")
    by_hash = await ask_over(served, transport, documentId=f"sha256:{HASH}")
    as_apollo_names_it = [await ask_over(served, transport, **persisted(name)) for name in (HASH, "areas")]
    in_full = await ask_over(served, transport, query=AREAS)
    unknown = await ask_over(served, transport, documentId="nothing")
    unknown_hash = await ask_over(served, transport, **persisted(sha256_of(TYPENAME)))

    assert [by_name, by_hash, *as_apollo_names_it, in_full] == [ANSWER] * 5
    assert codes_of_answer(unknown) == codes_of_answer(unknown_hash) == ["NOT_FOUND"]
    for user, role in [(None, Role.USER), ("ada", Role.USER), ("poller", Role.SYSTEM)]:
        # The text is not parsed: invalid GraphQL is refused in the same way.
        for text in (TYPENAME, "{", f"{AREAS} "):
            refused = await ask_over(served, transport, user, role, query=text)
            assert codes_of_answer(refused) == ["FORBIDDEN"]
            assert "registered" in refused["errors"][0]["message"]
            assert "data" not in refused
    for introspection in (TYPENAME, get_introspection_query()):
        assert "errors" not in await ask_over(served, transport, "root", Role.ADMIN, query=introspection)


async def test_in_the_mode_enforce_no_hash_is_registered(served: Served) -> None:
    by_admin = await ask_over(served, "POST", "root", Role.ADMIN, query=TYPENAME, **persisted(sha256_of(TYPENAME)))

    assert by_admin == {"data": {"__typename": "Query"}}
    assert codes_of_answer(await ask_over(served, "POST", **persisted(sha256_of(TYPENAME)))) == ["NOT_FOUND"]


async def test_an_id_of_another_text_is_refused(served: Served) -> None:
    both = await ask_over(served, "POST", query=AREAS, documentId="areas")
    both_as_apollo_names_it = await ask_over(served, "POST", query=AREAS, **persisted("areas"))
    of_another = await ask_over(served, "POST", query=CATEGORIES, documentId="areas")
    hash_of_another = await ask_over(served, "POST", query=CATEGORIES, **persisted(HASH))
    two_ids = await ask_over(served, "POST", documentId=sha256_of(CATEGORIES), **persisted(HASH))
    too_long = await ask_over(served, "POST", documentId="x" * 257)

    assert both == both_as_apollo_names_it == ANSWER
    refused = [of_another, hash_of_another, two_ids, too_long]
    assert [codes_of_answer(answer) for answer in refused] == [["BAD_USER_INPUT"]] * 4
    assert [answer["errors"][0]["extensions"]["field"] for answer in refused] == [
        "documentId",
        "extensions.persistedQuery.sha256Hash",
        "documentId",
        "documentId",
    ]


async def test_a_subscription_runs_by_its_id(served: Served, manifest: Path) -> None:
    _write(manifest, {"quakes": "subscription { earthquakeDetected { eventId } }"})
    served.gateway.server.persisted_documents.load()

    async with served.http.ws_connect(
        served.url.replace("http", "ws") + "/graphql", protocols=["graphql-transport-ws"]
    ) as socket:
        await socket.send_json({"type": "connection_init"})
        await socket.receive_json(timeout=10)
        await socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": "subscription { liveScores }"}})
        refused = await socket.receive_json(timeout=10)
        await socket.send_json({"id": "1", "type": "subscribe", "payload": {"documentId": "quakes"}})
        await socket.send_json({"type": "ping"})
        answered = await socket.receive_json(timeout=10)

    assert (refused["type"], refused["payload"][0]["extensions"]["code"]) == ("error", "FORBIDDEN")
    assert answered == {"type": "pong"}


# Modes


class TestWithoutBypass:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=replace(settings.documents, admin_bypass=False))

    async def test_admins_have_no_bypass(self, served: Served) -> None:
        for transport in TRANSPORTS:
            assert codes_of_answer(await ask_over(served, transport, "root", Role.ADMIN, query=TYPENAME)) == [
                "FORBIDDEN"
            ]
            assert await ask_over(served, transport, "root", Role.ADMIN, documentId="areas") == ANSWER


class TestPreferred:
    @pytest.fixture
    def mode(self) -> DocumentsMode:
        return DocumentsMode.PREFER

    async def test_unregistered_documents_run(self, served: Served) -> None:
        assert await ask_over(served, "POST", documentId="areas") == ANSWER
        assert await ask_over(served, "POST", query=TYPENAME) == {"data": {"__typename": "Query"}}
        assert codes_of_answer(await ask_over(served, "POST", documentId="nothing")) == ["NOT_FOUND"]
        assert codes_of_answer(await ask_over(served, "POST", **persisted(sha256_of(TYPENAME)))) == [
            "PERSISTED_QUERY_NOT_FOUND"
        ]

    async def test_a_removed_name_is_unknown(self, served: Served, manifest: Path) -> None:
        assert await ask_over(served, "POST", query=AREAS, **persisted("areas")) == ANSWER
        _write(manifest, {})
        served.gateway.server.persisted_documents.load()

        assert codes_of_answer(await ask_over(served, "POST", **persisted("areas"))) == ["PERSISTED_QUERY_NOT_FOUND"]

    async def test_a_registered_hash_is_known_from_the_start(self, served: Served) -> None:
        assert await ask_over(served, "POST", **persisted(HASH)) == ANSWER


class TestLogged:
    @pytest.fixture
    def mode(self) -> DocumentsMode:
        return DocumentsMode.LOG

    async def test_each_unregistered_document_is_logged_once(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "server.documents.persisted.registry"):
            for query in (TYPENAME, AREAS, TYPENAME, "query Mine { __typename }"):
                answer = await ask_over(served, "POST", query=query, operationName="Mine" if "Mine" in query else None)
                assert "errors" not in answer

        messages = [record.getMessage() for record in caplog.records]
        assert [sha256_of(TYPENAME) in line for line in messages] == [True, False]
        assert [line.endswith(end) for line, end in zip(messages, ["operation '-'", "operation 'Mine'"], strict=True)]
        assert served.gateway.metrics.registry.get_sample_value("gateway_unregistered_operations_total") == 3


class TestOff:
    @pytest.fixture
    def mode(self) -> DocumentsMode:
        return DocumentsMode.OFF

    async def test_no_id_is_known(self, served: Served) -> None:
        assert codes_of_answer(await ask_over(served, "POST", documentId="areas")) == ["NOT_FOUND"]
        assert await ask_over(served, "POST", query=AREAS) == ANSWER
        assert codes_of_answer(await ask_over(served, "POST", documentId=HASH, query=CATEGORIES)) == ["BAD_USER_INPUT"]


# The file


def test_both_formats_of_a_manifest_are_read() -> None:
    assert read_manifest(json.dumps(NAMED).encode()) == NAMED
    assert read_manifest(json.dumps(APOLLO).encode()) == {HASH: AREAS}
    assert read_manifest(json.dumps({f"sha256:{HASH}": AREAS}).encode()) == {HASH: AREAS}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "it is not valid JSON: unexpected end of data (line 1, column 2)"),
        ("[]", "it is not an object of ids and texts"),
        ({"format": "other", "version": 1}, "its format is neither"),
        (APOLLO | {"version": 2}, "its format is neither"),
        (APOLLO | {"operations": {}}, "its operations are not a list"),
        (APOLLO | {"operations": ["x"]}, "one of its operations is not an object"),
        (APOLLO | {"operations": [{"id": 1, "body": AREAS}]}, "'1' is not an id"),
        (
            APOLLO | {"operations": [{"id": "a", "body": AREAS}, {"id": "a", "body": CATEGORIES}]},
            "a: two texts have this id",
        ),
        ({"": AREAS}, "'' is not an id"),
        ({"x" * 257: AREAS}, "is not an id"),
        ({"areas": 5}, "areas: its text is not a string"),
        ({HASH: CATEGORIES}, f"{HASH}: the SHA-256 of its text is {sha256_of(CATEGORIES)}"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_an_invalid_manifest_is_refused_with_the_reason(content: Any, words: str) -> None:
    raw = content if isinstance(content, str) else json.dumps(content)

    with pytest.raises(ManifestProblem) as raised:
        read_manifest(raw.encode())

    assert words in str(raised.value)


@given(st.dictionaries(st.text(min_size=1, max_size=64).filter(lambda name: plain_id(name) == name), st.text()))
def test_a_manifest_of_names_is_read_as_it_was_written(texts: dict[str, str]) -> None:
    assert read_manifest(json.dumps({name: text for name, text in texts.items() if name != "format"}).encode()) == {
        name: text for name, text in texts.items() if name != "format"
    }


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(api.build())


def test_invalid_documents_make_the_start_fail(tmp_path: Path, documents: Documents) -> None:
    path = _write(tmp_path / "m.json", {"good": AREAS, "bad": "{ nothing }", "worse": "{"})

    with pytest.raises(Misconfigured) as raised:
        ManifestFile(path, documents).load()

    messages = str(raised.value)
    assert "bad: Cannot query field 'nothing' on type 'Query'; worse: Syntax Error" in messages
    assert "good" not in messages
    with pytest.raises(Misconfigured, match=r"none\.json cannot be read: No such file"):
        ManifestFile(tmp_path / "none.json", documents).load()


def test_a_failed_start_prints_one_line(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.json", {"bad": "{ nothing }"})

    started = run_here("serve", "--memory", "--port", "1", GATEWAY_DOCUMENTS=str(path), GATEWAY_DOCUMENTS_MODE="strict")

    refused_in_a_line(started, 2, "GATEWAY_DOCUMENTS_MODE must be off, log, prefer, enforce, not 'strict'.")


async def test_documents_of_a_manifest_are_never_evicted(served: Served) -> None:
    documents = served.gateway.server.documents
    ready = documents.prepare(AREAS)

    for number in range(300):
        documents.prepare(f"{{ __typename }} # {number}")

    assert documents.prepare(AREAS) is ready


async def test_a_changed_file_is_reloaded_and_an_invalid_one_is_not(
    tmp_path: Path, documents: Documents, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted, "CHECK_INTERVAL_SECONDS", 0.01)
    path = _write(tmp_path / "m.json", {"areas": AREAS})
    source = ManifestFile(path, documents)
    source.load()

    _write(path, {"areas": "{ nothing }"})
    watching = asyncio.create_task(source.watch())
    async with asyncio.timeout(50):
        while "Cannot query" not in caplog.text:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    watching.cancel()
    assert await source.text("areas", ANYBODY) == AREAS
    assert "Cannot query field 'nothing'" in caplog.text

    caplog.clear()
    source.reload_if_changed()
    assert caplog.text == ""  # the error is logged once

    path.unlink()
    source.reload_if_changed()
    assert "the previous documents stay in use" in caplog.text

    _write(path, {"categories": CATEGORIES})
    source.reload_if_changed()
    assert (await source.text("areas", ANYBODY), await source.text("categories", ANYBODY)) == (None, CATEGORIES)
    assert (await source.contains(AREAS, ANYBODY), await source.contains(CATEGORIES, ANYBODY)) == (False, True)


def _write(path: Path, content: Any) -> Path:
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(json.dumps(content))
    os.utime(path, ns=(before + 10**9, before + 10**9))  # file systems' clocks are coarse
    return path


# Settings


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, DocumentSettings()),
        ({"GATEWAY_DOCUMENTS": "m.json"}, DocumentSettings(DocumentsMode.PREFER, "m.json")),
        (
            {"GATEWAY_DOCUMENTS": "table", "GATEWAY_DOCUMENTS_MODE": "enforce"},
            DocumentSettings(DocumentsMode.ENFORCE, "table"),
        ),
        (
            {"GATEWAY_DOCUMENTS_ADMIN_BYPASS": "off", "GATEWAY_APQ": "off"},
            DocumentSettings(admin_bypass=False, automatic=False),
        ),
    ],
    ids=str,
)
def test_the_settings_of_documents_come_from_the_environment(
    environment: dict[str, str], expected: DocumentSettings
) -> None:
    assert document_settings(environment) == expected
    assert from_environment(environment).get("documents", DocumentSettings()) == expected


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GATEWAY_DOCUMENTS_MODE": "enforce"}, "GATEWAY_DOCUMENTS_MODE=enforce needs GATEWAY_DOCUMENTS"),
        ({"GATEWAY_DOCUMENTS_MODE": "strict"}, "GATEWAY_DOCUMENTS_MODE must be off, log, prefer, enforce"),
        ({"GATEWAY_APQ": "yes"}, "GATEWAY_APQ must be on or off, not 'yes'."),
    ],
    ids=str,
)
def test_invalid_settings_of_documents_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        from_environment(environment)
