"""Requests to OpenSearch: the mapping of entries, and queries in its query language.

https://docs.opensearch.org/latest/query-dsl/
"""

from collections.abc import Sequence
from typing import Any

from datastore.search import Audience, Kind, Position
from datastore.search.queries import Query, Term

SETTINGS = {"index": {"number_of_shards": 1, "number_of_replicas": 1}}
# The words are already folded and split. Phrase queries need positions. No score depends on frequencies, since they
# change with every post and cursors would lose their position.
_WORDS = {"type": "text", "analyzer": "whitespace", "norms": False, "index_prefixes": {}}
MAPPING = {
    "dynamic": "strict",
    "properties": {
        "kind": {"type": "keyword"},
        "id": {"type": "keyword"},
        "version": {"type": "keyword", "index": False, "doc_values": False},
        "order": {"type": "long"},
        "words": _WORDS,
        "tags": _WORDS,
        "author": {"type": "keyword"},
        "visibility": {"type": "keyword"},
        "removed": {"type": "boolean"},
    },
}
# Versions compare as text: all have the same number of digits, except the empty version of scanned entries.
NEWER = (
    "if (ctx.op == 'create' || ctx._source.version.compareTo(params.entry.version) < 0)"
    " { ctx._source.clear(); ctx._source.putAll(params.entry) } else { ctx.op = 'none' }"
)
UPSERT: dict[str, Any] = {"scripted_upsert": True, "upsert": {}, "script": {"lang": "painless", "source": NEWER}}


def search_body(
    kind: Kind, query: Query, limit: int, after: Position | None, audience: Audience | None
) -> dict[str, Any]:
    """Return the body of a search: the terms are a filter, and the score is the tier of `fts_queries.tiers`."""
    *others, last = query.terms
    required = [_whole(term) for term in others]
    required.append({"bool": {"should": [_whole(last), _prefix(last)], "minimum_should_match": 1}})
    filters = [{"term": {"kind": kind.value}}, {"term": {"removed": False}}, *required]
    boosts = [_scored(_whole(last))]
    if query.phrase:
        boosts.append(_scored({"match_phrase": {"words": " ".join(query.phrase)}}))
    body: dict[str, Any] = {
        "size": limit,
        "query": {
            "bool": {"filter": filters, "should": boosts, "minimum_should_match": 0, "must_not": _hidden(audience)}
        },
        "sort": [{"_score": "desc"}, {"order": "desc"}, {"id": "asc"}],
        "_source": ["author", "visibility"],
        "track_total_hits": False,
    }
    return body if after is None else body | {"search_after": [after.score, after.order, after.id]}


def _field(term: Term) -> str:
    return "tags" if term.tag else "words"


def _whole(term: Term) -> dict[str, Any]:
    return {"term": {_field(term): {"value": term.text}}}


def _prefix(term: Term) -> dict[str, Any]:
    return {"prefix": {_field(term): {"value": term.text}}}


def _scored(query: dict[str, Any]) -> dict[str, Any]:
    return {"constant_score": {"filter": query, "boost": 1}}


def _hidden(audience: Audience | None) -> list[dict[str, Any]]:
    """Return a query for the posts that the viewer cannot see, as far as this is known."""
    if audience is None:
        return []
    if audience.user_id is None:
        return [{"terms": {"visibility": ["private", "followers"]}}]
    hidden = [_of_others([audience.user_id], "private")]
    if audience.followees is not None:
        # OpenSearch takes up to 65,536 terms (index.max_terms_count).
        hidden.append(_of_others([audience.user_id, *sorted(audience.followees)], "followers"))
    return hidden


def _of_others(authors: Sequence[str], visibility: str) -> dict[str, Any]:
    others = {"bool": {"must_not": [{"terms": {"author": authors}}]}}
    return {"bool": {"filter": [{"term": {"visibility": {"value": visibility}}}, others]}}
