"""A single root field that the task awaits itself: the result, the errors and the task are those of graphql-core."""

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, execute, parse
from graphql.execution import Executor

from tests.support.executors import EagerStrawberryExecutor, first_operation

events: list[Any] = []


@strawberry.type(name="Thing")
class _Thing:
    name: str

    @strawberry.field
    async def later(self, fails: bool = False) -> str:
        await asyncio.sleep(0)
        if fails:
            raise ValueError("later failed")
        return f"{self.name} later"


@strawberry.type(name="Query")
class _Query:
    @strawberry.field
    async def thing(self, name: str = "a", turns: int = 1) -> _Thing | None:
        events.append(("thing", asyncio.current_task()))
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            events.append(("thing ended", asyncio.current_task()))
        if name == "wrong":
            raise ValueError("thing failed")
        return _Thing(name=name) if name else None

    @strawberry.field
    async def required(self, turns: int = 1) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ValueError("required failed")

    @strawberry.field
    async def things(self, count: int = 3) -> list[_Thing]:
        return [_Thing(name=str(number)) for number in range(count)]

    @strawberry.field
    async def cancelled(self) -> str:
        raise asyncio.CancelledError

    @strawberry.field
    def at_once(self) -> str:
        return "at once"


@strawberry.type(name="Mutation")
class _Mutation:
    @strawberry.mutation
    async def rename(self, name: str) -> _Thing:
        await asyncio.sleep(0)
        return _Thing(name=name)


SCHEMA = strawberry.Schema(_Query, _Mutation)._schema


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


def _started(text: str, **options: Any) -> ExecutionResult | Awaitable[ExecutionResult]:
    """Execute compiled code: an operation is compiled when it is first executed."""
    operation = first_operation(SCHEMA, text, EagerStrawberryExecutor)
    assert operation.program() is not None, "The operation is compiled."
    return operation.execute(None, **options)


async def _result_of(result: ExecutionResult | Awaitable[ExecutionResult]) -> ExecutionResult:
    return result if isinstance(result, ExecutionResult) else await result


async def _interpreted(text: str) -> ExecutionResult:
    result: Any = execute(SCHEMA, parse(text), executor_class=Executor)
    return await _result_of(result)


def _comparable(result: ExecutionResult) -> tuple[Any, list[Any]]:
    return result.data, [(error.message, error.path) for error in result.errors or ()]


@pytest.mark.parametrize(
    "text",
    [
        "{ thing { name } }",
        "{ thing(turns: 0) { name } }",
        "{ again: thing { name __typename } }",
        '{ thing(name: "") { name } }',
        '{ thing(name: "wrong") { name } }',
        '{ thing(name: "wrong", turns: 0) { name } }',
        "{ required }",
        "{ required(turns: 0) }",
        "{ thing { later } }",
        "{ thing { later(fails: true) } }",
        "{ things { name later } }",
        "{ things { later(fails: true) } }",
        "{ things(count: 0) { name } }",
        "{ thing { name } required }",
        "{ thing @include(if: true) { name } }",
        "{ atOnce }",
        'mutation { rename(name: "b") { name later } }',
    ],
)
async def test_the_result_is_equal(text: str) -> None:
    assert _comparable(await _result_of(_started(text, in_task=True))) == _comparable(await _interpreted(text))


async def test_the_coroutine_starts_when_the_result_is_awaited_and_runs_in_that_task() -> None:
    result = _started("{ thing { name } }", in_task=True)
    assert isawaitable(result)
    assert events == []

    task = asyncio.ensure_future(result)
    await task

    assert events == [("thing", task), ("thing ended", task)]


async def test_without_the_option_the_coroutine_starts_at_once_with_a_driver() -> None:
    result = _started("{ thing { name } }")
    assert [name for name, _ in events] == ["thing"]

    await _result_of(result)

    assert {task for _, task in events}.isdisjoint(asyncio.all_tasks())


async def test_several_root_fields_start_together() -> None:
    """One that is awaited before another one starts would read in a batch of its own."""
    result = _started("{ thing { name } other: thing { name } }", in_task=True)
    assert [name for name, _ in events] == ["thing", "thing"]
    await _result_of(result)


async def test_a_cancellation_ends_the_resolver_and_the_execution() -> None:
    task = asyncio.ensure_future(_result_of(_started("{ thing(turns: 1000000) { name } }", in_task=True)))
    await asyncio.sleep(0)
    assert events == [("thing", task)]

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == [("thing", task), ("thing ended", task)]


async def test_a_cancellation_ends_the_fields_below_the_root() -> None:
    waiting = asyncio.Event()
    ended: list[str] = []

    @strawberry.type
    class Slow:
        @strawberry.field
        async def value(self) -> str:
            waiting.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("value")
            return ""

    async def slow() -> Slow:
        return Slow()

    query = strawberry.type(type("Query", (), {"slow": strawberry.field(resolver=slow)}))
    schema = strawberry.Schema(query)._schema
    operation = first_operation(schema, "{ slow { value } }", EagerStrawberryExecutor)
    operation.program()
    task = asyncio.ensure_future(_result_of(operation.execute(None, in_task=True)))
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["value"]


async def test_a_resolver_that_raises_a_cancellation_interrupts_the_execution() -> None:
    with pytest.raises(asyncio.CancelledError):
        await _result_of(_started("{ cancelled }", in_task=True))
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
