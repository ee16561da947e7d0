"""A plugin for graphql-core's own tests: graphql-core compiles each operation at its first execution.

`make jit-conformance` runs the tests. Those in `DIFFERENT` have to fail, and all others have to pass.
"""

import sys
from typing import Any

import pytest
from graphql import version
from graphql.execution.executor_throwing_on_incremental import ExecutorThrowingOnIncremental
from graphql.execution.incremental.incremental_executor import IncrementalExecutor

from jit import CompiledExecutor
from jit.operation import CompiledOperation

# Node ids of the tests that fail on compiled operations, with the reasons.
DIFFERENT: dict[str, str] = {}
# With fewer compiled executions the plugin has no effect. The tests of 3.3.2 have 413 of them, beside 383 executions by
# graphql-core: of introspection, incremental delivery, abort signals, middleware, hooks, variables of fragments.
LEAST_COMPILED = 400
# `graphql.execution.execute` is the function.
CORE: Any = sys.modules["graphql.execution.execute"]


class CompilingIncrementalExecutor(CompiledExecutor, IncrementalExecutor):
    compile_after = 1


class CompilingSubscriptionExecutor(CompiledExecutor, ExecutorThrowingOnIncremental):
    compile_after = 1


class Executions:
    """The number of compiled executions so far."""

    def __init__(self) -> None:
        self.compiled = 0

    def count(self) -> None:
        start = CompiledOperation.start_execution

        def counting(*arguments: Any) -> Any:
            run = start(*arguments)
            self.compiled += run is not None
            return run

        patched: Any = CompiledOperation
        patched.start_execution = counting


executions = Executions()


def pytest_configure(config: pytest.Config) -> None:
    assert config.rootpath.name == f"graphql_core-{version}", "tests/conformance/requirements.txt has another version."
    CORE.IncrementalExecutor = CompilingIncrementalExecutor
    CORE.ExecutorThrowingOnIncremental = CompilingSubscriptionExecutor
    executions.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in DIFFERENT:
            item.add_marker(pytest.mark.xfail(reason=DIFFERENT[item.nodeid], strict=True))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if executions.compiled < LEAST_COMPILED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{executions.compiled} compiled executions, of at least {LEAST_COMPILED}.")
