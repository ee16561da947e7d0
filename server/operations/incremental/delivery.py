"""Incremental delivery: the payloads of an operation with `@defer` and `@stream`, in the two formats of clients.

https://specs.apollo.dev/incremental/v0.2/ is the format of the present proposal, which graphql-core implements: results
have ids. The format of 2022 names each result by its path and label:
https://github.com/graphql/graphql-spec/tree/48cf7263a71a683fab03d45d309fd42d8d9a6659/spec
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
from graphql import GraphQLError
from graphql.execution.collect_fields import DeferUsage
from graphql.execution.types import (
    CompletedResult,
    IncrementalDeferResult,
    IncrementalStreamResult,
    InitialIncrementalExecutionResult,
    PendingResult,
    SubsequentIncrementalExecutionResult,
)
from msgspec import field

from server.operations.incremental.executor import DeliveryPlan
from server.operations.outcome import Outcome

Payload = dict[str, Any]
# The position of a value in a response.
Position = list[str | int]
FormatErrors = Callable[[Sequence[GraphQLError]], list[dict[str, Any]]]


class IncrementalOutcome(Outcome):
    """A payload of an incremental response. Its errors belong to parts of the response."""

    payload: Payload = field(default_factory=dict)
    is_recoverable: bool = True

    @property
    def body(self) -> bytes:
        """The encoded payload. Raises `TypeError` if JSON cannot express a value."""
        if self._body is None:
            extensions = {"extensions": self.extensions} if self.extensions else {}
            self._body = orjson.dumps(self.payload | extensions)
        return self._body

    @property
    def is_last(self) -> bool:
        """Whether no payload follows."""
        return not self.payload["hasNext"]


class IncrementalDelivery(Protocol):
    """The delivery of one response. The payload of each step must be encoded before the next step."""

    #: The pending results that the payloads so far announce, by their ids.
    pending: dict[str, PendingResult]

    def begin(self, result: InitialIncrementalExecutionResult) -> Payload:
        """Return the first payload."""

    def next(self, result: SubsequentIncrementalExecutionResult) -> Payload:
        """Return the payload of a further result."""

    def fail(self, pending: Mapping[str, PendingResult], errors: list[dict[str, Any]]) -> Payload:
        """Return the last payload: these results have failed with these formatted errors."""


class DeliveryByIds:
    """The delivery in `IncrementalFormat.IDS`."""

    def __init__(self, format_errors: FormatErrors) -> None:
        self._format_errors = format_errors
        self.pending: dict[str, PendingResult] = {}

    def begin(self, result: InitialIncrementalExecutionResult) -> Payload:
        return {"data": result.data, **self._errors(result.errors), "pending": self._announced(result.pending)} | {
            "hasNext": True
        }

    def next(self, result: SubsequentIncrementalExecutionResult) -> Payload:
        payload: Payload = {"hasNext": result.has_next}
        if result.pending:
            payload["pending"] = self._announced(result.pending)
        if result.incremental:
            payload["incremental"] = [self._incremental(part) for part in result.incremental]
        if result.completed:
            payload["completed"] = [self._completed(part) for part in result.completed]
        return payload

    def fail(self, pending: Mapping[str, PendingResult], errors: list[dict[str, Any]]) -> Payload:
        return {"completed": [{"id": id, "errors": errors} for id in pending], "hasNext": False}

    def _announced(self, pending: Sequence[PendingResult]) -> list[Payload]:
        self.pending.update((result.id, result) for result in pending)
        return [{"id": result.id, "path": result.path, **_label(result)} for result in pending]

    def _incremental(self, part: IncrementalDeferResult | IncrementalStreamResult) -> Payload:
        value = {"items": part.items} if isinstance(part, IncrementalStreamResult) else {"data": part.data}
        below = {"subPath": part.sub_path} if part.sub_path else {}
        return {"id": part.id, **below, **value, **self._errors(part.errors)}

    def _completed(self, part: CompletedResult) -> Payload:
        self.pending.pop(part.id, None)
        return {"id": part.id, **self._errors(part.errors)}

    def _errors(self, errors: Sequence[GraphQLError] | None) -> Payload:
        return {"errors": self._format_errors(errors)} if errors else {}


class DeliveryByPaths:
    """The delivery in `IncrementalFormat.PATHS`.

    graphql-core sends each field once. In this format a fragment has all of its fields, also those that the client has
    received before: clients such as Relay read each fragment by itself. Therefore the response is merged here.
    """

    def __init__(self, plan: DeliveryPlan, format_errors: FormatErrors) -> None:
        self._plan = plan
        self._format_errors = format_errors
        self._data: Any = None
        self.pending: dict[str, PendingResult] = {}
        self._part_errors: dict[str, list[GraphQLError]] = {}
        self._unstreamed: dict[tuple[str | int, ...], int] = {}  # the items of streamed lists that were not streamed

    def begin(self, result: InitialIncrementalExecutionResult) -> Payload:
        self._data = result.data
        self._announce(result.pending)
        return {"data": result.data, **self._errors(result.errors), "hasNext": True}

    def next(self, result: SubsequentIncrementalExecutionResult) -> Payload:
        parts: list[Payload] = []
        self._announce(result.pending or ())
        for part in result.incremental or ():
            if isinstance(part, IncrementalStreamResult):
                parts.append(self._items(part))
            else:
                _merge(self._at(self._position(part)), part.data)
                self._part_errors.setdefault(part.id, []).extend(part.errors or ())
        for completed in result.completed or ():
            pending = self.pending.pop(completed.id)
            errors = [*self._part_errors.pop(completed.id, ()), *(completed.errors or ())]
            if completed.errors:
                parts.append(self._failed(pending) | self._errors(errors))
            elif completed.id in self._plan.fragments:
                parts.append(self._fragment(completed.id, pending) | self._errors(errors))
        parts.sort(key=lambda part: len(part["path"]))  # a client has to receive a part before the parts beneath it
        return ({"incremental": parts} if parts else {}) | {"hasNext": result.has_next}

    def fail(self, pending: Mapping[str, PendingResult], errors: list[dict[str, Any]]) -> Payload:
        parts = [self._failed(result) | {"errors": errors} for result in pending.values()]
        return {"incremental": parts, "hasNext": False}

    def _announce(self, pending: Sequence[PendingResult]) -> None:
        self.pending.update((result.id, result) for result in pending)

    def _items(self, part: IncrementalStreamResult) -> Payload:
        position = self._position(part)
        items = self._at(position)
        self._unstreamed.setdefault(tuple(position), len(items))
        path = [*position, len(items)]
        items += part.items
        return {"items": part.items, "path": path, **_label(self.pending[part.id]), **self._errors(part.errors)}

    def _fragment(self, id: str, pending: PendingResult) -> Payload:
        data = self._selected(self._at(pending.path), tuple(pending.path), self._plan.fragments[id])
        return {"data": data, "path": pending.path, **_label(pending)}

    def _failed(self, pending: PendingResult) -> Payload:
        if pending.id in self._plan.fragments:
            return {"data": None, "path": pending.path, **_label(pending)}
        return {"items": None, "path": [*pending.path, len(self._at(pending.path))], **_label(pending)}

    def _selected(self, value: Any, path: tuple[str | int, ...], usage: DeferUsage) -> Any:
        """Return the part of a value that a deferred fragment selects."""
        if isinstance(value, list):
            items = value[: self._unstreamed.get(path, len(value))]
            return [self._selected(item, (*path, index), usage) for index, item in enumerate(items)]
        fields = self._plan.fields.get(path) if isinstance(value, dict) else None
        if fields is None:
            return value
        selected = [key for key, nodes in fields.items() if key in value and any(n.defer_usage is usage for n in nodes)]
        return {key: self._selected(value[key], (*path, key), usage) for key in selected}

    def _position(self, part: IncrementalDeferResult | IncrementalStreamResult) -> Position:
        return [*self.pending[part.id].path, *(part.sub_path or ())]

    def _at(self, position: Position) -> Any:
        value = self._data
        for key in position:
            value = value[key]
        return value

    def _errors(self, errors: Sequence[GraphQLError] | None) -> Payload:
        return {"errors": self._format_errors(errors)} if errors else {}


def _label(result: PendingResult) -> Payload:
    return {} if result.label is None else {"label": result.label}


def _merge(target: Any, addition: Any) -> None:
    """Add the values of an object or a list that the target does not have."""
    keys = addition if isinstance(addition, dict) else range(len(addition))
    for key in keys:
        if isinstance(target, dict) and key not in target:
            target[key] = addition[key]
        elif isinstance(addition[key], dict | list):
            _merge(target[key], addition[key])
