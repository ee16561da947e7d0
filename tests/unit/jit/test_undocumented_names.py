"""The names that jit/ uses although their libraries do not document them: a new version may change each of them.

A failure of a test says which name a new version has changed.
"""

import ast
import asyncio
import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import strawberry
from graphql import build_schema, execute_sync, parse
from graphql.execution import Executor
from graphql.execution.collect_fields import FieldDetails
from graphql.execution.execute import assume_not_async_iterable, assume_not_awaitable
from graphql.type.directives import GraphQLDisableErrorPropagationDirective
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types.arguments import convert_arguments
from strawberry.types.base import StrawberryMaybe, StrawberryOptional
from strawberry.types.enum import StrawberryEnumDefinition, has_enum_definition
from strawberry.types.info import Info

from jit.strawberry import CONVERTER, CREATED_IN
from tests.support.store_engines import ROOT

# asyncio documents the first two for implementations of tasks, and the third for those of futures.
OF_ASYNCIO = {"_enter_task", "_leave_task", "_asyncio_future_blocking"}
OF_GRAPHQL = {
    "FieldDetails",
    "GraphQLDisableErrorPropagationDirective",
    "assume_not_async_iterable",
    "assume_not_awaitable",
    "build_resolve_info",
    "ensure_valid_runtime_type",
}
OF_STRAWBERRY = {
    "StrawberryGraphQLCoreExecutionContext",
    "StrawberryMaybe",
    "_field",
    "_raw_info",
    "_strawberry_schema",
    "convert_arguments",
    "has_enum_definition",
}
# Modules that graphql-core documents, or whose names it exports from such a module.
DOCUMENTED = {"graphql", "graphql.execution", "graphql.language", "graphql.pyutils", "graphql.type"}


def sources_of_jit() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted((ROOT / "jit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield path, node


def names_of_attributes() -> set[str]:
    """The private attributes of objects other than `self` and `cls`, and those that are overridden."""
    names = set()
    for _, node in sources_of_jit():
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        ):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)
    return {name for name in names if name.startswith("_") and not name.startswith("__") and name != "_"}


def own_names() -> set[str]:
    """The private names that jit/ itself defines."""
    names = {"_jit_cache"}
    for _, node in sources_of_jit():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return names - OF_ASYNCIO - OF_STRAWBERRY


def undocumented_imports() -> set[str]:
    names = set()
    for _, node in sources_of_jit():
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        library = node.module.partition(".")[0]
        if library not in ("graphql", "strawberry") or node.module in DOCUMENTED:
            continue
        exported = getattr(importlib.import_module(node.module), "__all__", ())
        parent = importlib.import_module(node.module.rpartition(".")[0] or library)
        documented = exported if library == "strawberry" else parent.__all__
        names |= {alias.name for alias in node.names if alias.name not in documented}
    return names


def undocumented_methods() -> set[str]:
    documentation = {name: getattr(value, "__doc__", None) or "" for name, value in vars(Executor).items()}
    private = {name for name, text in documentation.items() if ":meta private:" in text}
    called = {
        node.attr
        for _, node in sources_of_jit()
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("executor")
    }
    return called & private


def changed(library: str, name: str) -> str:
    return f"{library} {version(library)} has changed {name}: adapt jit/, then this test."


def test_the_undocumented_names_are_those_that_are_tested_here() -> None:
    used = (names_of_attributes() - own_names()) | undocumented_imports() | undocumented_methods()

    assert used | {"_field", "_raw_info"} == OF_ASYNCIO | OF_GRAPHQL | OF_STRAWBERRY


async def test_asyncio_has_a_current_task_that_is_no_task() -> None:
    loop, task, other = asyncio.get_running_loop(), asyncio.current_task(), object()
    enter: Any = asyncio._enter_task
    leave: Any = asyncio._leave_task
    leave(loop, task)
    try:
        assert asyncio.current_task() is None, "asyncio._leave_task has changed."
        enter(loop, other)
        found: object = asyncio.current_task()
        leave(loop, other)
    finally:
        enter(loop, task)

    assert found is other, "asyncio._enter_task has changed."
    assert asyncio.current_task() is task


async def test_asyncio_marks_a_future_that_is_awaited() -> None:
    future = asyncio.get_running_loop().create_future()

    assert next(iter(future.__await__())) is future
    assert future._asyncio_future_blocking is True, "asyncio has changed Future._asyncio_future_blocking."


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (Executor.build_resolve_info, ["self", "field_def", "field_nodes", "parent_type", "path"]),
        (
            Executor.ensure_valid_runtime_type,
            ["self", "runtime_type_name", "return_type", "field_details_list", "info", "result"],
        ),
    ],
)
def test_the_methods_of_the_executor(method: Any, parameters: list[str]) -> None:
    assert [*inspect.signature(method).parameters] == parameters, changed("graphql-core", method.__qualname__)


def test_the_values_of_graphql_core() -> None:
    assert FieldDetails._fields[:2] == ("node", "defer_usage"), changed("graphql-core", "FieldDetails")
    directive = GraphQLDisableErrorPropagationDirective.name
    assert directive == "experimental_disableErrorPropagation", changed("graphql-core", "the directive")


def test_the_predicates_of_execute_sync() -> None:
    class Recording(Executor[Any]):
        def execute_operation(self, serially: bool | None = None) -> Any:
            assert self.is_awaitable is assume_not_awaitable, changed("graphql-core", "execute_sync")
            assert self.is_async_iterable is assume_not_async_iterable, changed("graphql-core", "execute_sync")
            return super().execute_operation(serially)

    schema = build_schema("type Query { a: Int }")

    assert execute_sync(schema, parse("{ a }"), {"a": 1}, executor_class=Recording).data == {"a": 1}


# Strawberry


def size(info: strawberry.Info) -> int:
    return 1


@strawberry.enum
class Unit(Enum):
    METRE = "m"


@strawberry.type
class Sizes:
    name: str
    size: int = strawberry.field(resolver=size)


SCHEMA = strawberry.Schema(Sizes)


def changed_strawberry(name: str) -> str:
    return changed("strawberry-graphql", name)


@pytest.mark.parametrize(("name", "variable"), [("name", "field"), ("size", "field_exception_handlers")])
def test_the_resolvers_that_strawberry_creates(name: str, variable: str) -> None:
    query: Any = SCHEMA._schema.query_type
    field = query.fields[name]

    message = changed_strawberry("GraphQLCoreConverter.from_resolver")
    assert field.resolve.__module__ == CONVERTER, message
    assert CREATED_IN in field.resolve.__qualname__, message
    assert variable in field.resolve.__code__.co_freevars, message
    assert field.extensions["strawberry-definition"].python_name == name, message


def test_the_info_and_the_schema_of_strawberry() -> None:
    schema: Any = SCHEMA._schema

    assert [*inspect.signature(Info).parameters] == ["_raw_info", "_field"], changed_strawberry("Info")
    assert schema._strawberry_schema is SCHEMA, changed_strawberry("_strawberry_schema")
    assert SCHEMA.config.info_class is Info, changed_strawberry("StrawberryConfig.info_class")
    assert SCHEMA.execution_context_class is StrawberryGraphQLCoreExecutionContext, changed_strawberry("Schema")


def test_the_arguments_of_strawberry() -> None:
    parameters = [*inspect.signature(convert_arguments).parameters]
    maybe: Any = StrawberryMaybe(int)

    assert parameters == ["value", "arguments", "scalar_registry", "config", "info"], changed_strawberry(
        "convert_arguments"
    )
    assert int in SCHEMA.schema_converter.scalar_registry, changed_strawberry("the registry of scalars")
    assert callable(SCHEMA.config.name_converter.from_argument), changed_strawberry("NameConverter.from_argument")
    assert has_enum_definition(Unit), changed_strawberry("has_enum_definition")
    assert isinstance(Unit.__strawberry_definition__, StrawberryEnumDefinition), changed_strawberry("enums")
    assert isinstance(maybe, StrawberryOptional), changed_strawberry("StrawberryMaybe")
