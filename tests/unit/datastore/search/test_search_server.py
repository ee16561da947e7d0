"""The stand-in for OpenSearch refuses invalid requests, and a wrong query gets wrong results."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from datastore.change_streams.change import position_of
from datastore.errors import Internal
from datastore.feeds.search_entries import user_entry
from datastore.model.timestamps import iso
from datastore.search import Audience, Kind, opensearch_queries
from datastore.search.opensearch_index import OpenSearchIndex
from datastore.search.opensearch_queries import MAPPING, NEWER, UPSERT
from tests.support import painless
from tests.support.search_index import find_ids, put_entries, search_entry
from tests.support.search_language import Fields, SearchRefusal, search
from tests.support.search_server import search_server
from tests.support.served import NOON

FIELDS = Fields(
    {
        "dynamic": "strict",
        "properties": {
            "name": {"type": "keyword"},
            "text": {"type": "text", "analyzer": "whitespace"},
            "number": {"type": "long"},
            "hidden": {"type": "keyword", "index": False, "doc_values": False},
        },
    }
)
DOCUMENTS = [
    {"name": "a", "text": "old sea old", "number": 1, "hidden": "x"},
    {"name": "b", "text": "sea old", "number": 2, "hidden": "x"},
    {"name": "é", "text": "seaside", "number": 3, "hidden": "x"},
]


def found_names(query: dict[str, Any], **more: Any) -> list[str]:
    body = {"query": query, "sort": [{"number": "asc"}], "_source": ["name"], **more}
    return [hit["_source"]["name"] for hit in search(FIELDS, DOCUMENTS, body)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"term": {"text": "sea"}}, ["a", "b"]),
        ({"term": {"name": {"value": "a"}}}, ["a"]),
        ({"term": {"absent": "a"}}, []),
        ({"terms": {"name": ["a", "é"]}}, ["a", "é"]),
        ({"prefix": {"text": {"value": "sea"}}}, ["a", "b", "é"]),
        ({"match_phrase": {"text": "old sea"}}, ["a"]),
        ({"range": {"number": {"gte": 2, "lt": 3}}}, ["b"]),
        ({"range": {"name": {"gt": "b"}}}, ["é"]),
        ({"bool": {"must_not": [{"term": {"name": "a"}}]}}, ["b", "é"]),
        ({"bool": {"should": [{"term": {"name": "a"}}]}}, ["a"]),
        ({"bool": {"should": [{"term": {"name": "a"}}], "filter": [{"term": {"text": "sea"}}]}}, ["a", "b"]),
        ({"bool": {"should": {"term": {"name": "a"}}, "filter": [], "minimum_should_match": 1}}, ["a"]),
    ],
)
def test_queries_are_evaluated_on_documents(query: dict[str, Any], found: list[str]) -> None:
    assert found_names(query) == found


def test_scores_add_up_and_only_constant_scores_are_integers() -> None:
    scored = [{"constant_score": {"filter": {"term": {"text": word}}, "boost": 2}} for word in ("sea", "old")]
    assert [FIELDS.score({"bool": {"should": scored}}, document) for document in DOCUMENTS] == [4.0, 4.0, None]
    assert FIELDS.score({"term": {"text": "old"}}, DOCUMENTS[0]) == 2 * 0.2876
    assert FIELDS.score({"bool": {"filter": [{"term": {"text": "old"}}]}}, DOCUMENTS[0]) == 0.0


@pytest.mark.parametrize(
    "body",
    [
        {"query": {"wildcard": {"name": "a*"}}},
        {"query": {"term": {"name": "a"}, "prefix": {"name": "a"}}},
        {"query": {"term": {"name": {"values": "a"}}}},
        {"query": {"term": {"hidden": "x"}}},
        {"query": {"terms": {"name": "a"}}},
        {"query": {"terms": {"name": ["a"] * 65_537}}},
        {"query": {"bool": {"musn't": []}}},
        {"query": {"match_all": {}}, "sort": ["text"]},
        {"query": {"match_all": {}}, "sort": ["hidden"]},
        {"query": {"match_all": {}}, "sort": [{"number": "down"}]},
        {"query": {"match_all": {}}, "sort": ["number"], "search_after": [1, "a"]},
        {"query": {"match_all": {}}, "size": 10_001},
        {"querry": {"match_all": {}}},
    ],
)
def test_invalid_searches_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(SearchRefusal):
        search(FIELDS, DOCUMENTS, body)


@pytest.mark.parametrize(
    "mapping",
    [
        {"dynamic": "strict", "properties": {"a": {"type": "string"}}},
        {"dynamic": "strict", "properties": {"a": {"type": "keyword", "analyzer": "whitespace"}}},
        {"dynamic": "strictly", "properties": {}},
        {"dynamic": "strict", "properties": {}, "fields": {}},
    ],
)
def test_invalid_mappings_are_refused(mapping: dict[str, Any]) -> None:
    with pytest.raises(SearchRefusal):
        Fields(mapping)


@pytest.mark.parametrize("document", [{"more": 1}, {"name": 1}, {"number": 2**63}, {"number": True}])
def test_a_document_that_the_mapping_does_not_allow_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(SearchRefusal):
        FIELDS.check(document)


@pytest.mark.parametrize(
    ("known", "version", "op", "held"),
    [(None, "2", "create", "2"), ("1", "2", "index", "2"), ("2", "2", "none", "2"), ("3", "2", "none", "3")],
)
def test_the_script_of_updates_runs(known: str | None, version: str, op: str, held: str) -> None:
    source = {} if known is None else {"version": known, "gone": True}
    ctx = {"op": "create" if known is None else "index", "_source": source}
    painless.run_painless(NEWER, ctx, {"entry": {"version": version}})
    assert (ctx["op"], source["version"]) == (op, held)
    assert ("gone" in source) is (op == "none")


@pytest.mark.parametrize(
    "source",
    [
        "ctx.op = 'none",
        "ctx.op = none",
        "ctx.op = 'none'; }",
        "if (ctx.op) { ctx.op = 'none' }",
        "if (ctx.op == 'index' { ctx.op = 'none' }",
        "ctx._source.removeAll()",
        "ctx._source.version.compareTo(params.entry.version)",
        "System.exit(1)",
        "ctx = params",
        "ctx.op",
    ],
)
def test_invalid_scripts_are_refused(source: str) -> None:
    with pytest.raises(painless.ScriptError):
        painless.run_painless(source, {"op": "index", "_source": {"version": None}}, {"entry": {"version": "1"}})


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[OpenSearchIndex]:
    async with search_server() as server:
        index = OpenSearchIndex(server.url, f"{tmp_path.name}-")
        yield index
        await index.aclose()


Change = Callable[[dict[str, Any]], Any]
WRONG: dict[str, Change] = {
    "users are found": lambda body: body["query"]["bool"]["filter"].pop(0),
    "hidden posts are found": lambda body: body["query"]["bool"]["must_not"].clear(),
    "the last word must be whole": lambda body: body["query"]["bool"]["filter"][-1]["bool"]["should"].pop(),
    "the order is that of scores alone": lambda body: body["sort"][1].update(order="asc"),
    "words are scored by their number": lambda body: body["query"]["bool"].update(
        should=[one["constant_score"]["filter"] for one in body["query"]["bool"]["should"]]
    ),
}


@pytest.mark.parametrize("wrong", [None, *WRONG])
async def test_a_wrong_query_gives_wrong_results(
    index: OpenSearchIndex, monkeypatch: pytest.MonkeyPatch, wrong: str | None
) -> None:
    await put_entries(
        index,
        search_entry("begins", "harbour seaside", 9),
        search_entry("apart", "sea and harbour and sea and sea", 8),
        search_entry("phrase", "harbour sea", 7),
        search_entry("whole", "sea harbour", 6),
        search_entry("private", "harbour sea", 5, visibility="private"),
    )
    user = user_entry("u", position_of("1"), {"name": "Harbour Sea", "created_at": iso(NOON)})
    await index.write(Kind.USERS, [user])
    await index.refresh()
    right = opensearch_queries.search_body

    def body(*given: Any) -> dict[str, Any]:
        request = right(*given)
        if wrong is not None:
            WRONG[wrong](request)
        return request

    monkeypatch.setattr("datastore.search.opensearch_index.search_body", body)
    found = await find_ids(index, "harbour sea", Audience("bob"))
    assert (found == ["phrase", "apart", "whole", "begins"]) is (wrong is None)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("< 0", "> 0"), ("ctx._source.clear(); ", "ctx._source.remove(); "), ("params.entry.version", "params.version")],
)
async def test_a_wrong_script_does_not_update(
    index: OpenSearchIndex, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    await put_entries(index, search_entry("a", "before"))
    script = UPSERT["script"] | {"source": NEWER.replace(right, wrong)}
    monkeypatch.setitem(UPSERT, "script", script)

    try:
        await put_entries(index, search_entry("a", "after", version=2))
    except Internal:
        pass
    else:
        assert await find_ids(index, "after") == []


async def test_a_wrong_mapping_creates_no_index(index: OpenSearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAPPING, "dynamic", "strictly")
    with pytest.raises(Internal):
        await put_entries(index, search_entry("a", "word"))
