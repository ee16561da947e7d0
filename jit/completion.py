"""CompleteValue for the values that the generated code does not handle.

https://spec.graphql.org/September2025/#CompleteValue()
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from graphql import GraphQLAbstractType, GraphQLError, GraphQLObjectType, Undefined, located_error
from graphql.execution.collect_fields import FieldDetails
from graphql.pyutils import inspect, is_async_iterable, is_iterable
from graphql.pyutils import is_awaitable as is_awaitable_in_core
from graphql.type import is_leaf_type, is_list_type, is_object_type

from jit.coroutine_driver import CoroutineDriver
from jit.field_plan import FieldPlan, Path, keys_of
from jit.field_resolvers import attribute

if TYPE_CHECKING:
    from jit.execution import Execution

_NEVER_AWAITABLE = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})


def is_awaitable(value: Any) -> bool:
    """Return what graphql-core's function returns, without looking up an attribute of a value of a common class."""
    return type(value) not in _NEVER_AWAITABLE and is_awaitable_in_core(value)


def resolved(run: "Execution", plan: FieldPlan, value: Any, path: Path) -> Any:
    """Complete the result of a resolver. Return its placeholder if it has to be awaited."""
    if is_awaitable(value):
        return run.start(plan, value, path)
    return complete(run, plan, 0, value, path)


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
        return _leaf(plan, kind, value)
    if is_object_type(kind):
        return _object(run, plan, depth, kind, value, path)
    return _abstract(run, plan, depth, kind, value, path)


def _leaf(plan: FieldPlan, kind: Any, value: Any) -> Any:
    coerced = kind.coerce_output_value(value)
    if coerced is Undefined or coerced is None:
        raise TypeError(
            f"Expected `{inspect(kind)}.coerce_output_value({inspect(value)})` to return non-nullable value, "
            f"returned: {inspect(coerced)}"
        )
    plan.note_leaf(value, coerced)
    return coerced


# Lists


def _list(run: "Execution", plan: FieldPlan, depth: int, value: Any, path: Path) -> Any:
    if is_async_iterable(value):
        items: list[Any] = []
        completing = _complete_async(run, plan, depth + 1, items, value.__aiter__(), path)
        waiting = run.start(plan, completing, path, depth, _unchanged)
        if isinstance(waiting, CoroutineDriver):
            waiting.items = items  # type: ignore[attr-defined]
        return waiting
    if not is_iterable(value):
        raise GraphQLError(f"Expected Iterable, but did not find one for field '{plan.parent_type}.{plan.name}'.")
    return items_from(run, plan, depth + 1, [], iter(value), path)


async def _complete_async(
    run: "Execution", plan: FieldPlan, depth: int, done: list[Any], iterator: AsyncIterator[Any], path: Path
) -> list[Any]:
    """Return the list, with each item completed as it arrives. An error that nulls the list ends the iteration."""
    try:
        while True:
            try:
                item = await anext(iterator)
            except StopAsyncIteration:
                return done
            except Exception as error:
                raise located_error(error, plan.nodes(run.variables), keys_of(path)) from error
            _add_item(run, plan, depth, item, done, path)
    except Exception:
        with suppress(Exception):
            await iterator.aclose()  # type: ignore[attr-defined]
        raise


def _unchanged(run: "Execution", plan: FieldPlan, items: Any, path: Path, _: Any) -> Any:
    return items


def items_from(
    run: "Execution", plan: FieldPlan, depth: int, done: list[Any], rest: Iterator[Any], path: Path
) -> list[Any]:
    """Complete the remaining items, append them to `done`, and return it."""
    try:
        for item in rest:
            _add_item(run, plan, depth, item, done, path)
    except Exception as error:
        _discard(run, rest, error)
        raise
    return done


def _add_item(run: "Execution", plan: FieldPlan, depth: int, item: Any, done: list[Any], path: Path) -> None:
    place = (path, len(done))
    try:
        if is_awaitable(item):
            completed = run.start(plan, item, place, depth, _finish_item(depth))
        else:
            completed = complete(run, plan, depth, item, place)
    except Exception as error:
        completed = run.handle_error(error, plan, place, depth)
    if isinstance(completed, CoroutineDriver):
        completed.out = done  # type: ignore[attr-defined]
    done.append(completed)


def _finish_item(depth: int) -> Any:
    def finish(run: "Execution", plan: FieldPlan, item: Any, path: Path, _: Any) -> Any:
        return complete(run, plan, depth, item, path)

    return finish


def failed_item(run: "Execution", error: Exception, plan: FieldPlan, path: Path, items: Any) -> None:
    """Handle the error of an item: the item becomes null, or the error is raised for the whole list."""
    try:
        run.handle_error(error, plan, path, 1)
    except Exception as problem:
        _discard(run, iter(items[int(path[1]) + 1 :]), problem)
        raise


def leaves(run: "Execution", plans: tuple[FieldPlan, ...], source: Any, path: Path | None) -> list[Any]:
    """Complete the attributes of an object one by one, and handle the error of each."""
    values = []
    for plan in plans:
        place = (path, plan.key)
        try:
            value = resolved(run, plan, attribute(run, plan, source, place), place)
        except Exception as error:
            value = run.handle_error(error, plan, place)
        values.append(value)
    return values


def ordered(run: "Execution", plans: tuple[FieldPlan, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in the order that the variables determine."""
    included = [plan for plan in plans if plan.key in values]
    included.sort(key=lambda plan: plan.position(run.variables))
    return {plan.key: values[plan.key] for plan in included}


def adopt_all(out: dict[str, Any], values: Iterable[Any]) -> None:
    """Set `out` as the object of the pending fields among the values."""
    for value in values:
        if isinstance(value, CoroutineDriver):
            value.out = out  # type: ignore[attr-defined]


def _discard(run: "Execution", rest: Iterator[Any], error: Exception) -> None:
    """Discard the remaining items of a list that an error nulls: close coroutines, and ignore failures.

    As in graphql-core, futures among the items are cancelled only if the failed item was awaited.
    """
    was_awaited = run.failed_at_once in (error, getattr(error, "original_error", None))
    with suppress(Exception):
        for item in rest:
            if asyncio.iscoroutine(item):
                item.close()
            elif isinstance(item, asyncio.Future):
                item.add_done_callback(_retrieve_error)
                if was_awaited:
                    item.cancel()


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


# Objects


def _object(run: "Execution", plan: FieldPlan, depth: int, kind: GraphQLObjectType, value: Any, path: Path) -> Any:
    if kind.is_type_of is None:
        plan.note_plain(value)
        return plan.selects[kind](run, value, path)
    is_instance = kind.is_type_of(value, run.info(plan, path))
    if is_awaitable(is_instance):

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
    if is_awaitable(name):

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
