"""Resolvers that take `info` receive graphql-core's paths, each part of which is built once, however deep it is."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from graphql import (
    DocumentNode,
    GraphQLField,
    GraphQLList,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLString,
    execute,
    parse,
)
from graphql.execution import Executor
from graphql.pyutils import Path

from jit import field_plan
from tests.support.executors import CompilingExecutor, EagerExecutor

DEPTHS = (1, 2, 20, 80, 190)


def resolve(source: Any, info: Any) -> Any:
    return source


async def resolve_soon(source: Any, info: Any) -> Any:
    return source


async def resolve_later(source: Any, info: Any) -> Any:
    await asyncio.sleep(0)
    return source


def nested_schema(resolve: Callable[[Any, Any], Any]) -> GraphQLSchema:
    node: GraphQLObjectType = GraphQLObjectType(
        "Node",
        lambda: {
            "node": GraphQLField(node, resolve=resolve),
            "nodes": GraphQLField(GraphQLList(node), resolve=lambda source, info: [source] * 3),
            "path": GraphQLField(GraphQLString, resolve=lambda source, info: repr(info.path)),
        },
    )
    return GraphQLSchema(node)


async def data_by(executor: type[Executor[Any]] | None, schema: GraphQLSchema, document: DocumentNode) -> Any:
    result = execute(schema, document, "value", executor_class=executor)
    answer = await result if isinstance(result, Awaitable) else result
    assert answer.errors is None
    return answer.data


@contextmanager
def counted_calls() -> Iterator[list[str]]:
    """Add the name of each Python function that is called in the block."""
    calls: list[str] = []

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    # The collector calls Python functions: finalizers, and callbacks of other libraries.
    gc.disable()
    sys.setprofile(on_event)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        gc.enable()


@pytest.fixture
def built_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The parts of graphql-core's paths that compiled operations have built."""
    built: list[Path] = []

    def build(*parts: Any) -> Path:
        built.append(Path(*parts))
        return built[-1]

    monkeypatch.setattr(field_plan, "CorePath", build)
    return built


@pytest.fixture(autouse=True)
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("executor", [CompilingExecutor, EagerExecutor])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("resolve", [resolve, resolve_soon, resolve_later])
async def test_a_compiled_operation_calls_fewer_functions_than_graphql_core_at_any_depth(
    resolve: Callable[[Any, Any], Any], depth: int, executor: type[Executor[Any]]
) -> None:
    schema = nested_schema(resolve)
    document = parse("{ node " * depth + "{ path }" + " }" * depth)
    expected = await data_by(None, schema, document)
    assert await data_by(executor, schema, document) == expected

    with counted_calls() as of_core:
        await data_by(None, schema, document)
    with counted_calls() as of_compiled:
        await data_by(executor, schema, document)

    assert len(of_compiled) < len(of_core)


# With tasks, Python resumes all coroutines around one that waits, each time: graphql-core calls more at each level.
@pytest.mark.parametrize(
    ("resolve", "executor"),
    [
        (resolve, CompilingExecutor),
        (resolve_soon, CompilingExecutor),
        (resolve, EagerExecutor),
        (resolve_soon, EagerExecutor),
        (resolve_later, EagerExecutor),
    ],
)
async def test_the_functions_that_a_compiled_operation_calls_are_linear_in_the_depth(
    resolve: Callable[[Any, Any], Any], executor: type[Executor[Any]]
) -> None:
    schema, counts = nested_schema(resolve), []
    for depth in (10, 20, 30, 190):
        document = parse("{ node " * depth + "{ path }" + " }" * depth)
        await data_by(executor, schema, document)
        with counted_calls() as calls:
            await data_by(executor, schema, document)
        counts.append(len(calls))

    assert counts[2] - counts[1] == counts[1] - counts[0]
    per_level = (counts[1] - counts[0]) // 10
    assert counts[3] == counts[0] + 180 * per_level


@pytest.mark.parametrize("depth", DEPTHS)
async def test_each_part_of_a_path_is_built_once(depth: int, built_paths: list[Path]) -> None:
    schema = nested_schema(resolve)
    document = parse("{ node " * depth + "{ path again: path }" + " }" * depth)

    assert await data_by(CompilingExecutor, schema, document) == await data_by(None, schema, document)

    assert len(built_paths) == depth + 2
    assert len(set(built_paths)) == depth + 2


async def test_the_parts_of_a_path_with_positions_of_lists_are_built_once(built_paths: list[Path]) -> None:
    schema = nested_schema(resolve)
    document = parse("{ nodes { nodes { path node { path } } } }")

    assert await data_by(CompilingExecutor, schema, document) == await data_by(None, schema, document)

    lists, items = 1 + 3, 3 + 9
    assert len(built_paths) == len(set(built_paths)) == lists + items + 9 * 3
