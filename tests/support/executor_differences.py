"""Whether two executors did the same, as far as the specification allows differences.

Where a null was propagated, chance decides which of the errors below came first and which resolvers were still called.
Everywhere else, and where nothing was awaited, everything is the same. (Fields whose order depends on variables may be
executed in any order.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLList,
    GraphQLNonNull,
    GraphQLSchema,
    OperationDefinitionNode,
    TypeInfo,
    TypeInfoVisitor,
    Visitor,
    get_nullable_type,
    visit,
)

from tests.support.executor_runs import ErrorFacts, ObservedRun, Path, Result, Situation

UNPROPAGATED = "@experimental_disableErrorPropagation"


def differences(situation: Situation, expected: ObservedRun, actual: ObservedRun) -> list[str]:
    """Describe the differences between `actual` and `expected`. An empty list means that they agree."""
    if expected.raised != actual.raised:
        return [f"raised: {actual.raised}, not {expected.raised}"]
    if len(expected.results) != len(actual.results):
        return [f"results: {len(actual.results)}, not {len(expected.results)}"]
    found: list[str] = []
    for event, (theirs, ours) in enumerate(zip(expected.results, actual.results, strict=True)):
        found += [f"{text} (event {event})" for text in _of_results(situation, theirs, ours)]
    if not found:
        found += _of_calls(situation, expected, actual)
        found += _of_what_stays(expected, actual)
    return found


def _of_results(situation: Situation, theirs: Result, ours: Result) -> list[str]:
    if repr(theirs.data) != repr(ours.data):
        return [f"data: {ours.data!r}, not {theirs.data!r}"]
    if (theirs.errors is None) != (ours.errors is None) or ours.errors == []:
        return [f"errors: {ours.errors!r}, not {theirs.errors!r}"]
    if theirs.errors == ours.errors:
        return []
    if not situation.world.awaits and "(if: $" not in situation.operation.text:
        return [f"errors: {ours.errors}, not {theirs.errors}"]
    return _of_errors(situation, ours.data, theirs.errors or [], ours.errors or [])


def _of_errors(situation: Situation, data: Any, theirs: list[ErrorFacts], ours: list[ErrorFacts]) -> list[str]:
    found: list[str] = []
    expected, actual = _by_place(data, theirs), _by_place(data, ours)
    for place in {*expected, *actual}:
        wanted, given = expected.get(place, []), actual.get(place, [])
        if Counter(wanted) == Counter(given):
            continue
        words = f"errors: at {place} {given}, not {wanted}"
        if place is None or all(error.position == place for error in (*wanted, *given)):
            found.append(words)
        elif not _explained(situation, place, given):
            found.append(f"{words}: nothing explains the null")
        elif not _explained(situation, place, wanted):
            found.append(f"{words}: nothing explains the null of the reference")
    return found


def nulled(data: Any, path: Path) -> Path | None:
    """Return the shortest prefix of `path`, or `path` itself, at which the data is null; None if there is none."""
    for length in range(len(path) + 1):
        if data is None:
            return path[:length]
        if length < len(path):
            try:
                data = data[path[length]]
            except (KeyError, IndexError, TypeError):
                return None
    return None


def _by_place(data: Any, errors: list[ErrorFacts]) -> dict[Path | None, list[ErrorFacts]]:
    found: defaultdict[Path | None, list[ErrorFacts]] = defaultdict(list)
    for error in errors:
        found[nulled(data, error.position)].append(error)
    return found


def _explained(situation: Situation, place: Path, errors: list[ErrorFacts]) -> bool:
    """Return whether one of the errors propagates to the place: all types between must be non-null."""
    types = _types(situation.world.schema, situation)
    return any(_reaches(types, error.position, place) for error in errors)


def _reaches(types: dict[Path, Any], path: Path, place: Path) -> bool:
    return all(_never_null(types, path[:length]) for length in range(len(path), len(place), -1))


def _never_null(types: dict[Path, Any], path: Path) -> bool:
    names = tuple(part for part in path if isinstance(part, str))
    kind = types.get(names)
    for part in reversed(path):
        if isinstance(part, str):
            break
        kind = get_nullable_type(kind)
        kind = kind.of_type if isinstance(kind, GraphQLList) else None
    return isinstance(kind, GraphQLNonNull)


def _types(schema: GraphQLSchema, situation: Situation) -> dict[Path, Any]:
    """Return the type of each path of response names. Its nullability is the same in all fragments."""
    document = situation.operation.document
    found: dict[Path, Any] = {}

    class Finding(Visitor):
        def __init__(self, info: TypeInfo, path: Path) -> None:
            super().__init__()
            self.info, self.path = info, path

        def enter_field(self, node: FieldNode, *_: Any) -> None:
            self.path = (*self.path, node.alias.value if node.alias else node.name.value)
            found[self.path] = self.info.get_type()

        def leave_field(self, *_: Any) -> None:
            self.path = self.path[:-1]

        def enter_fragment_spread(self, node: FragmentSpreadNode, *_: Any) -> None:
            _walk(fragments[node.name.value], self.path)

    def _walk(node: Any, path: Path) -> None:
        info = TypeInfo(schema)
        visit(node, TypeInfoVisitor(info, Finding(info, path)))

    fragments = {
        definition.name.value: definition
        for definition in document.definitions
        if isinstance(definition, FragmentDefinitionNode)
    }
    for definition in document.definitions:
        if isinstance(definition, OperationDefinitionNode):
            _walk(definition, ())
    return found


def _of_calls(situation: Situation, expected: ObservedRun, actual: ObservedRun) -> list[str]:
    found: list[str] = []
    calls = Counter((call.event, call.path) for call in actual.calls)
    failed = [event for event, result in enumerate(expected.results, start=1) if result.errors]
    if situation.operation.kind == "subscription" and failed:
        # graphql-core continues with resolvers of a failed event; their calls are recorded for the next event.
        twice = [call for call, count in calls.items() if count > 1 and call[0] <= failed[0]]
        return [f"twice: called {twice}"] if twice else []
    twice = [call for call, count in calls.items() if count > 1]
    if twice:
        found.append(f"twice: called {twice}")
    wanted, given = _outside(expected), _outside(actual)
    if wanted.keys() != given.keys():
        found.append(f"calls: never {wanted.keys() - given.keys()}, and only {given.keys() - wanted.keys()}")
        return found
    for place, call in wanted.items():
        if given[place].details != call.details:
            found.append(f"details: {place} {given[place].details}, not {call.details}")
        if given[place].when > call.when:
            found.append(f"late: {place} called at {given[place].when}, not at {call.when}")
    if situation.operation.kind == "mutation":
        found += _of_order(expected, actual)
    return found


def _outside(seen: ObservedRun) -> dict[tuple[int, Path], Any]:
    """Return the calls for values that stayed in the data, and the calls directly below the root."""
    found = {}
    for call in seen.calls:
        data = seen.results[max(0, call.event - 1)].data if seen.results else None
        if len(call.path) > 1 and nulled(data, call.path[:-1]) is not None:
            continue
        if len(call.path) == 1 and data is None and call.event == 0 and seen.raised is None:
            continue
        found[call.event, call.path] = call
    return found


def _of_order(expected: ObservedRun, actual: ObservedRun) -> list[str]:
    """Compare the order of a mutation's fields: each is executed completely before the next one."""
    roots = [[call.path for call in seen.calls if len(call.path) == 1] for seen in (expected, actual)]
    if roots[0] != roots[1]:
        return [f"order: mutated {roots[1]}, not {roots[0]}"]
    order = [path[0] for _, path in _outside(actual)]
    if order != sorted(order, key=list(dict.fromkeys(order)).index):
        return [f"order: fields of the mutation overlap: {order}"]
    return []


def _of_what_stays(expected: ObservedRun, actual: ObservedRun) -> list[str]:
    """Compare the tasks that are left.

    graphql-core leaves tasks behind where a field fails at once beside fields that wait; there any executor may.
    """
    found: list[str] = []
    # A cancelled resolver may take its time: `asyncio.wait_for` swallows the cancellation if its result is there.
    failed = any(result.errors for result in expected.results)
    if expected.at_once and not actual.at_once and not failed:
        found.append("waits: though there is nothing to wait for")
    if actual.finished > expected.finished and not failed:
        found.append(f"late: it took until {actual.finished}, not {expected.finished}")
    unfinished, tasks = (actual.staying, actual.staying_tasks) if failed else (actual.unfinished, actual.tasks)
    if unfinished and not expected.unfinished and not expected.tasks:
        found.append(f"running: still, {unfinished}")
    if tasks and not expected.tasks:
        found.append(f"tasks: {tasks} are left")
    if actual.hooks != expected.hooks:
        found.append(f"hooks: {actual.hooks}, not {expected.hooks}")
    # An abandoned resolver may just have returned coroutines that no code has seen yet.
    if actual.complaints and not expected.complaints and not failed:
        found.append(f"complaints: {actual.complaints}")
    return found
