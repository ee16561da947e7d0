"""Executors that compile each operation when it is executed for the first time."""

from typing import Any

import pytest
from graphql import GraphQLSchema, parse

from jit import CachedOperation, CompiledExecutor, operation_of
from jit.operation import CompiledOperation
from jit.strawberry import StrawberryExecutor


class CompilingExecutor(CompiledExecutor):
    compile_after = 1


class EagerExecutor(CompilingExecutor):
    eager = True


class CompilingStrawberryExecutor(StrawberryExecutor):
    compile_after = 1
    types_by_class = True


class EagerStrawberryExecutor(CompilingStrawberryExecutor):
    eager = True


def first_operation(schema: GraphQLSchema, text: str, executor: type[CompiledExecutor]) -> CachedOperation:
    """Return the first operation of a text."""
    document = parse(text, no_location=True)
    return operation_of(executor, schema, document, document.definitions[0])  # type: ignore[arg-type]


def compiled_executions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each execution of a compiled operation is added from now on."""
    started: list[Any] = []
    start = CompiledOperation.start_execution

    def recording(*arguments: Any) -> Any:
        started.append(arguments)
        return start(*arguments)

    monkeypatch.setattr(CompiledOperation, "start_execution", recording)
    return started
