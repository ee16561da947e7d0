"""Compiled execution equals graphql-core's over generated schemas, and a fault would be found."""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from inspect import isawaitable
from typing import Any

import pytest
from graphql import build_schema, execute, parse
from graphql.execution import Executor

from jit.eager.batches import PendingBatch
from tests.support import random_batches
from tests.support.broken_executors import FAULTS, LosesTasks
from tests.support.executor_proof import (
    REFERENCE,
    described,
    differences_of,
    left_behind,
    reduced_situation,
    situations,
)
from tests.support.executor_runs import ObservedRun, Situation
from tests.support.executors import CompilingExecutor, EagerExecutor
from tests.support.random_values import CALM

EXAMPLES = int(os.environ.get("COMPILED_EXAMPLES", "160"))
FIRST = int(os.environ.get("COMPILED_FIRST", "0"))
# Every fault is found within these.
ENOUGH = 200


# graphql-core sometimes does not await a coroutine, which is reported at the next collection.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def swept() -> Iterator[None]:
    """Collect garbage here that a later module would report."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


@cache
def known(seed: int) -> tuple[Situation, ObservedRun]:
    (situation,) = situations(seed, 1)
    return situation, situation.run(REFERENCE)


def first_told_apart(executor: type[Executor[Any]], first: int, count: int) -> Situation | None:
    for seed in range(first, first + count):
        situation, expected = known(seed)
        if differences_of(situation, expected, executor):
            return situation
    return None


def first_to_leave(executor: type[Executor[Any]], first: int, count: int) -> Situation | None:
    return next((made for made in situations(first, count) if left_behind(made, executor)), None)


def test_graphql_core_does_not_differ_from_itself() -> None:
    assert first_told_apart(REFERENCE, 0, 40) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found(fault: type[Executor[Any]]) -> None:
    assert first_told_apart(fault, 0, ENOUGH) is not None


def test_resolvers_left_behind_are_found() -> None:
    assert first_to_leave(LosesTasks, 0, 60) is not None
    assert first_to_leave(REFERENCE, 0, 60) is None


def test_compiled_execution_is_graphql_cores_step_by_step() -> None:
    for seed in range(FIRST, FIRST + EXAMPLES):
        (situation,) = situations(seed, 1)
        if seed % 2:  # the types that it learned from correct values must not mislead it
            replace(situation, temper=CALM).run(CompilingExecutor)
        expected, actual = situation.run(REFERENCE), situation.run(CompilingExecutor)
        # The same data, and the same errors in the same order.
        assert repr(actual.results) == repr(expected.results), described(situation, CompilingExecutor)
        for seen in (expected, actual):
            seen.results = []
            seen.complaints = ["some"] if seen.complaints else []  # with the names of the executor's coroutines

        # The same calls at the same times, and the same tasks left behind.
        assert actual == expected, described(situation, CompilingExecutor)


def test_eager_execution_does_not_differ_where_the_specification_allows_no_difference() -> None:
    for seed in range(FIRST, FIRST + EXAMPLES):
        (situation,) = situations(seed, 1)
        if seed % 2:  # the types that it learned from correct values must not mislead it
            replace(situation, temper=CALM).run(EagerExecutor)
        found = differences_of(situation, situation.run(REFERENCE), EagerExecutor)

        assert not found, described(reduced_situation(situation, EagerExecutor), EagerExecutor)


def test_eager_execution_leaves_nothing_behind_when_it_is_cancelled() -> None:
    for situation in situations(FIRST, EXAMPLES // 2):
        left = left_behind(situation, EagerExecutor)

        assert not left, f"{left}\n{described(situation, EagerExecutor)}"


async def test_shared_resolutions_have_the_same_results_as_separate_ones() -> None:
    for seed in range(FIRST, FIRST + EXAMPLES // 4):
        found = await random_batches.difference_of(seed)

        assert found is None, found


async def test_an_event_source_that_was_already_abandoned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingBatch, "_forget", lambda *_: None)

    for seed in range(ENOUGH):
        if await random_batches.difference_of(seed):
            return
    pytest.fail("The fault was not detected.")


async def test_a_resolver_may_change_its_arguments() -> None:
    schema = build_schema("input In { a: [Int] } type Query { f(l: [Int], in: In): [String] }")
    seen: list[str] = []

    def change(_: Any, info: Any, **args: Any) -> list[str]:
        seen.append(repr(args))
        args["l"].append(9)
        args["in"]["a"].append(9)
        return []

    schema.type_map["Query"].fields["f"].resolve = change  # type: ignore[attr-defined]
    for text in ("{ f(l: [1], in: {a: [2]}) }", "query ($v: Int = 1) { f(l: [$v], in: {a: [2]}) }"):
        document = parse(text)
        for _ in range(3):
            execute(schema, document, executor_class=EagerExecutor)
    assert seen == ["{'l': [1], 'in': {'a': [2]}}"] * 6


async def test_an_awaitable_that_was_cancelled_before_ends_the_operation() -> None:
    schema = build_schema("type Query { a: Query b: Int }")

    async def later(*_: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return {"b": cancelled}

    schema.type_map["Query"].fields["a"].resolve = later  # type: ignore[attr-defined]
    for executor in (REFERENCE, EagerExecutor):
        result: Any = execute(schema, parse("{ a { b } }"), executor_class=executor)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(result, 50)


async def test_coroutines_of_a_list_that_is_null_are_let_go() -> None:
    schema = build_schema("type Query { f: [Int!] }")
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, received: complaints.append(received))

    async def one() -> int:
        return 1

    async def fails() -> int:
        raise ValueError("nobody asks")

    def items(*_: Any) -> list[Any]:
        return [one(), ValueError("no"), one(), asyncio.ensure_future(fails())]

    schema.type_map["Query"].fields["f"].resolve = items  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result: Any = execute(schema, parse("{ f }"), executor_class=EagerExecutor)
        result = await result if isawaitable(result) else result
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()

    assert not complaints
    assert (result.data, [error.path for error in result.errors]) == ({"f": None}, [["f", 1]])


SLOW = "slow"  # a task that ends only when the list is abandoned


@pytest.mark.parametrize(
    ("items", "is_cancelled"),
    [
        (["fails", SLOW], True),  # an awaited item failed
        (["null", SLOW], True),
        ([{"g": "fails"}, SLOW], True),
        ([{"g": "null"}, SLOW], True),
        ([{"g": 1}, "fails", SLOW], True),
        ([SLOW, "fails"], True),
        ([ValueError("no"), SLOW], False),  # no item was awaited yet
        ([None, SLOW], False),
        ([{"g": ValueError("no")}, SLOW], False),
    ],
    ids=str,
)
@pytest.mark.parametrize("executor", [REFERENCE, EagerExecutor])
async def test_resolvers_are_cancelled_with_a_list_that_is_null(
    executor: type[Executor[Any]], items: list[Any], is_cancelled: bool
) -> None:
    schema = build_schema("type Query { f: [Query!] g: Int! }")
    task: asyncio.Future[Any] = asyncio.ensure_future(asyncio.sleep(60))

    async def awaited(what: str) -> Any:
        if what == "fails":
            raise ValueError("no")

    def given(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: given(part) for key, part in value.items()}
        return task if value == SLOW else awaited(value) if isinstance(value, str) else value

    schema.type_map["Query"].fields["f"].resolve = lambda *_: list(map(given, items))  # type: ignore[attr-defined]
    result: Any = execute(schema, parse("{ f { g } }"), executor_class=executor)
    result = await result if isawaitable(result) else result
    for _ in range(3):
        await asyncio.sleep(0)

    assert result.data == {"f": None}
    assert task.cancelled() is is_cancelled
    task.cancel()
