"""Strawberry's extension points work in compiled operations: subclasses, parameters, classes of info, middleware."""

from collections.abc import AsyncIterator
from inspect import isawaitable
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, execute, parse
from strawberry.schema.config import StrawberryConfig
from strawberry.types.field import StrawberryField
from strawberry.types.fields.resolver import StrawberryResolver

from jit.execution import Execution
from tests.support.executors import CompilingStrawberryExecutor, compiled_executions


class DoublingField(StrawberryField):
    def get_result(self, source: Any, info: Any, args: list[Any], kwargs: Any) -> Any:
        value: Any = super().get_result(source, info, args, kwargs)
        return value * 2


class DoublingResolver(StrawberryResolver[Any]):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) * 2


class NamedInfo(strawberry.Info[Any, Any]):
    @property
    def shout(self) -> str:
        return self.field_name.upper()


def text() -> str:
    return "x"


def name_of_root(root: strawberry.Parent["Pet"]) -> str:
    return root.plain


@strawberry.type
class Pet:
    plain: str = "x"
    doubled: str = DoublingField(default="x")  # type: ignore[assignment]
    resolved: str = DoublingField(base_resolver=StrawberryResolver(text))  # type: ignore[assignment]
    called: str = strawberry.field(resolver=DoublingResolver(text))
    root: str = strawberry.field(resolver=name_of_root)


def shouted(info: NamedInfo) -> str:
    return info.shout


@strawberry.type
class Query:
    shouted: str = strawberry.field(resolver=shouted)

    @strawberry.field
    async def pet(self) -> Pet:
        return Pet()


SCHEMA = strawberry.Schema(
    Query, execution_context_class=CompilingStrawberryExecutor, config=StrawberryConfig(info_class=NamedInfo)
)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("{ pet { plain doubled } }", {"pet": {"plain": "x", "doubled": "xx"}}),
        ("{ pet { resolved } }", {"pet": {"resolved": "xx"}}),
        ("{ pet { called } }", {"pet": {"called": "xx"}}),
        ("{ pet { root } }", {"pet": {"root": "x"}}),
        ("{ shouted }", {"shouted": "SHOUTED"}),
    ],
)
async def test_fields_and_resolvers_are_called_as_strawberry_calls_them(text: str, data: dict[str, Any]) -> None:
    for _ in range(3):
        result = await SCHEMA.execute(text)

        assert (result.data, result.errors) == (data, None)


async def test_a_schema_of_strawberry_compiles_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    started = compiled_executions(monkeypatch)
    for _ in range(2):
        await SCHEMA.execute("{ pet { plain } }")

    assert len(started) == 2


async def ticks() -> AsyncIterator[int]:
    yield 1


@strawberry.type
class Subscription:
    ticks = strawberry.subscription(resolver=ticks, graphql_type=int)


async def test_the_field_of_a_subscription_is_its_event_and_needs_no_info(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Execution, "info", lambda *_: pytest.fail("The event needs no info."))
    schema = strawberry.Schema(Query, subscription=Subscription)._schema
    document = parse("subscription { ticks }")
    compiled = compiled_executions(monkeypatch)
    for event in range(3):
        result = execute(schema, document, event, executor_class=CompilingStrawberryExecutor)
        result = await result if isawaitable(result) else result
        assert result == ExecutionResult({"ticks": event}, None)
    assert len(compiled) == 3
