"""Compiled code is limited in size, and freed when it is unused."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import pytest
from graphql import ExecutionResult, GraphQLSchema, build_schema

from jit import CachedOperation, cache_of
from jit import codegen as source
from tests.support.executors import CompilingExecutor, first_operation

SCHEMA: GraphQLSchema = build_schema("type Query { me: Query name: String others: [Query] none: Query }")


def cached_operation(text: str) -> CachedOperation:
    return first_operation(SCHEMA, text, CompilingExecutor)


def root_value() -> dict[str, Any]:
    return {"name": "x", "me": {"name": "y", "me": {"name": "z"}}, "others": [], "none": None}


async def execute_operation(operation: CachedOperation) -> Any:
    result = operation.execute(None, root=root_value())
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


async def test_all_selections_are_compiled_before_the_execution() -> None:
    made = cached_operation("{ name none { name me { name } } others { me { name } } me { name } }")
    program = made.program()
    assert program is not None
    compiled = {plan.key: bool(plan.selects) for plan in _plans(program)}
    assert compiled == {"none": True, "others": True, "me": True}
    await execute_operation(made)


def _cells(program: Any) -> tuple[Any, ...]:
    return program.roots[0].__closure__ or ()


def _plans(program: Any) -> list[Any]:
    found = [cell.cell_contents for cell in _cells(program)]
    return [value for value in found if value.__class__.__name__ == "FieldPlan" and not value.leaf]


async def test_graphql_core_executes_an_operation_with_very_many_fields() -> None:
    fragments = [
        f"fragment f{number} on Query {{ a: me {{ ...f{number + 1} }} b: me {{ ...f{number + 1} }} }}"
        for number in range(9)
    ]
    text = "{ ...f0 } " + " ".join(fragments) + " fragment f9 on Query { name }"
    made = cached_operation(text)
    assert made.program() is None
    assert (await execute_operation(made))["a"]["a"] is not None


async def test_unused_programs_are_freed_without_the_garbage_collector() -> None:
    made = cached_operation("{ name me { name me { name } } }")
    await execute_operation(made)
    gone = ref(made.program())
    with without_collector():
        made.forget()
        assert gone() is None
        await execute_operation(made)
        again = ref(made.program())
        del made
        assert again() is None


async def test_the_least_recently_executed_operations_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(SCHEMA).clear()
    monkeypatch.setattr(cache_of(SCHEMA), "max_fields", 10)
    first, second, third = [cached_operation(f"{{ a{number}: name b: name c: name d: name }}") for number in range(3)]
    programs = [made.program() for made in (first, second)]
    assert first.program() is programs[0]
    third.program()
    assert first.program() is programs[0]
    assert second.program() is not programs[1]
    assert await execute_operation(second) == {"a1": "x", "b": "x", "c": "x", "d": "x"}


def test_operations_that_differ_in_names_only_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_CACHE", source._CodeCache(10_000, 10_000))
    first = cached_operation("query ($a: Boolean!) { x: name me @include(if: $a) { name } }").program()
    texts = set(source._CACHE._makers)
    second = cached_operation("query ($other: Boolean!) { name y: me @include(if: $other) { name } }").program()
    assert first is not None
    assert second is not None
    assert set(source._CACHE._makers) == texts


def test_the_cached_sources_have_a_limit_of_characters() -> None:
    kept = source._CodeCache(80, 60)
    texts = [f"def make(k{number}): return k{number}" for number in range(5)]  # 23 characters each
    for text in texts:
        kept.compiled(text)
        kept.compiled(texts[0])
    assert list(kept._makers) == [*texts[3:], texts[0]]
    assert kept._characters == sum(map(len, kept._makers))
    made = kept.compiled(texts[0])
    kept.compiled(texts[0] + " " * 60)
    assert kept.compiled(texts[0]) is made
    assert len(kept._makers) == 3


async def test_fields_beneath_an_interface_count_for_each_of_its_types() -> None:
    types = " ".join(f"type T{number} implements Named {{ name: String friend: Named }}" for number in range(7))
    schema = build_schema(f"interface Named {{ name: String friend: Named }} {types} type Query {{ me: Named }}")

    def fields(text: str) -> int | None:
        program = first_operation(schema, text, CompilingExecutor).program()
        return None if program is None else program.fields

    assert fields("{ me { name friend { name } } }") == 1 + 7 * (2 + 7)
    assert fields("{ me { ... on T1 { name friend { name } } } }") == 1 + 2 + 7
    assert fields("{ me { friend { friend { friend { name } } } } }") is None


@pytest.mark.parametrize("given", range(16))
async def test_the_variables_decide_which_fields_are_included(given: int) -> None:
    text = """query ($a: Boolean!, $b: Boolean!, $c: Boolean!, $d: Boolean!) {
        one: name @include(if: $a)
        two: name @include(if: $a) @skip(if: $b)
        ... @include(if: $a) { ... @skip(if: $b) { many: name @include(if: $c) @skip(if: $d) } }
        any: name @include(if: $a)
        any: name @skip(if: $b)
        ... @include(if: $a) { all: name @include(if: $b) }
        ... @include(if: $c) { all: name @include(if: $d) }
    }"""
    a, b, c, d = (bool(given & bit) for bit in (1, 2, 4, 8))
    wanted = {"one": a, "two": a and not b, "many": a and not b and c and not d, "any": a or not b}
    wanted["all"] = (a and b) or (c and d)
    result = cached_operation(text).execute(None, {"a": a, "b": b, "c": c, "d": d}, root=root_value())
    assert isinstance(result, ExecutionResult)
    assert result.data == {name: "x" for name, is_wanted in wanted.items() if is_wanted}
