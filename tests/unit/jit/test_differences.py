"""The differences from graphql-core that docs/execution.md lists. A test fails if one disappears."""

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, GraphQLScalarType, GraphQLSchema, build_schema, execute, execute_sync, parse
from graphql.execution import Executor

from tests.support.executors import CompilingExecutor, CompilingStrawberryExecutor, EagerExecutor

EXECUTORS = [Executor, CompilingExecutor, EagerExecutor]


def started(schema: GraphQLSchema, text: str, root: Any, executor: type[Executor[Any]]) -> Any:
    return execute(schema, parse(text), root, executor_class=executor)


async def result_of(schema: GraphQLSchema, text: str, root: Any, executor: type[Executor[Any]]) -> Any:
    result: Any = started(schema, text, root, executor)
    return await result if isawaitable(result) else result


def failures(result: ExecutionResult) -> list[str]:
    return [f"{'.'.join(map(str, error.path or ()))}: {error.message}" for error in result.errors or ()]


async def returns_at_once(info: Any) -> str:
    return "a"


async def fails(info: Any) -> str:
    raise ValueError("failed")


async def fails_later(info: Any) -> str:
    await asyncio.sleep(0)
    raise ValueError("failed later")


def fails_without_awaiting(info: Any) -> str:
    raise ValueError("failed first")


# Compiled execution


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_an_awaitable_instance_of_a_known_class(executor: type[Executor[Any]]) -> None:
    class Thing:
        name = "thing"

    schema = build_schema("type Query { things: [Thing] } type Thing { name: String }")
    things = [Thing(), Thing()]
    document = parse("{ things { name } }")
    execute(schema, document, {"things": things}, executor_class=executor)
    things[1].__await__ = lambda: iter(())  # type: ignore[attr-defined]

    result: Any = execute(schema, document, {"things": things}, executor_class=executor)
    data = (await result if isawaitable(result) else result).data

    assert data["things"][1] == (None if executor is Executor else {"name": "thing"})


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_document_that_is_nested_too_deeply_for_graphql_core(executor: type[Executor[Any]]) -> None:
    class Query:
        name = "a"

        @property
        def me(self) -> "Query":
            return self

    depth = sys.getrecursionlimit() // 6
    schema = build_schema("type Query { me: Query name: String }")
    text = "{ me " * depth + "{ name }" + " }" * depth

    first = await result_of(schema, text, Query(), executor)
    second = await result_of(schema, text, Query(), executor)

    assert (first.errors is None) == (second.errors is None) == (executor is not Executor)


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_scalar_whose_function_is_replaced(executor: type[Executor[Any]]) -> None:
    schema = build_schema("scalar Odd type Query { odd: Odd }")
    odd = schema.type_map["Odd"]
    assert isinstance(odd, GraphQLScalarType)
    await result_of(schema, "{ odd }", {"odd": 1}, executor)
    document = parse("{ odd }")

    def run() -> Any:
        result: Any = execute(schema, document, {"odd": 1}, executor_class=executor)
        return result.data

    before = run()
    odd.coerce_output_value = lambda value: "replaced"

    assert before == {"odd": 1}
    assert run() == {"odd": "replaced" if executor is Executor else 1}


async def test_properties_are_read_again_beside_an_uncommon_value() -> None:
    reads: list[str] = []

    @strawberry.type
    class Query:
        name: str | None = None
        wrong: int = 1

    class Root:
        wrong = None

        @property
        def name(self) -> str:
            reads.append("name")
            return "a"

    schema = strawberry.Schema(Query, execution_context_class=CompilingStrawberryExecutor)
    result = await schema.execute("{ name wrong }", root_value=Root())

    assert [error.message for error in result.errors or ()] == [
        "Cannot return null for non-nullable field Query.wrong."
    ]
    assert reads == ["name", "name"]


# Eager execution


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_when_coroutines_start(executor: type[Executor[Any]]) -> None:
    calls: list[int] = []

    async def call(info: Any) -> str:
        calls.append(1)
        return "a"

    result = started(build_schema("type Query { a: String }"), "{ a }", {"a": call}, executor)

    assert bool(calls) == (not isawaitable(result)) == (executor is EagerExecutor)
    data = (await result if isawaitable(result) else result).data
    assert (data, calls) == ({"a": "a"}, [1])


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_results_that_must_be_there_without_awaiting(executor: type[Executor[Any]]) -> None:
    schema = build_schema("type Query { a: String }")

    def run() -> Any:
        return execute_sync(schema, parse("{ a }"), {"a": returns_at_once}, check_sync=True, executor_class=executor)

    if executor is EagerExecutor:
        assert run().data == {"a": "a"}
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the coroutine is never awaited
            with pytest.raises(RuntimeError, match="failed to complete synchronously"):
                run()
            gc.collect()


@pytest.mark.parametrize("executor", [Executor, CompilingExecutor])
def test_operations_without_an_event_loop(executor: type[Executor[Any]]) -> None:
    schema = build_schema("type Query { a: String b: String }")

    result = execute_sync(schema, parse("{ b }"), {"b": "b"}, executor_class=executor)
    awaitable: Any = execute(schema, parse("{ a b }"), {"a": returns_at_once, "b": "b"}, executor_class=executor)

    assert (result.data, asyncio.run(awaitable).data) == ({"b": "b"}, {"a": "a", "b": "b"})


ERRORS: list[tuple[str, str, dict[str, Any], list[str], list[str]]] = [
    (
        "a: String b: String",
        "{ a b }",
        {"a": fails, "b": fails_without_awaiting},
        ["b: failed first", "a: failed"],
        ["a: failed", "b: failed first"],
    ),
    (
        "a: String! b: String!",
        "{ a b }",
        {"a": fails, "b": None},
        ["b: Cannot return null for non-nullable field Query.b."],
        ["a: failed"],
    ),
    (
        "l: [String!]",
        "{ l }",
        {"l": lambda info: [fails(info), None]},
        ["l.1: Cannot return null for non-nullable field Query.l."],
        ["l.0: failed"],
    ),
    (
        "p: Query! q: Query! x: String!",
        "{ p { x } q { x } }",
        {"p": {"x": fails_later}, "q": {"x": fails_later}},
        ["p.x: failed later"],
        ["p.x: failed later"],
    ),
]


@pytest.mark.parametrize(("fields", "text", "root", "expected", "eager"), ERRORS)
async def test_the_order_of_errors(
    fields: str, text: str, root: dict[str, Any], expected: list[str], eager: list[str]
) -> None:
    schema = build_schema(f"type Query {{ {fields} }}")

    found = [failures(await result_of(schema, text, root, executor)) for executor in EXECUTORS]

    assert found == [expected, expected, eager]


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_what_comes_after_a_failure_at_once(executor: type[Executor[Any]]) -> None:
    calls: list[str] = []

    def calling(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(info: Any) -> Any:
            calls.append(name)
            return function(info)

        return call

    schema = build_schema("type Query { a: String! b: String }")
    root = {"a": calling("a", fails), "b": calling("b", returns_at_once)}

    result = await result_of(schema, "{ a b }", root, executor)

    assert (result.data, failures(result)) == (None, ["a: failed"])
    assert calls == (["a"] if executor is EagerExecutor else ["a", "b"])


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_the_current_task(executor: type[Executor[Any]]) -> None:
    async def is_known(info: Any) -> bool:
        await asyncio.sleep(0)
        return asyncio.current_task() in asyncio.all_tasks()

    result = await result_of(build_schema("type Query { a: Boolean }"), "{ a }", {"a": is_known}, executor)

    assert result.data == {"a": executor is not EagerExecutor}
