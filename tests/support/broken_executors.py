"""Executors with one fault each: a comparison of executors must find every one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

from graphql import DirectiveNode, GraphQLError, GraphQLInt, Undefined, Visitor, visit
from graphql.execution import Executor
from graphql.execution.collect_fields import FieldDetailsList
from graphql.execution.values import VariableValues
from graphql.pyutils import Path
from graphql.type import is_non_null_type


class BrokenExecutor(Executor[Any]):
    """graphql-core's executor; the subclasses override one method."""


class DropsErrorPath(BrokenExecutor):
    """Drops the last step of an error's path."""

    def handle_field_error(self, raw_error: Any, return_type: Any, details: Any, path: Path) -> None:
        super().handle_field_error(raw_error, return_type, details, path.prev or path)


class KeepsTheNull(BrokenExecutor):
    """Keeps a null in a non-null position."""

    def handle_field_error(self, raw_error: Any, return_type: Any, details: Any, path: Path) -> None:
        nullable = return_type.of_type if is_non_null_type(return_type) else return_type
        super().handle_field_error(raw_error, nullable, details, path)


class PropagatesToTheRoot(BrokenExecutor):
    """Empties the whole answer for an allowed null at depth three."""

    def handle_field_error(self, raw_error: Any, return_type: Any, details: Any, path: Path) -> None:
        super().handle_field_error(raw_error, return_type, details, path)
        if len(path.as_list()) > 3:
            raise GraphQLError("too far", path=path.as_list())


class IgnoresDirective(BrokenExecutor):
    """Ignores a directive."""

    name = "skip"

    @classmethod
    def build(cls, schema: Any, document: Any, *args: Any, **kwargs: Any) -> Any:
        class Removing(Visitor):
            def enter_directive(self, node: DirectiveNode, *_: Any) -> Any:
                return self.REMOVE if node.name.value == cls.name else None

        return super().build(schema, visit(document, Removing()), *args, **kwargs)


class IgnoresInclude(IgnoresDirective):
    name = "include"


class SwapsKeys(BrokenExecutor):
    """Reverses the order of an object's fields."""

    def execute_fields(self, kind: Any, source: Any, path: Any, fields: Any, context: Any) -> Any:
        return super().execute_fields(kind, source, path, dict(reversed(fields.items())), context)


class TakesAnyInt(BrokenExecutor):
    """Accepts every integer as an Int."""

    @staticmethod
    def complete_leaf_value(return_type: Any, result: Any) -> Any:
        if return_type is GraphQLInt and isinstance(result, int):
            return result
        return Executor.complete_leaf_value(return_type, result)


class MutatesInParallel(BrokenExecutor):
    def execute_operation(self, serially: bool | None = None) -> Any:
        return super().execute_operation(False)


class MergesOnlyTheFirst(BrokenExecutor):
    """Executes only the first of two selections of a field."""

    def collect_subfields(self, return_type: Any, details: FieldDetailsList) -> Any:
        return super().collect_subfields(return_type, details[:1])


class LosesErrorsOfItems(BrokenExecutor):
    """Sets a failed item to null without an error."""

    def complete_list_item_value(self, item: Any, results: list[Any], *args: Any) -> bool:
        before = len(self.collected_errors.errors)
        waits = super().complete_list_item_value(item, results, *args)
        del self.collected_errors.errors[before:]
        return waits


class TakesExceptionsForValues(BrokenExecutor):
    """Shows an exception that a resolver returned as text."""

    def complete_value(self, kind: Any, details: Any, info: Any, path: Any, result: Any, context: Any) -> Any:
        shown = str(result) if isinstance(result, Exception) else result
        return super().complete_value(kind, details, info, path, shown, context)


class CallsTwice(BrokenExecutor):
    """Calls a failed resolver again."""

    def execute_field(self, kind: Any, source: Any, details: Any, path: Path, context: Any) -> Any:
        before = len(self.collected_errors.errors)
        result = super().execute_field(kind, source, details, path, context)
        if result is None and len(self.collected_errors.errors) > before:
            del self.collected_errors.errors[before:]
            self.collected_errors._error_positions.discard(path)
            return super().execute_field(kind, source, details, path, context)
        return result


class WaitsForOneAfterTheOther(BrokenExecutor):
    """Awaits one after another what could be awaited together."""

    def execute_fields(self, kind: Any, source: Any, path: Any, fields: Any, context: Any) -> Any:
        return self.execute_fields_serially(kind, source, path, fields, context)


class TellsOneLocation(BrokenExecutor):
    """Reports only one location of an error although the field has several."""

    def handle_field_error(self, raw_error: Any, return_type: Any, details: Any, path: Path) -> None:
        super().handle_field_error(raw_error, return_type, details[:1], path)


class TellsTheFieldsName(BrokenExecutor):
    """Passes the field's name instead of the alias in the resolver's path."""

    def build_resolve_info(self, field: Any, nodes: Any, parent: Any, path: Path) -> Any:
        return super().build_resolve_info(field, nodes, parent, Path(path.prev, nodes[0].name.value, path.typename))


class BelievesEveryValue(BrokenExecutor):
    """Does not call `is_type_of` for an object."""

    def complete_object_value(
        self, return_type: Any, details: Any, info: Any, path: Any, result: Any, context: Any
    ) -> Any:
        return self.collect_and_execute_subfields(return_type, details, path, result, context)


class TakesAnyType(BrokenExecutor):
    """Accepts a type that is not a possible type."""

    def ensure_valid_runtime_type(self, name: Any, kind: Any, details: Any, info: Any, result: Any) -> Any:
        found = self.schema.type_map.get(name) if isinstance(name, str) else None
        return (
            found if hasattr(found, "fields") else super().ensure_valid_runtime_type(name, kind, details, info, result)
        )


class ForgetsDefaults(BrokenExecutor):
    """Sets variables that were not sent to null instead of their default."""

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().build(*args, **kwargs)
        if isinstance(made, Executor):
            operation = made.operation.variable_definitions or ()
            missing = {node.variable.name.value: None for node in operation if node.default_value is not None}
            values = made.variable_values
            made.variable_values = VariableValues(values.sources, {**values.coerced, **missing})
        return made


class IsNeverDoneAtOnce(BrokenExecutor):
    """Always returns an awaitable."""

    def execute_operation(self, serially: bool | None = None) -> Any:
        result = super().execute_operation(serially)

        async def later() -> Any:
            return await result if isawaitable(result) else result

        return later()


class EmptiesLists(BrokenExecutor):
    """Replaces an empty list by null."""

    def complete_iterable_value(self, *args: Any) -> Any:
        return super().complete_iterable_value(*args) or None


class TakesMappingsForLists(BrokenExecutor):
    """Accepts every iterable as a list."""

    def complete_list_value(self, kind: Any, details: Any, info: Any, path: Any, result: Any, context: Any) -> Any:
        items = list(result) if isinstance(result, Mapping | str) else result
        return super().complete_list_value(kind, details, info, path, items, context)


class LosesTasks(Executor[Any]):
    """Leaves its resolvers running when the operation is cancelled."""

    def execute_operation(self, serially: bool | None = None) -> Any:
        result = super().execute_operation(serially)
        return asyncio.shield(result) if isawaitable(result) else result


class RunsAllInOneTask(BrokenExecutor):
    """Runs the resolvers of an object in the task of the operation, with its context and its timeouts."""

    def execute_fields(self, kind: Any, source: Any, path: Any, fields: Any, context: Any) -> Any:
        results: dict[str, Any] = {}
        for name, details in fields.items():
            results[name] = self.execute_field(kind, source, details, Path(path, name, kind.name), context)
        return _in_one_task(results) if any(map(isawaitable, results.values())) else results


class TakesUndefinedForAValue(BrokenExecutor):
    """Treats a leaf that is undefined after coercion as null instead of an error."""

    @staticmethod
    def complete_leaf_value(return_type: Any, result: Any) -> Any:
        coerced = return_type.coerce_output_value(result)
        return None if coerced is Undefined else coerced


class RenewsNothing(BrokenExecutor):
    """Keeps the errors of earlier events in the errors of an event."""

    def build_per_event_executor(self, payload: Any) -> Any:
        made = super().build_per_event_executor(payload)
        made.collected_errors = self.collected_errors
        return made


class RunsOn(BrokenExecutor):
    """Continues with fields of an object after one of them failed and nulled the object."""

    def settle_in_background(self, awaitables: Any) -> None:
        super().settle_in_background(awaitables)
        asyncio.ensure_future(asyncio.sleep(50))  # noqa: RUF006 - that it is lost is the fault


async def _in_one_task(results: dict[str, Any]) -> dict[str, Any]:
    running = {name: result.__await__() for name, result in results.items() if isawaitable(result)}
    waiting: dict[str, Any] = dict.fromkeys(running)
    while running:
        for name, steps in list(running.items()):
            if waiting[name] is not None and not waiting[name].done():
                continue
            try:
                waiting[name] = next(steps)
                if waiting[name] is not None:
                    waiting[name]._asyncio_future_blocking = False
            except StopIteration as end:
                results[name] = end.value
                del running[name]
        pending = [waiting[name] for name in running]
        if pending and None not in pending:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        elif pending:
            await asyncio.sleep(0)
    return results


FAULTS = [*BrokenExecutor.__subclasses__(), IgnoresInclude]
