"""OpenSearch's mappings, queries and sorting, evaluated on documents: the part that a search index may use.

It knows nothing of this project's index. What the documentation does not allow is refused with `Refused`.
https://docs.opensearch.org/latest/mappings/ and https://docs.opensearch.org/latest/query-dsl/
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

Document = Mapping[str, Any]

PARAMETERS: dict[str, set[str]] = {
    "keyword": {"type", "index", "doc_values", "ignore_above"},
    "text": {"type", "analyzer", "norms", "index_prefixes"},
    "long": {"type", "index", "doc_values"},
    "boolean": {"type", "index", "doc_values"},
}
BODY = {"size", "from", "query", "sort", "_source", "track_total_hits", "search_after"}
MOST_HITS, MOST_TERMS, MOST_KEYWORD_BYTES = 10_000, 65_536, 32_766
CLAUSES = {"must", "filter", "should", "must_not", "minimum_should_match", "boost"}
BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda held, bound: held > bound,
    "gte": lambda held, bound: held >= bound,
    "lt": lambda held, bound: held < bound,
    "lte": lambda held, bound: held <= bound,
}


class SearchRefusal(Exception):
    """A request that OpenSearch answers with the status 400."""


def allow_only(given: Mapping[str, Any], allowed: set[str], what: str) -> None:
    """Raise `SearchRefusal` for a key that is not allowed."""
    if unknown := sorted(given.keys() - allowed):
        raise SearchRefusal(f"{what} has unknown keys: {', '.join(unknown)}")


class Fields:
    """The fields of a mapping. Raises `SearchRefusal` for an invalid mapping."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        allow_only(mapping, {"dynamic", "properties", "_meta"}, "the mapping")
        if mapping.get("dynamic") not in (True, False, "strict"):
            raise SearchRefusal("`dynamic` must be true, false or strict")
        self._strict = mapping["dynamic"] == "strict"
        self._fields: Mapping[str, Mapping[str, Any]] = mapping["properties"]
        for name, field in self._fields.items():
            if field.get("type") not in PARAMETERS:
                raise SearchRefusal(f"the field {name} has no type that is known here")
            allow_only(field, PARAMETERS[field["type"]], f"the field {name}")
            if field.get("analyzer", "whitespace") != "whitespace":
                raise SearchRefusal("only the analyzer `whitespace` is known here")

    def check(self, document: Document) -> None:
        """Raise `SearchRefusal` for a document that cannot be stored."""
        if self._strict:
            allow_only(document, set(self._fields), "the document")
        for name, value in document.items():
            if not _fits(self._fields[name]["type"], value):
                raise SearchRefusal(f"the field {name} cannot be {value!r}")

    def terms(self, name: str, document: Document) -> list[Any]:
        """Return the terms under which a field is indexed; none for a field that is not mapped."""
        field = self._fields.get(name)
        if field is None or document.get(name) is None:
            return []
        if field.get("index", True) is False:
            raise SearchRefusal(f"the field {name} is not indexed")
        value = document[name]
        return value.split() if field["type"] == "text" else [value]

    def is_text(self, name: str) -> bool:
        field = self._fields.get(name)
        return field is not None and field["type"] == "text"

    def sort_value(self, name: str, document: Document) -> Any:
        """Return the sort value of a field. Strings sort by their bytes."""
        field = self._fields.get(name)
        if field is None or field["type"] == "text" or field.get("doc_values", True) is False:
            raise SearchRefusal(f"nothing can be sorted by the field {name}")
        return document[name]

    def score(self, query: Mapping[str, Any], document: Document) -> float | None:
        """Return the score of a document, or None if the query does not match it."""
        if not isinstance(query, dict) or len(query) != 1:
            raise SearchRefusal(f"a query has one kind: {query!r}")
        ((kind, given),) = query.items()
        if kind == "match_all":
            return 1.0
        if kind == "bool":
            return self._bool(given, document)
        if kind == "constant_score":
            allow_only(given, {"filter", "boost"}, kind)
            return None if self.score(given["filter"], document) is None else float(given.get("boost", 1.0))
        if kind not in ("term", "terms", "prefix", "match_phrase", "range", "exists"):
            raise SearchRefusal(f"the query {kind} is not known here")
        count = getattr(self, f"_{kind}")(given, document)
        # The relevance of words depends on all documents: a fraction that grows with the number of matches.
        return 0.2876 * count if count else None

    def _bool(self, given: Mapping[str, Any], document: Document) -> float | None:
        allow_only(given, CLAUSES, "bool")
        clauses = {name: _listed(given.get(name, [])) for name in ("must", "filter", "should", "must_not")}
        scores = {name: [self.score(one, document) for one in of] for name, of in clauses.items()}
        least = given.get(
            "minimum_should_match", int(bool(clauses["should"]) and not (given.keys() & {"must", "filter"}))
        )
        if None in scores["must"] + scores["filter"] or any(one is not None for one in scores["must_not"]):
            return None
        optional = [one for one in scores["should"] if one is not None]
        if len(optional) < least:
            return None
        boost = float(given.get("boost", 1.0))
        return boost * float(sum(optional) + sum(one for one in scores["must"] if one is not None))

    def _term(self, given: Mapping[str, Any], document: Document) -> int:
        name, value = _of_one_field(given, "value", {"boost", "case_insensitive"})
        return self.terms(name, document).count(value)

    def _terms(self, given: Mapping[str, Any], document: Document) -> int:
        ((name, values),) = given.items()
        if not isinstance(values, list) or len(values) > MOST_TERMS:
            raise SearchRefusal(f"`terms` takes a list of up to {MOST_TERMS} values")
        return int(any(one in set(values) for one in self.terms(name, document)))

    def _prefix(self, given: Mapping[str, Any], document: Document) -> int:
        name, value = _of_one_field(given, "value", {"boost"})
        return sum(isinstance(one, str) and one.startswith(value) for one in self.terms(name, document))

    def _match_phrase(self, given: Mapping[str, Any], document: Document) -> int:
        name, value = _of_one_field(given, "query", {"boost"})
        held = self.terms(name, document)
        asked = value.split() if self.is_text(name) else [value]
        return sum(held[at : at + len(asked)] == asked for at in range(len(held) - len(asked) + 1)) if asked else 0

    def _range(self, given: Mapping[str, Any], document: Document) -> int:
        ((name, bounds),) = given.items()
        allow_only(bounds, set(BOUNDS), "range")
        held = [_ordered(one) for one in self.terms(name, document)]
        return sum(all(BOUNDS[kind](one, _ordered(bound)) for kind, bound in bounds.items()) for one in held)

    def _exists(self, given: Mapping[str, Any], document: Document) -> int:
        allow_only(given, {"field"}, "exists")
        return int(bool(self.terms(given["field"], document)))


def search(fields: Fields, documents: Sequence[Document], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the hits of a search, as OpenSearch lists them."""
    allow_only(body, BODY, "the search")
    size = body.get("size", 10)
    if body.get("from", 0) + size > MOST_HITS:
        raise SearchRefusal(f"at most {MOST_HITS} hits can be asked for")
    order = [_sorting(one) for one in body.get("sort", ["_score"])]
    after = body.get("search_after")
    if after is not None and len(after) != len(order):
        raise SearchRefusal("`search_after` must have a value for each of `sort`")
    found: list[tuple[list[Any], Document]] = []
    for document in documents:
        score = fields.score(body.get("query", {"match_all": {}}), document)
        if score is not None:
            values = [score if name == "_score" else fields.sort_value(name, document) for name, _ in order]
            found.append((values, document))

    def compare(one: Sequence[Any], other: Sequence[Any]) -> int:
        for (_, descends), a, b in zip(order, one, other, strict=True):
            if _ordered(a) != _ordered(b):
                return (1 if _ordered(a) > _ordered(b) else -1) * (-1 if descends else 1)
        return 0

    place = cmp_to_key(compare)
    found.sort(key=lambda one: place(one[0]))
    behind = [one for one in found if after is None or compare(one[0], after) > 0][body.get("from", 0) :][:size]
    return [
        {"sort": values, "_source": {name: one[name] for name in body.get("_source", one)}} for values, one in behind
    ]


def _listed(clauses: Any) -> list[Mapping[str, Any]]:
    return clauses if isinstance(clauses, list) else [clauses]


def _of_one_field(given: Mapping[str, Any], key: str, more: set[str]) -> tuple[str, Any]:
    if len(given) != 1:
        raise SearchRefusal("a query of a field names one field")
    ((name, said),) = given.items()
    if not isinstance(said, dict):
        return name, said
    allow_only(said, {key, *more}, f"the query of {name}")
    return name, said[key]


def _sorting(said: Any) -> tuple[str, bool]:
    if isinstance(said, str):
        return said, said == "_score"
    ((name, order),) = said.items()
    order = order["order"] if isinstance(order, dict) else order
    if order not in ("asc", "desc"):
        raise SearchRefusal("the order is asc or desc")
    return name, order == "desc"


def _ordered(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _fits(kind: str, value: Any) -> bool:
    if kind == "keyword":
        return isinstance(value, str) and len(value.encode()) <= MOST_KEYWORD_BYTES
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
