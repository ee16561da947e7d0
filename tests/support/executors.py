"""Executors that compile each operation when it is executed for the first time."""

from typing import Any

import pytest

from jit import CompiledExecutor
from jit.operation import CompiledOperation
from jit.strawberry import StrawberryExecutor


class CompilingExecutor(CompiledExecutor):
    compile_after = 1


class CompilingStrawberryExecutor(StrawberryExecutor):
    compile_after = 1
    types_by_class = True


def compiled_executions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each execution of a compiled operation is added from now on."""
    started: list[Any] = []
    start = CompiledOperation.start_execution

    def recording(*arguments: Any) -> Any:
        started.append(arguments)
        return start(*arguments)

    monkeypatch.setattr(CompiledOperation, "start_execution", recording)
    return started
