"""What is compiled is bounded, whatever documents come, and goes when nobody needs it any more."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import pytest
from graphql import ExecutionResult, GraphQLSchema, build_schema, parse

from compiled import CompiledExecutor, Operation, executor, operation_of

SCHEMA: GraphQLSchema = build_schema("type Query { me: Query name: String others: [Query] none: Query }")


class Compiling(CompiledExecutor):
    compile_after = 1


def operation(text: str) -> Operation:
    document = parse(text, no_location=True)
    return operation_of(Compiling, SCHEMA, document, document.definitions[0])  # type: ignore[arg-type]


def root() -> dict[str, Any]:
    return {"name": "x", "me": {"name": "y", "me": {"name": "z"}}, "others": [], "none": None}


async def executed(made: Operation) -> Any:
    result = made.execute(None, root=root())
    assert isinstance(result, ExecutionResult)
    assert result.errors is None
    return result.data


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_selections_without_values_are_not_compiled() -> None:
    made = operation("{ name none { name me { name } } others { me { name } } me { name } }")
    program = made.program()
    assert program is not None
    await executed(made)
    compiled = {plan.key: bool(plan.selects) for plan in _plans(program)}
    assert compiled == {"none": False, "others": False, "me": True}


def _cells(program: Any) -> tuple[Any, ...]:
    return program._roots[0].__closure__ or ()


def _plans(program: Any) -> list[Any]:
    found = [cell.cell_contents for cell in _cells(program)]
    return [value for value in found if value.__class__.__name__ == "FieldPlan" and not value.leaf]


async def test_an_operation_with_very_many_fields_is_left_to_graphql_core() -> None:
    fragments = [
        f"fragment f{number} on Query {{ a: me {{ ...f{number + 1} }} b: me {{ ...f{number + 1} }} }}"
        for number in range(9)
    ]
    text = "{ ...f0 } " + " ".join(fragments) + " fragment f9 on Query { name }"
    made = operation(text)
    assert made.program() is None
    assert (await executed(made))["a"]["a"] is not None


async def test_programs_go_without_the_collector_once_nobody_has_them() -> None:
    made = operation("{ name me { name me { name } } }")
    await executed(made)
    gone = ref(made.program())
    with without_collector():
        made.forget()
        assert gone() is None
        await executed(made)
        again = ref(made.program())
        del made
        assert again() is None


async def test_those_that_were_not_executed_for_the_longest_time_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_KEPT", executor._Kept(10))
    first, second, third = [operation(f"{{ a{number}: name b: name c: name d: name }}") for number in range(3)]
    programs = [made.program() for made in (first, second)]
    assert first.program() is programs[0]
    third.program()
    assert first.program() is programs[0]
    assert second.program() is not programs[1]
    assert await executed(second) == {"a1": "x", "b": "x", "c": "x", "d": "x"}
