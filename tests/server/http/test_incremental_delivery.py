"""Incremental delivery on the real engine: payloads and reads, the choice of the format, and the rest of a request."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from datastore.keyspace.sightings import BLIP
from server.documents.document_cache import GatewayExecutor
from server.operations.request import Transport
from server.settings import Settings
from tests.support.incremental import IDS, PATHS, all_payloads, asked, merged, with_increments
from tests.support.served import Served, call_name
from tests.support.sightings import report_sighting
from tests.support.sse import EVENTS, blocks
from tests.support.transports import persisted

# The first part has the id of a reporter, which is in the sighting, and the second part a field that is read.
DEFERRED = """query ($defers: Boolean = true) {
  sightings(area: "Harbor", first: 10) {
    nodes { id reporter { userId } ... @defer(label: "tier", if: $defers) { reporter { userId trustTier } } }
  }
}"""
STREAMED = """query ($defers: Boolean = true) {
  sightings(area: "Harbor", first: 10) {
    nodes @stream(initialCount: 1, label: "sightings", if: $defers) { id reporter { trustTier } }
  }
}"""
READS = {DEFERRED: ["BatchGetItem blip", "Query blip"], STREAMED: ["BatchGetItem blip", "GetItem blip", "Query blip"]}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return with_increments(settings)


async def three_sightings(served: Served) -> None:
    for user in ("ada", "ben", "cleo"):
        await report_sighting(served, area="Harbor", category="Cats", user=user)


@pytest.mark.parametrize("accept", [IDS, PATHS])
@pytest.mark.parametrize("query", [DEFERRED, STREAMED])
async def test_the_parts_are_one_operation_and_share_their_reads(served: Served, query: str, accept: str) -> None:
    await three_sightings(served)
    whole = await served.ask(query, {"defers": False})
    [expected] = served.reports
    served.reports.clear()

    payloads = await all_payloads(served, query, accept)
    size = sum(len(json.dumps(payload, separators=(",", ":"))) for payload in payloads)

    assert merged(payloads) == whole.data
    assert len(payloads) == 2
    [report] = served.reports
    assert sorted(map(call_name, report.latest_calls)) == READS[query]
    assert report.transport is Transport.MULTIPART
    assert (report.estimate, report.is_complete, report.codes) == (expected.estimate, True, [])
    assert report.response_bytes == size


async def test_the_two_formats_of_a_deferred_fragment(served: Served) -> None:
    await report_sighting(served, area="Harbor", category="Cats", user="ada")
    at = ["sightings", "nodes", 0]

    first, last = await all_payloads(served, DEFERRED, IDS)
    assert first["pending"] == [{"id": "0", "path": at, "label": "tier"}]
    tier = {"id": "0", "subPath": ["reporter"], "data": {"trustTier": "BRONZE"}}
    assert last == {"hasNext": False, "incremental": [tier], "completed": [{"id": "0"}]}

    older = [first["data"], *(await all_payloads(served, DEFERRED, PATHS))[1:]]
    fragment = {"reporter": {"userId": "ada", "trustTier": "BRONZE"}}  # with the id, unlike above
    assert older == [
        first["data"],
        {"incremental": [{"data": fragment, "path": at, "label": "tier"}], "hasNext": False},
    ]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("multipart/mixed;deferSpec=20220824,application/json", "deferSpec=20220824"),
        ("multipart/mixed;incrementalSpec=v0.2,application/json", "incrementalSpec=v0.2"),
        (f"{PATHS}, {IDS}", "incrementalSpec=v0.2"),
        (f"{PATHS}, {IDS};q=0.9", "deferSpec=20220824"),
        ("application/json, multipart/mixed", "incrementalSpec=v0.2"),
        (f"{EVENTS}, {PATHS}", "deferSpec=20220824"),
        (f"{EVENTS}, {PATHS};q=0.5", EVENTS),
        (f"{EVENTS};deferSpec=20220824", EVENTS),
        ("application/json", None),
        ("*/*", None),
        ("multipart/mixed;deferSpec=20210101, application/json", None),
        ("multipart/mixed;subscriptionSpec=1.0, application/json", None),
        (f"{IDS};q=0, application/json", None),
    ],
)
async def test_the_accepted_types_select_the_format(served: Served, accept: str, content_type: str | None) -> None:
    await report_sighting(served, area="Harbor", category="Cats", user="ada")
    async with asked(served, DEFERRED, accept) as response:
        if content_type is None:
            assert response.status == 406
            [error] = (await response.json())["errors"]
            assert error["extensions"] == {"code": "BAD_USER_INPUT"}
            assert "multipart/mixed;incrementalSpec=v0.2" in error["message"]
        else:
            assert response.status == 200
            assert content_type in response.headers["content-type"]
            assert response.headers["cache-control"] == "no-store"
            assert await response.read()


@pytest.mark.parametrize(("accept", "keys"), [(EVENTS, {"pending"}), (f"{EVENTS};deferSpec=20220824", set())])
async def test_events_have_a_next_for_each_payload(served: Served, accept: str, keys: set[str]) -> None:
    await three_sightings(served)
    whole = await served.ask(DEFERRED, {"defers": False})
    async with asked(served, DEFERRED, accept) as response:
        seen = [block async for block in blocks(response)]
    payloads = [block["data"] for block in seen if block.get("event") == "next"]
    assert payloads[0].keys() == {"data", "hasNext"} | keys
    assert merged(payloads) == whole.data
    assert seen[-1]["event"] == "complete"


async def test_a_socket_has_a_next_for_each_payload(served: Served) -> None:
    await three_sightings(served)
    whole = await served.ask(DEFERRED, {"defers": False})
    listener = await served.listen(DEFERRED)
    messages = [await listener.message() for _ in range(3)]
    assert [message["type"] for message in messages] == ["next", "next", "complete"]
    assert merged([message["payload"] for message in messages[:2]]) == whole.data
    await listener.socket.close()


async def test_a_subscription_may_have_inactive_directives(served: Served) -> None:
    query = (
        "subscription ($defers: Boolean! = false) { sightingReported { area ... @defer(if: $defers) { category } } }"
    )
    listener = await served.listen(query)
    await served.settle(BLIP)
    await report_sighting(served, area="Harbor", category="Cats", user="ada")
    assert await listener.event() == {"sightingReported": {"area": "Harbor", "category": "Cats"}}
    await listener.socket.close()


async def test_inactive_directives_and_empty_lists_are_answered_with_json(served: Served) -> None:
    for variables in ({"defers": False}, {"defers": True}):
        async with asked(served, DEFERRED, f"{IDS}, application/json", variables=variables) as response:
            assert response.headers["content-type"] == "application/json; charset=utf-8"
            assert await response.json() == {"data": {"sightings": {"nodes": []}}}
    async with asked(served, DEFERRED, IDS) as response:  # the client accepts nothing else
        assert b'{"data":{"sightings":{"nodes":[]}},"hasNext":false}' in await response.read()


async def test_operations_without_active_directives_stay_compiled(served: Served) -> None:
    documents = served.gateway.server.documents
    for _ in range(3):
        await served.ask(DEFERRED, {"defers": False})
    program = documents.prepare(DEFERRED).operation(None).program
    assert (program.compiled is None) == (GatewayExecutor.compile_after == 0)


async def test_a_refusal_before_the_first_part_is_an_ordinary_response(served: Served) -> None:
    accept = "multipart/mixed;deferSpec=20220824, application/graphql-response+json, application/json;q=0.9"
    for query, status in (("{ nope ... @defer { me { role } } }", 400), ("{ ... @defer { me { role } }", 400)):
        async with asked(served, query, accept) as response:
            assert response.status == status
            assert response.headers["content-type"] == "application/graphql-response+json; charset=utf-8"


async def test_a_document_by_hash_may_defer(served: Served) -> None:
    await three_sightings(served)
    document_hash = hashlib.sha256(DEFERRED.encode()).hexdigest()
    first = await all_payloads(served, DEFERRED, **persisted(document_hash))
    headers = {"accept": IDS}
    async with served.http.post(f"{served.url}/graphql", json=persisted(document_hash), headers=headers) as response:
        assert (await response.read()).count(b'"hasNext":true') == 1
    assert len(first) == 2


MUTATION = """mutation {
  reportSighting(input: {area: "Harbor", category: "Cats", description: "A tabby"}) {
    sightingId ... @defer { reporter { trustTier } }
  }
}"""


async def test_a_mutation_defers_unless_it_has_an_idempotency_key(served: Served) -> None:
    first, last = await all_payloads(served, MUTATION, user="ada")
    assert first["data"]["reportSighting"].keys() == {"sightingId"}
    assert last["incremental"][0]["data"] == {"reporter": {"trustTier": "BRONZE"}}

    answers: list[Any] = []
    for _ in range(2):
        key = {"idempotency-key": "4f9d3a52-8f3c-4b57-9a4e-2f6f8f0f7d11"}
        async with asked(served, MUTATION, f"{IDS}, application/json", user="ada", headers=key) as response:
            answers.append(await response.json())
    assert answers[0]["data"]["reportSighting"]["reporter"] == {"trustTier": "BRONZE"}
    assert answers[0] == answers[1]


class TestExplained:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, explain="anyone")

    async def test_the_last_part_explains_all_calls(self, served: Served) -> None:
        await three_sightings(served)
        first, last = await all_payloads(served, DEFERRED, headers={"x-explain": "1"})
        assert "extensions" not in first
        explained = last["extensions"]["dynamodb"]
        assert [call["operation"] for call in explained["calls"]] == ["Query", "BatchGetItem"]
        assert explained["requests"] == 2


class TestOff:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=replace(settings.documents, incremental=False))

    async def test_the_directives_are_unknown(self, served: Served) -> None:
        async with asked(served, DEFERRED, f"{IDS}, application/json") as response:
            errors = (await response.json())["errors"]
        assert [error["message"] for error in errors] == ["Unknown directive '@defer'."]
        async with asked(served, "{ me { role } }", IDS) as response:
            assert response.status == 406
