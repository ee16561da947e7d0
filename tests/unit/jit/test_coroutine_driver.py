"""Driven coroutines behave like tasks, on every supported version of Python."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from graphql import ExecutionResult, GraphQLSchema, build_schema, execute, parse

from tests.support.executors import EagerExecutor

NAME: ContextVar[str] = ContextVar("NAME")
Resolve = Callable[[], Awaitable[Any]]


async def execute_resolvers(**resolvers: Resolve) -> ExecutionResult:
    fields = " ".join(f"{name}: String" for name in resolvers)
    schema: GraphQLSchema = build_schema(f"type Query {{ {fields} }}")
    for name, resolve in resolvers.items():
        schema.type_map["Query"].fields[name].resolve = lambda *_, resolve=resolve: resolve()  # type: ignore[attr-defined]
    result: Any = execute(schema, parse(f"{{ {' '.join(resolvers)} }}"), executor_class=EagerExecutor)
    return await asyncio.wait_for(result, 50)


async def other() -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    return "other"


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def test_each_resolver_is_the_current_task_at_each_step() -> None:
    seen: dict[str, list[Any]] = {"a": [], "b": []}

    def watching(name: str) -> Resolve:
        async def resolve() -> str:
            for _ in range(3):
                seen[name].append(asyncio.current_task())
                await asyncio.sleep(0)
            return name

        return resolve

    outside = asyncio.current_task()
    assert (await execute_resolvers(a=watching("a"), b=watching("b"))).data == {"a": "a", "b": "b"}
    assert asyncio.current_task() is outside
    a, b = map(set, seen.values())
    assert len(a) == len(b) == len(a - b - {outside}) == 1


async def test_each_resolver_has_its_own_context() -> None:
    NAME.set("outside")

    def naming(name: str) -> Resolve:
        async def resolve() -> str:
            before = NAME.get()
            NAME.set(name)
            await asyncio.sleep(0)
            return f"{before} {NAME.get()}"

        return resolve

    assert (await execute_resolvers(a=naming("a"), b=naming("b"))).data == {"a": "outside a", "b": "outside b"}
    assert NAME.get() == "outside"


async def times_out() -> str:
    try:
        async with asyncio.timeout(0):
            await never()
    except TimeoutError:
        await asyncio.sleep(0)
        return "late"
    return "in time"


async def waits_too_long() -> str:
    async with asyncio.timeout(50), asyncio.timeout(0.001):
        await never()
    return "in time"


async def waits_for() -> str:
    await asyncio.wait_for(never(), 0.001)
    return "in time"


async def in_task_group() -> str:
    async def fails() -> None:
        raise ValueError("a task failed")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(never())
            group.create_task(fails())
    except ExceptionGroup as failure:
        await asyncio.sleep(0)
        return str(failure.exceptions[0])
    return "none failed"


async def times_out_with_anyio() -> str:
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep(50)
    await asyncio.sleep(0)
    return "late" if scope.cancelled_caught else "in time"


async def fails_after_with_anyio() -> str:
    with anyio.fail_after(0):
        await anyio.sleep(50)
    return "in time"


async def is_cancelled_with_a_message() -> str:
    messages = []
    task = asyncio.current_task()
    assert task is not None
    for seconds in (50, 0):  # it waits for a future, or for its next turn
        asyncio.get_running_loop().call_soon(task.cancel, "by hand")
        try:
            await asyncio.sleep(seconds)
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            messages.append(str(error))
        task.uncancel()
    return " ".join(messages)


async def cancels_and_uncancels() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    assert task.cancelling() == 1
    assert task.uncancel() == 0
    await asyncio.sleep(0)
    return "went on"


@pytest.mark.parametrize(
    ("resolve", "value", "error"),
    [
        (times_out, "late", None),
        (waits_too_long, None, TimeoutError),
        (waits_for, None, TimeoutError),
        (in_task_group, "a task failed", None),
        (cancels_and_uncancels, "went on", None),
        (times_out_with_anyio, "late", None),
        (fails_after_with_anyio, None, TimeoutError),
        (is_cancelled_with_a_message, "by hand by hand", None),
    ],
)
async def test_cancelling_the_current_task_ends_one_resolver_only(
    resolve: Resolve, value: str | None, error: type[Exception] | None
) -> None:
    result = await execute_resolvers(a=resolve, b=other)
    assert result.data == {"a": value, "b": "other"}
    assert [type(failure.original_error) for failure in result.errors or ()] == ([error] if error else [])
