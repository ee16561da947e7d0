"""Lookups of documents in the table are charged to the caller, and limited in number like operations."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from datastore.errors import Unavailable
from datastore.gateway.persisted_documents import StoredDocuments
from datastore.model.identity import Role
from server.admission.callers import Caller
from server.admission.load_shedding import LoadShedder
from server.admission.settings import Capacity
from server.documents.persisted.manifest import sha256_of
from server.documents.persisted.trusted import KNOWN_SECONDS, DocumentTable
from server.documents.settings import TABLE, DocumentSettings, DocumentsMode
from server.settings import Settings
from tests.support.ports import free_port
from tests.support.served import SECRET, Served
from tests.support.transports import ask_over, codes_of_answer, persisted

AREAS = "query Areas { areas }"
ANYBODY = Caller(None, "192.0.2.1")


@pytest.fixture
def mode() -> DocumentsMode:
    return DocumentsMode.ENFORCE


@pytest.fixture
def settings(mode: DocumentsMode) -> Settings:
    """A budget of three lookups and a half for callers without a token. It is not refilled during a test."""
    capacity = Capacity(anonymous_budget_units=1.75, anonymous_budget_units_per_second=1e-6, concurrent=2)
    documents = DocumentSettings(mode, TABLE)
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, documents=documents, capacity=capacity)


def text_of(number: int) -> str:
    return f"query Areas{number} {{ areas }}"


async def status_of(served: Served, **fields: Any) -> tuple[int, str | None]:
    async with served.http.post(f"{served.url}/graphql", json=fields) as response:
        await response.read()
        return response.status, response.headers.get("Retry-After")


@pytest.mark.parametrize(
    "asked",
    [
        lambda number: {"query": text_of(number)},
        lambda number: {"documentId": f"unknown-{number}"},
        lambda number: persisted(sha256_of(text_of(number))),
    ],
    ids=["texts", "ids", "hashes"],
)
async def test_lookups_are_charged(served: Served, asked: Callable[[int], dict[str, Any]]) -> None:
    answers = [await ask_over(served, "POST", **asked(number)) for number in range(6)]
    again = await ask_over(served, "POST", **asked(0))
    status, retry_after = await status_of(served, **asked(5))
    of_a_user = await ask_over(served, "POST", "ada", Role.USER, **asked(5))

    refused = "FORBIDDEN" if "query" in asked(0) else "NOT_FOUND"
    assert [codes_of_answer(answer) for answer in answers] == [[refused]] * 2 + [["THROTTLED"]] * 4
    assert answers[2]["errors"][0]["extensions"]["retryable"] is True
    assert codes_of_answer(again) == [refused]  # a cached result costs no lookup
    assert (status, retry_after is not None) == (429, True)
    assert codes_of_answer(of_a_user) == [refused]


class TestLogged:
    @pytest.fixture
    def mode(self) -> DocumentsMode:
        return DocumentsMode.LOG

    async def test_in_the_mode_log_no_operation_fails_for_a_lookup_over_budget(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        answers = [await ask_over(served, "POST", query=text_of(number)) for number in range(3)]

        assert ["errors" in answer for answer in answers] == [False] * 3
        assert caplog.text.count("unregistered document was executed") == 2
        assert "its lookup failed" not in caplog.text


async def test_concurrent_lookups_have_the_limit_of_concurrent_operations(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    stalled = asyncio.Event()

    async def stall(self: StoredDocuments, document_id: str) -> None:
        reads.append(document_id)
        await stalled.wait()

    monkeypatch.setattr(StoredDocuments, "by_id", stall)
    asked = [ask_over(served, "POST", "ada", Role.USER, query=text_of(number)) for number in range(12)]
    asking = [asyncio.create_task(one) for one in asked]
    pending = set(asking)
    async with asyncio.timeout(50):
        while len(pending) > 2:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    refused = [one.result()["errors"][0]["extensions"] for one in asking if one not in pending]
    assert [(one["code"], one["retryAfter"]) for one in refused] == [("UNAVAILABLE", 1)] * 10
    assert (len(reads), len(pending)) == (2, 2)
    assert served.gateway.server.admission.shed() == 10
    stalled.set()
    assert [codes_of_answer(answer) for answer in await asyncio.gather(*pending)] == [["FORBIDDEN"]] * 2


async def test_a_cached_document_is_used_while_there_are_too_many_lookups() -> None:
    now = 0.0
    stalled = asyncio.Event()

    async def read(document_id: str) -> str | None:
        if document_id != "areas":
            await stalled.wait()
        return AREAS

    table = DocumentTable(read, lambda: now, load=LoadShedder(1, noun="documents to look up", queue_seconds=0))
    assert await table.text("areas", ANYBODY) == AREAS
    waiting = asyncio.create_task(table.text("other", ANYBODY))
    await asyncio.sleep(0)
    now = 2 * KNOWN_SECONDS

    assert await table.text("areas", ANYBODY) == AREAS
    with pytest.raises(Unavailable, match="documents to look up"):
        await table.text("third", ANYBODY)
    stalled.set()
    assert await waiting == AREAS
