"""graphql-core executes what cannot be compiled, and what a subclass or an option changes."""

import logging
from typing import Any

import pytest
from graphql import ExecutionResult, GraphQLObjectType, GraphQLSchema, build_schema, execute, parse
from graphql.execution import MiddlewareManager

from jit import operation_of
from jit.field_plan import FieldPlan
from jit.field_resolvers import Resolver
from tests.support.executors import CompilingExecutor, compiled_executions

SDL = "type Query { me: Query name: String names: [String!]! }"
DOCUMENT = parse("{ name me { name names } }")
ROOT = {"name": "a", "me": {"name": "b", "names": ["c"]}}
DATA = {"name": "a", "me": {"name": "b", "names": ["c"]}}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return compiled_executions(monkeypatch)


def executed(schema: GraphQLSchema, executor: type[CompilingExecutor] = CompilingExecutor, **options: Any) -> Any:
    result = execute(schema, DOCUMENT, ROOT, executor_class=executor, **options)
    assert isinstance(result, ExecutionResult)
    assert result.errors is None
    return result.data


async def test_an_operation_is_compiled(compiled: list[Any]) -> None:
    assert executed(build_schema(SDL)) == DATA
    assert len(compiled) == 1


async def test_a_failure_to_compile_is_not_an_error_of_the_operation(
    compiled: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Unwritable(CompilingExecutor):
        @classmethod
        def resolver_of(cls, plan: FieldPlan) -> Resolver:
            if plan.name == "names":
                raise SyntaxError("keyword argument repeated")
            return super().resolver_of(plan)

    schema = build_schema(SDL)
    with caplog.at_level(logging.ERROR):
        assert [executed(schema, Unwritable) for _ in range(3)] == [DATA] * 3
    assert compiled == []
    assert [record.getMessage() for record in caplog.records] == [
        "An operation cannot be compiled. graphql-core executes it."
    ]


async def test_methods_of_a_subclass_are_called(compiled: list[Any]) -> None:
    class Shouting(CompilingExecutor):
        def complete_value(self, *args: Any) -> Any:
            value = super().complete_value(*args)
            return value.upper() if isinstance(value, str) else value

    class Quiet(Shouting):
        pass

    class Documenting(CompilingExecutor):
        """A subclass that overrides nothing by which an operation is executed."""

        def build_resolve_info(self, *args: Any) -> Any:
            return super().build_resolve_info(*args)

    schema = build_schema(SDL)
    for executor in (Shouting, Quiet):
        for _ in range(3):
            assert executed(schema, executor) == {"name": "A", "me": {"name": "B", "names": ["C"]}}
    assert compiled == []
    assert executed(schema, Documenting) == DATA
    assert len(compiled) == 1


async def test_a_resolver_that_is_replaced_is_called() -> None:
    schema = build_schema(SDL)
    query = schema.type_map["Query"]
    assert isinstance(query, GraphQLObjectType)
    assert executed(schema) == DATA
    query.fields["name"].resolve = lambda *_: "replaced"
    assert executed(schema) == {"name": "replaced", "me": {"name": "replaced", "names": ["c"]}}
    document = operation_of(CompilingExecutor, schema, DOCUMENT, DOCUMENT.definitions[0])  # type: ignore[arg-type]
    document.execute(None, root=ROOT)
    query.fields["names"].resolve = lambda *_: []
    result: Any = document.execute(None, root=ROOT)
    assert result.data == {"name": "replaced", "me": {"name": "replaced", "names": []}}


async def test_a_middleware_manager_without_middleware_is_none(compiled: list[Any]) -> None:
    def shout(resolve: Any, source: Any, info: Any, **arguments: Any) -> Any:
        value = resolve(source, info, **arguments)
        return value.upper() if isinstance(value, str) else value

    schema = build_schema(SDL)
    assert executed(schema, middleware=MiddlewareManager()) == DATA
    assert len(compiled) == 1
    assert executed(schema, middleware=[shout])["name"] == "A"
    assert len(compiled) == 1
