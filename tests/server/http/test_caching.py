"""Cacheable responses: those of a GET that names a known document, for as long as its fields declare."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import strawberry

import schema as api
from datastore.keyspace import PATTERNS
from datastore.keyspace.earthquakes import EVENT
from datastore.model.access_patterns import Who
from datastore.model.identity import Role
from server.admission.settings import Capacity
from server.documents.cache_control import CacheControl
from server.documents.document_cache import Documents
from server.documents.persisted.manifest import sha256_of
from server.documents.settings import DocumentSettings, DocumentsMode
from server.http.cache import NAMED_SECONDS
from server.settings import Settings
from tests.support.earthquake_samples import quake, store
from tests.support.ports import free_port
from tests.support.served import SECRET, Served
from tests.support.store_engines import ROOT
from tests.support.transports import get, persisted

QUAKE = 'query Quake($id: ID! = "us1") { earthquake(id: $id) { eventId place } }'
DOCUMENTS = {
    "quake": QUAKE,
    "quakes": "{ earthquakes { nodes { eventId } } }",
    "me": '{ me { userId } earthquake(id: "us1") { place } }',
    "watches": '{ watches(userId: "ada") { watchId } }',
    "seed": "mutation { seedDemo { area } }",
}
HASH = sha256_of(QUAKE)
DAY = "max-age=86400"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(DOCUMENTS))
    documents = DocumentSettings(DocumentsMode.PREFER, str(manifest))
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, documents=documents, capacity=Capacity())


@pytest.fixture
async def served(served: Served) -> Served:
    await store(served, quake("us1"))
    return served


async def fetch_get(served: Served, headers: dict[str, str] | None = None, **fields: Any) -> tuple[int, Any, bytes]:
    """Return the status, headers and body of a GET."""
    async with get(served, headers or {}, **fields) as response:
        return response.status, response.headers, await response.read()


# Cacheable responses


async def test_a_response_by_id_declares_its_age_and_visibility(served: Served) -> None:
    status, headers, body = await fetch_get(served, documentId=HASH)
    again = await fetch_get(served, documentId=HASH)
    _, signed_in, _ = await fetch_get(served, served.headers("ada", Role.USER), documentId=f"sha256:{HASH}")
    _, a_list, _ = await fetch_get(served, documentId="quakes")

    assert (status, json.loads(body)) == (200, {"data": {"earthquake": {"eventId": "us1", "place": "1 km N of Here"}}})
    assert headers["Cache-Control"] == f"public, {DAY}"
    assert re.fullmatch(r'"[0-9a-f]{32}"', headers["ETag"])
    assert again[1]["ETag"] == headers["ETag"] != a_list["ETag"]
    assert {"accept", "authorization", "x-explain"} <= {name.strip().lower() for name in headers["Vary"].split(",")}
    assert signed_in["Cache-Control"] == f"private, {DAY}"
    assert a_list["Cache-Control"] == "public, max-age=10"


async def test_a_response_by_a_name_is_cached_no_longer_than_the_name_is_valid(served: Served) -> None:
    """A release may give the name another text."""
    for named in ({"documentId": "quake"}, persisted("quake")):
        _, headers, _ = await fetch_get(served, **named)
        assert headers["Cache-Control"] == f"public, max-age={NAMED_SECONDS}"


async def test_each_media_type_has_a_tag_of_its_own(served: Served) -> None:
    """A strong tag that two representations shared would let a client take one for the other."""
    spoken = {"Accept": "application/graphql-response+json"}
    _, plain, body = await fetch_get(served, documentId="quake")
    _, other, same = await fetch_get(served, spoken, documentId="quake")
    status, _, _ = await fetch_get(served, spoken | {"If-None-Match": plain["ETag"]}, documentId="quake")

    assert (plain["Content-Type"] != other["Content-Type"], body == same) == (True, True)
    assert plain["ETag"] != other["ETag"]
    assert status == 200


async def test_a_browser_that_follows_the_url_is_shown_the_answer_and_not_graphiql(served: Served) -> None:
    status, headers, body = await fetch_get(
        served, {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Site": "none"}, documentId="quake"
    )

    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(body)["data"]["earthquake"]["eventId"] == "us1"


async def test_an_answer_by_hash_may_be_kept_likewise(served: Served) -> None:
    text = '{ earthquake(id: "us1") { magnitude } }'
    _, taught, _ = await fetch_get(served, query=text, **persisted(sha256_of(text)))
    _, by_hash, _ = await fetch_get(served, **persisted(sha256_of(text)))

    assert (taught["Cache-Control"], by_hash["Cache-Control"]) == ("no-store", f"public, {DAY}")


@pytest.mark.parametrize(
    "fields",
    [
        {"query": QUAKE},
        {"query": QUAKE, "documentId": "quake"},
        {"documentId": "quake", "variables": {"id": "unknown"}},  # it may be stored at any moment
        {"documentId": "quake", "variables": {"id": ""}},  # an error
        {"documentId": "me"},
        {"documentId": "watches"},
        {"documentId": "seed"},
        {"documentId": "nothing"},
    ],
    ids=str,
)
async def test_nothing_else_may_be_kept(served: Served, fields: dict[str, Any]) -> None:
    for headers in ({}, served.headers("ada", Role.USER)):
        _, answer, _ = await fetch_get(served, headers, **fields)
        assert answer["Cache-Control"] == "no-store"
        assert "ETag" not in answer


async def test_neither_a_post_nor_an_explained_answer_may_be_kept(served: Served) -> None:
    async with served.http.post(f"{served.url}/graphql", json={"documentId": "quake"}) as posted:
        assert posted.headers["Cache-Control"] == "no-store"
        assert "ETag" not in posted.headers
    admin = served.headers("root", Role.ADMIN) | {"X-Explain": "1"}
    _, explained, _ = await fetch_get(served, admin, documentId="quake")
    assert explained["Cache-Control"] == "no-store"
    events = {"Accept": "text/event-stream"}
    _, streamed, _ = await fetch_get(served, events, documentId="quake")
    assert streamed["Cache-Control"] == "no-store"


async def test_a_cacheable_response_says_nothing_of_a_caller_s_budget(served: Served) -> None:
    _, kept, _ = await fetch_get(served, documentId="quake")
    _, not_kept, _ = await fetch_get(served, query=QUAKE)

    assert [name for name in kept if name.lower().startswith("ratelimit")] == []
    assert "RateLimit-Limit" in not_kept


# Conditional requests


async def test_an_unchanged_response_is_not_sent_again(served: Served) -> None:
    _, headers, body = await fetch_get(served, documentId="quake")
    tag = headers["ETag"]

    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, answer, nothing = await fetch_get(served, {"If-None-Match": condition}, documentId="quake")
        assert (status, nothing) == (304, b"")
        assert [answer[name] for name in ("Cache-Control", "ETag", "Vary")] == [
            headers[name] for name in ("Cache-Control", "ETag", "Vary")
        ]
        assert "Content-Type" not in answer
        assert "Content-Length" not in answer
    for condition in ('"other"', tag.strip('"'), 'W/"other"', "nonsense"):
        status, _, whole = await fetch_get(served, {"If-None-Match": condition}, documentId="quake")
        assert (status, whole) == (200, body)
    # The next response on the connection is not the omitted body.
    assert (await fetch_get(served, {"If-None-Match": "*"}, query=QUAKE))[0] == 200


# The age of a response


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(api.build())


@pytest.fixture(scope="module")
def ages(documents: Documents) -> CacheControl:
    return CacheControl(documents.schema)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ earthquake(id: "a") { id place } }', 86400),
        ('{ earthquake(id: "a") { place } teams { nodes { name } } }', 30),
        ('{ earthquake(id: "a", consistent: false) { place } }', 86400),
        ('{ earthquake(id: "a", consistent: true) { place } }', 0),
        ('{ teams { nodes { name } } match(id: "m") { matchId } liveMatches { version } }', 2),
        ('{ match(id: "m") { homeTeam { name } league { name } } }', 5),
        ('{ match(id: "m") { matchId liveScore { __typename } } }', 2),
        ('{ match(id: "m") { matchId followedByViewer } }', 0),  # depends on the caller
        ('{ match(id: "m") { ...M } } fragment M on Match { league { ...L } } fragment L on League { name }', 5),
        ("{ ...Q ...Q } fragment Q on Query { teams { nodes { name ... { code } ... on Team { id } } } }", 30),
        ("{ ...Q } fragment Q on Query { teams { nodes { name } } me { userId } }", 0),
        ('{ node(id: "x") { id } }', 0),
        ("{ __typename }", 0),
        ("{ __typename teams { nodes { __typename } } }", 30),
        ("{ __schema { queryType { name } } teams { nodes { name } } }", 0),
        ("{ areas }", 0),
        ('{ post(id: "p") { text } }', 0),
        ("{ topAuthors { rank } }", 30),
        ("{ topAuthors { author { name } } }", 0),
        ("{ teams { nodes { name } } me @include(if: false) { userId } }", 0),
        ("subscription { earthquakeDetected { eventId } }", 0),
        ("mutation { seedDemo { area } }", 0),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_answer_is_as_short_lived_as_its_shortest_lived_field(
    documents: Documents, ages: CacheControl, text: str, expected: int
) -> None:
    operation = documents.prepare(text).operation(None)

    assert ages.max_age(operation) == expected
    assert ages.max_age(operation) == expected  # the second time from the cache


def test_a_field_of_an_interface_is_as_short_lived_as_that_of_any_type_that_has_it() -> None:
    @strawberry.interface
    class Animal:
        name: str

    def aged(seconds: int, kind: Any = str) -> Any:
        pattern = dataclasses.replace(EVENT, max_age=seconds)
        return strawberry.field(resolver=lambda: None, graphql_type=kind, metadata={"patterns": (pattern,)})

    @strawberry.type
    class Cat(Animal):
        name: str = aged(20)

    @strawberry.type
    class Dog(Animal):
        name: str = aged(10)

    @strawberry.type
    class Query:
        animal: Animal = aged(30, Animal)

    documents = Documents(strawberry.Schema(Query, types=[Cat, Dog]))
    ages = CacheControl(documents.schema)

    def age(text: str) -> int:
        return ages.max_age(documents.prepare(text).operation(None))

    assert [age(text) for text in ("{ animal { name } }", "{ animal { ... on Cat { name } } }")] == [10, 20]
    assert age("{ animal { __typename } }") == 30


def test_only_public_data_declares_an_age() -> None:
    lasting = [pattern for pattern in PATTERNS if pattern.max_age]

    assert lasting
    assert {(pattern.who, pattern.personal, pattern.reads) for pattern in lasting} == {(Who.ANY, False, True)}


def test_the_docs_name_every_age() -> None:
    table = dict(
        re.findall(r"^\| `([^|]+)` \| ([\d,]+) s \|", (ROOT / "docs" / "persisted-documents.md").read_text(), re.M)
    )

    received = {
        name: int(seconds.replace(",", "")) for names, seconds in table.items() for name in re.split(r"`, `", names)
    }
    assert received == {
        field: pattern.max_age
        for pattern in PATTERNS
        if pattern.max_age
        for field in pattern.fields
        if field not in ("node", "nodes")
    }
