"""Trusted documents in the table: added while the gateway runs, cached, and available during an outage."""

import asyncio
from dataclasses import replace

import pytest

from datastore.errors import Unavailable
from datastore.gateway.persisted_documents import StoredDocuments
from datastore.keyspace import PATTERNS
from server.documents.persisted.manifest import sha256_of
from server.documents.persisted.trusted import KNOWN_SECONDS, MAX_CACHED, UNKNOWN_SECONDS, DocumentTable
from server.documents.settings import TABLE, DocumentSettings, DocumentsMode
from server.settings import Settings
from tests.support.served import NOON, Clock, Served
from tests.support.transports import TRANSPORTS, ask_over, codes_of_answer
from tests.support.trusted_documents import ANSWER, ANYBODY, AREAS, CATEGORIES, HASH, manifest, mode, settings

__all__ = ["manifest", "mode", "settings"]


# The table


class TestTable:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=DocumentSettings(DocumentsMode.ENFORCE, TABLE))

    async def test_documents_in_the_table_run_by_id_and_by_text(self, served: Served, clock: Clock) -> None:
        assert codes_of_answer(await ask_over(served, "POST", documentId="areas")) == ["NOT_FOUND"]
        known = StoredDocuments(served.store())
        await known.put("areas", AREAS, NOON)
        await known.put(HASH, AREAS, NOON)

        soon = codes_of_answer(await ask_over(served, "POST", documentId="areas"))
        clock.forward(seconds=UNKNOWN_SECONDS)
        by_name = [await ask_over(served, transport, documentId="areas") for transport in TRANSPORTS]

        assert soon == ["NOT_FOUND"]  # the unknown id is still cached
        assert by_name == [ANSWER] * 4
        assert await ask_over(served, "POST", query=AREAS) == ANSWER
        assert codes_of_answer(await ask_over(served, "POST", query=CATEGORIES)) == ["FORBIDDEN"]

        await known.delete("areas")
        assert await ask_over(served, "POST", documentId="areas") == ANSWER
        clock.forward(seconds=KNOWN_SECONDS)
        assert codes_of_answer(await ask_over(served, "POST", documentId="areas")) == ["NOT_FOUND"]

    async def test_trusted_documents_may_be_larger_but_not_more_expensive(self, served: Served) -> None:
        """But not cost more."""
        large = "{" + " ".join(f"a{number}: __typename" for number in range(400)) + "}"
        one = 'sightings(area: "Harbor", first: 100) {nodes {reporter {userId}}}'
        costly = "{" + " ".join(f"a{number}: {one}" for number in range(60)) + "}"
        known = StoredDocuments(served.store())
        for name, text in {"large": large, "costly": costly}.items():
            await known.put(name, text, NOON)
            await known.put(sha256_of(text), text, NOON)

        by_name, in_full = [
            await ask_over(served, "POST", documentId="large"),
            await ask_over(served, "POST", query=large),
        ]
        refused = await ask_over(served, "POST", documentId="costly")

        assert by_name == in_full
        assert len(by_name["data"]) == 400
        assert codes_of_answer(refused) == ["BAD_USER_INPUT"]
        assert refused["errors"][0]["extensions"]["limit"] == 2_000


async def test_an_id_never_changes_its_text(served: Served) -> None:
    known = StoredDocuments(served.store())

    first = await known.put("a#b", AREAS, NOON)
    again = await known.put("a#b", AREAS, NOON)
    other = await known.put("a#b", CATEGORIES, NOON)

    assert (first.text, again.text, other.text) == (AREAS, AREAS, AREAS)
    assert [(found.document_id, found.text) async for found in known.all()] == [("a#b", AREAS)]
    assert (await known.delete("a#b"), await known.delete("a#b")) == (True, False)
    assert await known.by_id("a#b") is None


def test_the_access_patterns_of_documents_are_declared() -> None:
    declared = [pattern for pattern in PATTERNS if pattern.id.startswith("GW-D")]

    assert [(pattern.id, pattern.operations, pattern.fields) for pattern in declared] == [
        ("GW-D1", ("GetItem", "BatchGetItem"), ()),
        ("GW-D2", ("PutItem",), ()),
        ("GW-D3", ("Query",), ()),
        ("GW-D4", ("DeleteItem",), ()),
    ]


@pytest.fixture
def reads() -> list[str]:
    return []


@pytest.fixture
def kept() -> dict[str, str]:
    return {"known": AREAS}


class ManualTime:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def table(reads: list[str], kept: dict[str, str], time: ManualTime) -> DocumentTable:
    async def read(document_id: str) -> str | None:
        reads.append(document_id)
        if "away" in kept:
            raise Unavailable("The store is away.")
        return kept.get(document_id)

    return DocumentTable(read, time)


async def test_texts_and_unknown_ids_are_cached_for_their_times(
    table: DocumentTable, reads: list[str], time: ManualTime
) -> None:
    for now in (0.0, UNKNOWN_SECONDS - 0.1, UNKNOWN_SECONDS, KNOWN_SECONDS - 0.1, KNOWN_SECONDS):
        time.now = now
        assert await table.text("known", ANYBODY) == AREAS
        assert await table.text("unknown", ANYBODY) is None

    assert (reads.count("known"), reads.count("unknown")) == (2, 3)


async def test_cached_texts_stay_valid_during_an_outage(
    table: DocumentTable, kept: dict[str, str], time: ManualTime
) -> None:
    assert await table.text("known", ANYBODY) == AREAS
    kept["away"] = ""
    time.now = 10 * KNOWN_SECONDS

    assert await table.text("known", ANYBODY) == AREAS
    with pytest.raises(Unavailable):
        await table.text("unknown", ANYBODY)


async def test_invented_ids_evict_no_document(table: DocumentTable, reads: list[str]) -> None:
    await table.text("known", ANYBODY)
    for number in range(MAX_CACHED + 10):
        await table.text(f"invented {number}", ANYBODY)
    reads.clear()

    assert await table.text("known", ANYBODY) == AREAS
    assert reads == []
    await table.text("invented 0", ANYBODY)  # it was evicted first
    assert reads == ["invented 0"]


async def test_concurrent_requests_for_a_document_share_one_read(table: DocumentTable, reads: list[str]) -> None:
    first, *others = [asyncio.create_task(table.text("known", ANYBODY)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()

    assert await asyncio.gather(*others) == [AREAS] * 49
    assert reads == ["known"]
