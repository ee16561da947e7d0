"""Compares an executor with graphql-core's own in random situations, and reduces those in which they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLSyntaxError,
    OperationDefinitionNode,
    SelectionNode,
    VariableDefinitionNode,
    Visitor,
    parse,
    print_ast,
    validate,
    visit,
)
from graphql.execution import Executor

from tests.support.executor_differences import differences
from tests.support.executor_runs import ObservedRun, Situation
from tests.support.random_operations import USED, operation_text, random_operation
from tests.support.random_schemas import RandomSchema, random_schema
from tests.support.random_values import CALM, TEMPERS

OPERATIONS_PER_WORLD = 20
REFERENCE: type[Executor[Any]] = Executor


@lru_cache(maxsize=4)
def _world(seed: int) -> RandomSchema:
    return random_schema(seed)


def situations(first: int, count: int) -> Iterator[Situation]:
    for seed in range(first, first + count):
        made = _world(seed // OPERATIONS_PER_WORLD)
        temper = TEMPERS[Random(seed).randrange(len(TEMPERS))]
        yield Situation(made, random_operation(made.schema, seed), seed, temper)


def differences_of(situation: Situation, expected: ObservedRun, executor: type[Executor[Any]]) -> list[str]:
    """Describe how the executor differs from the `expected` run.

    Futures that several fields share are cancelled with the first of them. Where that disturbs an executor, nothing is
    compared: it disturbs graphql-core at times, too.
    """
    if expected.raised is not None and expected.raised.startswith("CancelledError"):
        return []
    actual = situation.run(executor)
    if expected.batches and actual.raised is not None and actual.raised.startswith("CancelledError"):
        return []
    return differences(situation, expected, actual)


def left_behind(situation: Situation, executor: type[Executor[Any]]) -> list[str]:
    """Return what a cancelled operation leaves behind where graphql-core leaves nothing."""
    if situation.operation.kind == "subscription" or not situation.world.awaits:
        return []
    calm = replace(situation, temper=CALM)
    expected = calm.cancelled(REFERENCE)
    if expected.raised != "CancelledError" or expected.unfinished or expected.tasks:
        return []
    if any(result.errors for result in calm.run(REFERENCE).results):
        return []  # resolvers whose sibling failed continue to run
    actual = calm.cancelled(executor)
    if actual.raised is None:
        return []  # the operation ended before it was cancelled
    found = [f"raised: {actual.raised}"] if actual.raised != "CancelledError" else []
    found += [f"running: {actual.unfinished}"] if actual.unfinished else []
    return found + ([f"tasks: {actual.tasks}"] if actual.tasks else [])


def reduced_situation(situation: Situation, executor: type[Executor[Any]]) -> Situation:
    """Return the situation with as few selections as still show a difference of the same kind."""
    wanted = _kinds(situation, executor)
    calm = replace(situation, temper=CALM)
    if wanted & _kinds(calm, executor):
        situation = calm
    place = 0
    while (smaller := _without(situation, place)) is not None:
        if smaller is not situation and wanted & _kinds(smaller, executor):
            situation = smaller
        else:
            place += 1
    return situation


def described(situation: Situation, executor: type[Executor[Any]]) -> str:
    found = differences(situation, situation.run(REFERENCE), situation.run(executor))
    received = [
        f"seed {situation.seed}, {situation.temper}",
        situation.world.text,
        operation_text(situation.operation),
        *found,
    ]
    return "\n".join(received)


def _kinds(situation: Situation, executor: type[Executor[Any]]) -> set[str]:
    found = differences_of(situation, situation.run(REFERENCE), executor)
    return {text.partition(":")[0] for text in found}


def _without(situation: Situation, place: int) -> Situation | None:
    """Return the situation without the selection at this place, unchanged if the selection is needed, None if there is
    none.
    """
    document = situation.operation.document
    seen = 0

    class Removing(Visitor):
        def enter_selection(self, node: SelectionNode) -> Any:
            nonlocal seen
            seen += 1
            return self.REMOVE if seen == place + 1 else None

        def enter(self, node: Any, *_: Any) -> Any:
            return self.enter_selection(node) if isinstance(node, SelectionNode) else None

    left = visit(document, Removing())
    if seen <= place:
        return None
    try:
        tidied = _tidied(print_ast(left))
    except GraphQLSyntaxError:
        return situation
    if "{}" in print_ast(tidied) or validate(situation.world.schema, tidied):
        return situation
    names = set(USED.findall(print_ast(tidied)))
    made = situation.operation
    sent = {name: value for name, value in made.variables.items() if name in names}
    return replace(situation, operation=replace(made, text=print_ast(tidied), document=tidied, variables=sent))


def _tidied(text: str) -> DocumentNode:
    """Remove fragments and variables that are not used."""
    document = parse(text)
    for _ in range(len(document.definitions)):
        text = print_ast(document)
        kept = tuple(
            definition
            for definition in document.definitions
            if isinstance(definition, OperationDefinitionNode) or f"...{definition.name.value}" in _spreads(text)  # type: ignore[attr-defined]
        )
        document = DocumentNode(definitions=kept)

    class Undeclaring(Visitor):
        def enter_variable_definition(self, node: VariableDefinitionNode, *_: Any) -> Any:
            return self.REMOVE if USED.findall(print_ast(document)).count(node.variable.name.value) < 2 else None

    return parse(print_ast(visit(document, Undeclaring())))


def _spreads(text: str) -> set[str]:
    return {word for word in text.split() if word.startswith("...")}
