"""Random documents with `@defer` and `@stream`: both formats deliver the response of the document without them."""

import json
import random
from typing import Any

import pytest
from graphql import FieldNode, InlineFragmentNode, parse

from server.operations.execution import execute_operation
from server.operations.request import IncrementalFormat, Request
from tests.support.incremental import merged
from tests.support.toy_deferral import StudioContext, prepared_by, studio_runner

# The fields of each type: None for a value, and otherwise the type of the object or the objects.
FIELDS: dict[str, dict[str, str | None]] = {
    "Query": {"film": "Film", "films": "Film"},
    "Film": {"title": None, "maybe": None, "star": "Named", "players": "Player", "nobody": "Named", "twin": "Film"},
    "Named": {"name": None, "__typename": None},
    "Player": {"name": None, "age": None, "__typename": None},
}
LISTS = ("films", "players", "nobody")


class DocumentWriter:
    """A writer of random documents, whose labels are unique."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._labels = 0
        # Fields that are selected repeatedly must agree in `@stream`.
        self._streams = {
            name: self._random.choice(("", f"@stream(initialCount: {number})")) for number, name in enumerate(LISTS)
        }

    def document(self) -> str:
        return self._selections("Query", 5)

    def _selections(self, kind: str, depth: int) -> str:
        count = self._random.randint(1, 4)
        return "{ " + " ".join(self._selection(kind, depth) for _ in range(count)) + " }"

    def _selection(self, kind: str, depth: int) -> str:
        fields = {name: of for name, of in FIELDS[kind].items() if of is None or depth > 1}
        if not fields:
            return "__typename"
        if depth > 1 and self._random.random() < 0.4:
            return f"... {self._defer()} {self._selections(kind, depth - 1)}"
        name, of = self._random.choice(sorted(fields.items()))
        if of is None:
            return name
        return f"{name} {self._streams.get(name, '')} {self._selections(of, depth - 1)}"

    def _defer(self) -> str:
        self._labels += 1
        return self._random.choice(("", "@defer", f'@defer(label: "l{self._labels}")'))


@pytest.mark.parametrize("seed", range(60))
async def test_both_formats_deliver_the_whole_response(seed: int) -> None:
    text = DocumentWriter(seed).document()
    runner = studio_runner([])
    fragments = fields_by_label(text)
    for format in IncrementalFormat:
        request = await prepared_by(runner, text)
        assert isinstance(request, Request), request
        assert request.is_incremental
        result: Any = execute_operation(runner.documents, request, StudioContext(None, None, False))  # type: ignore[arg-type]
        expected = (result if hasattr(result, "data") else await result).data
        payloads = [json.loads(outcome.body) async for outcome in runner.incremental.run(request, format)]
        for part in (part for payload in payloads for part in payload.get("incremental", ()) if "path" in part):
            if "data" in part:
                assert is_part(part["data"], value_at(expected, part["path"])), text
                assert "label" not in part or part["data"].keys() == fragments[part["label"]], text
        assert merged(payloads) == expected, text
        errors = sum(len(errors_in(payload)) for payload in payloads)
        assert errors >= str(expected).count("'maybe'"), text


def fields_by_label(text: str) -> dict[str, set[str]]:
    """Return the fields that each labelled fragment selects, without those of deferred fragments in it."""
    found: dict[str, set[str]] = {}

    def fields(node: Any) -> set[str]:
        names: set[str] = set()
        for selection in node.selection_set.selections:
            is_deferred = bool(selection.directives) and isinstance(selection, InlineFragmentNode)
            below = fields(selection) if selection.selection_set else set()
            if is_deferred and selection.directives[0].arguments:
                found[selection.directives[0].arguments[0].value.value] = below
            if isinstance(selection, FieldNode):
                names.add(selection.name.value)
            elif not is_deferred:
                names |= below
        return names

    fields(parse(text).definitions[0])
    return found


def value_at(data: Any, path: list[Any]) -> Any:
    for key in path:
        data = data[key]
    return data


def is_part(part: Any, whole: Any) -> bool:
    """Return whether a fragment has values of the whole response. A streamed list may be shorter."""
    if isinstance(part, dict):
        return all(is_part(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return all(map(is_part, part, whole))
    return bool(part == whole)


def errors_in(payload: Any) -> list[Any]:
    """Return all errors in a payload."""
    parts = [payload, *payload.get("incremental", ()), *payload.get("completed", ())]
    return [error for part in parts for error in part.get("errors", ())]
