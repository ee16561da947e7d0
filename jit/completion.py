"""CompleteValue for the values that the generated code does not handle.

https://spec.graphql.org/September2025/#CompleteValue()
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from graphql import GraphQLAbstractType, GraphQLError, GraphQLObjectType, Undefined, located_error
from graphql.execution.collect_fields import FieldDetails
from graphql.pyutils import inspect, is_async_iterable, is_iterable
from graphql.pyutils import is_awaitable as is_awaitable_in_core
from graphql.type import is_leaf_type, is_list_type, is_object_type

from jit.field_plan import FieldPlan, Path, keys_of
from jit.field_resolvers import attribute

if TYPE_CHECKING:
    from jit.execution import Execution

_NEVER_AWAITABLE = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})


def is_awaitable(value: Any) -> bool:
    """Return what graphql-core's function returns, without looking up an attribute of a value of a common class."""
    return type(value) not in _NEVER_AWAITABLE and is_awaitable_in_core(value)


def resolved(run: "Execution", plan: FieldPlan, value: Any, path: Path) -> Any:
    """Complete the result of a resolver, which may have to be awaited."""
    if run.awaits and is_awaitable(value):
        return run.start(plan, value, path)
    completed = complete(run, plan, 0, value, path)
    return completed if completed.__class__ is not CoroutineType else run.adopted(completed, None, plan, path, 0)


def at_field(run: "Execution", value: Any, plan: FieldPlan, path: Path, otherwise: Callable[..., Any]) -> Any:
    """Return the completed value of a field. A coroutine handles its error, unless the value was awaited before."""
    return run.adopted(value, None, plan, path, 0) if otherwise is resolved else value


def complete(run: "Execution", plan: FieldPlan, depth: int, value: Any, path: Path) -> Any:
    """Complete a value of the field's type inside `depth` lists."""
    if isinstance(value, Exception):
        raise value
    if value is None or value is Undefined:
        if plan.required[depth]:
            raise TypeError(f"Cannot return null for non-nullable field {plan.parent_type}.{plan.name}.")
        return None
    kind = plan.types[depth]
    if is_list_type(kind):
        return _list(run, plan, depth, value, path)
    if is_leaf_type(kind):
        return _leaf(run, plan, depth, kind, value, path)
    if is_object_type(kind):
        return _object(run, plan, depth, kind, value, path)
    return _abstract(run, plan, depth, kind, value, path)


def complete_awaited(run: "Execution", plan: FieldPlan, value: Any, path: Path) -> Any:
    """Complete the result of an awaitable. A result that is awaitable itself is not awaited."""
    return complete(run, plan, 0, value, path)


def unchanged(_run: "Execution", _plan: FieldPlan, value: Any, _path: Path, _otherwise: Any) -> Any:
    """Return a value that is complete."""
    return value


def _leaf(run: "Execution", plan: FieldPlan, depth: int, kind: Any, value: Any, path: Path) -> Any:
    coerced = kind.coerce_output_value(value)
    if run.awaits and is_awaitable(coerced):
        return run.start(plan, coerced, path, depth, unchanged)
    if coerced is Undefined or coerced is None:
        raise TypeError(
            f"Expected `{inspect(kind)}.coerce_output_value({inspect(value)})` to return non-nullable value, "
            f"returned: {inspect(coerced)}"
        )
    plan.note_leaf(value, coerced)
    return coerced


# Lists


def _list(run: "Execution", plan: FieldPlan, depth: int, value: Any, path: Path) -> Any:
    if run.awaits and is_async_iterable(value):
        return run.start_list(plan, depth, value.__aiter__(), path)
    if not is_iterable(value):
        raise GraphQLError(f"Expected Iterable, but did not find one for field '{plan.parent_type}.{plan.name}'.")
    return items_from(run, plan, depth + 1, [], iter(value), path)


async def complete_async(
    run: "Execution", plan: FieldPlan, depth: int, done: list[Any], iterator: AsyncIterator[Any], path: Path
) -> Any:
    """Return the list, with each item completed as it arrives. An error that nulls the list ends the iteration."""
    try:
        while True:
            try:
                item = await anext(iterator)
            except StopAsyncIteration:
                break
            except Exception as error:
                raise located_error(error, plan.nodes(run.variables), keys_of(path)) from error
            _add_item(run, plan, depth + 1, item, done, path)
    except Exception as error:
        with suppress(Exception):
            await iterator.aclose()  # type: ignore[attr-defined]
        run.discard(done, (), error)
        raise
    joined = run.joined(done)
    return joined if joined is done else await joined


def items_from(run: "Execution", plan: FieldPlan, depth: int, done: list[Any], rest: Iterator[Any], path: Path) -> Any:
    """Complete the remaining items, append them to `done`, and return it."""
    try:
        for item in rest:
            _add_item(run, plan, depth, item, done, path)
    except Exception as error:
        run.discard(done, rest, error)
        raise
    return run.joined(done)


def _add_item(run: "Execution", plan: FieldPlan, depth: int, item: Any, done: list[Any], path: Path) -> None:
    place = (path, len(done))
    try:
        if run.awaits and is_awaitable(item):
            completed = run.start(plan, item, place, depth, _finish_item(depth), done)
        else:
            completed = run.adopted(complete(run, plan, depth, item, place), done, plan, place, depth)
    except Exception as error:
        completed = run.handle_error(error, plan, place, depth)
    done.append(completed)


def _finish_item(depth: int) -> Any:
    def finish(run: "Execution", plan: FieldPlan, item: Any, path: Path, _: Any) -> Any:
        return complete(run, plan, depth, item, path)

    return finish


def failed_item(run: "Execution", error: Exception, plan: FieldPlan, path: Path, done: list[Any], items: Any) -> None:
    """Handle the error of an item: the item becomes null, or the error is raised for the whole list."""
    try:
        run.handle_error(error, plan, path, 1)
    except Exception as problem:
        run.discard(done, items[int(path[1]) + 1 :], problem)
        raise


def leaves(run: "Execution", plans: tuple[FieldPlan, ...], source: Any, path: Path | None) -> list[Any]:
    """Complete the attributes of an object one by one, and handle the error of each."""
    values: list[Any] = []
    for plan in plans:
        place = (path, plan.key)
        try:
            value = resolved(run, plan, attribute(run, plan, source, place), place)
        except Exception as error:
            try:
                value = run.handle_error(error, plan, place)
            except Exception as problem:
                run.discard(values, (), problem)
                raise
        values.append(value)
    return values


def ordered(run: "Execution", plans: tuple[FieldPlan, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in the order that the variables determine."""
    included = [plan for plan in plans if plan.key in values]
    included.sort(key=lambda plan: plan.position(run.variables))
    return {plan.key: values[plan.key] for plan in included}


# Objects


def _object(run: "Execution", plan: FieldPlan, depth: int, kind: GraphQLObjectType, value: Any, path: Path) -> Any:
    if kind.is_type_of is None:
        plan.note_plain(value)
        return plan.selects[kind](run, value, path)
    is_instance = kind.is_type_of(value, run.info(plan, path))
    if run.awaits and is_awaitable(is_instance):

        def finish(run: "Execution", plan: FieldPlan, is_instance: Any, path: Path, _: Any) -> Any:
            return _checked(run, plan, kind, is_instance, value, path)

        return run.start(plan, is_instance, path, depth, finish)
    completed = _checked(run, plan, kind, is_instance, value, path)
    if run.program.types_by_class:
        plan.note_plain(value)
    return completed


def _checked(
    run: "Execution", plan: FieldPlan, kind: GraphQLObjectType, is_instance: Any, value: Any, path: Path
) -> Any:
    if not is_instance:
        raise GraphQLError(f"Expected value of type '{kind}' but got: {inspect(value)}.", plan.nodes(run.variables))
    return plan.selects[kind](run, value, path)


def _abstract(run: "Execution", plan: FieldPlan, depth: int, kind: Any, value: Any, path: Path) -> Any:
    info = run.info(plan, path)
    resolve_type = kind.resolve_type or run.executor.type_resolver
    name = resolve_type(value, info, kind)
    if run.awaits and is_awaitable(name):

        def finish(run: "Execution", plan: FieldPlan, name: Any, path: Path, _: Any) -> Any:
            return _of_type(run, plan, depth, kind, name, value, path)

        return run.start(plan, name, path, depth, finish)
    return _of_type(run, plan, depth, kind, name, value, path)


def _of_type(
    run: "Execution", plan: FieldPlan, depth: int, kind: GraphQLAbstractType, name: Any, value: Any, path: Path
) -> Any:
    """Complete a value of an abstract type whose object type is `name`."""
    details = [FieldDetails(node, None) for node in plan.nodes(run.variables)]
    runtime_type = run.executor.ensure_valid_runtime_type(name, kind, details, run.info(plan, path), value)
    return _object(run, plan, depth, runtime_type, value, path)
