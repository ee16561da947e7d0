"""The execution of a compiled operation, with the coroutines, tasks and errors of graphql-core."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from graphql import ExecutionResult, GraphQLError, GraphQLResolveInfo, located_error
from graphql.execution import Executor, default_field_resolver
from graphql.execution.execute import assume_not_awaitable
from graphql.execution.values import VariableValues
from graphql.pyutils import Path as CorePath
from graphql.pyutils import gather_with_cancel

from jit.completion import complete_async, complete_awaited
from jit.field_plan import FieldPlan, Finish, Path, Select, core_path, keys_of

if TYPE_CHECKING:
    from jit.operation import CompiledOperation


class Execution:
    """The state of one execution of an operation.

    A value that has to be awaited is a coroutine until `joined` awaits it together with the other values of its object
    or list, in the tasks that graphql-core would create. Nothing is started before the result is awaited.
    """

    __slots__ = (
        "_build_executor",
        "_core_paths",
        "_executor",
        "_nulled",
        "arguments",
        "awaits",
        "context",
        "errors",
        "field_resolver",
        "keywords",
        "program",
        "raw_variables",
        "root",
        "variables",
    )

    def __init__(
        self,
        program: "CompiledOperation",
        root: Any,
        context: Any,
        variables: dict[str, Any],
        raw_variables: dict[str, Any] | None,
        build_executor: Callable[["Execution"], "Executor[Any]"],
        executor: "Executor[Any] | None" = None,
    ) -> None:
        self.program = program
        self.root = root
        self.context = context
        self.variables = variables
        self.raw_variables = raw_variables
        self._build_executor = build_executor
        self._executor = executor
        self._core_paths: dict[int, tuple[Path, CorePath]] = {}
        #: Whether values may be awaitable. In `execute_sync` all are taken for values.
        self.awaits = executor is None or executor.is_awaitable is not assume_not_awaitable
        self.errors: list[GraphQLError] = []
        # The positions that errors set to null.
        self._nulled: set[tuple[str | int, ...]] = set()
        self.arguments: dict[FieldPlan, dict[str, Any]] = {}
        self.keywords: dict[FieldPlan, dict[str, Any]] = {}
        resolver = default_field_resolver if executor is None else executor.field_resolver
        self.field_resolver = None if resolver is default_field_resolver else resolver

    @property
    def can_start(self) -> bool:
        """Whether this thread can start coroutines, if the execution starts them at once."""
        return True

    @property
    def executor(self) -> "Executor[Any]":
        """graphql-core's executor, built when it is first used."""
        if self._executor is None:
            self._executor = self._build_executor(self)
        return self._executor

    @property
    def variable_values(self) -> VariableValues:
        return self.executor.variable_values

    @property
    def hide_suggestions(self) -> bool:
        return self.executor.hide_suggestions

    def info(self, plan: FieldPlan, path: Path) -> GraphQLResolveInfo[Any]:
        """Return graphql-core's info of a field. For an item of a list, that is the info of the list's field."""
        while isinstance(path[1], int):
            path = path[0]
        nodes = plan.nodes(self.variables)
        place = core_path(plan, path, self._core_paths)
        return self.executor.build_resolve_info(plan.field, nodes, plan.parent_type, place)

    # Errors

    def handle_error(self, error: Exception, plan: FieldPlan, path: Path, depth: int = 0) -> Any:
        """Add the error and return None for a nullable place; otherwise raise the located error."""
        located = located_error(error, plan.nodes(self.variables), keys_of(path))
        if plan.required[depth]:
            raise located
        self.add_error(located, path)
        return None

    def add_error(self, error: GraphQLError, path: Path | None) -> None:
        """Add an error that sets this place to null, unless the place or one around it is null already."""
        keys = tuple(keys_of(path))
        if not self._nulled or not any(keys[:length] in self._nulled for length in range(len(keys) + 1)):
            self._nulled.add(keys)
            self.errors.append(error)

    # Awaiting

    def start(
        self,
        plan: FieldPlan,
        awaitable: Any,
        path: Path,
        depth: int = 0,
        finish: Finish | None = None,
        _out: Any = None,
    ) -> Any:
        """Return a coroutine that awaits the value, completes it, and handles its error."""
        return _awaited(self, plan, awaitable, path, depth, finish or plan.finish)

    def start_list(self, plan: FieldPlan, depth: int, iterator: Any, path: Path) -> Any:
        """Return a coroutine that completes the items of an asynchronous iterator."""
        return complete_async(self, plan, depth, [], iterator, path)

    def adopted(self, value: Any, _out: Any, plan: FieldPlan, path: Path, depth: int) -> Any:
        """Return a completed value as it is put into its object or list. If it is a coroutine, it handles its error."""
        return guarded(self, value, plan, path, depth) if value.__class__ is CoroutineType else value

    def joined(self, values: Any) -> Any:
        """Return the object or list. If it has coroutines, return a coroutine that awaits them concurrently."""
        items: Iterable[tuple[Any, Any]] = values.items() if values.__class__ is dict else enumerate(values)
        keys = [key for key, value in items if value.__class__ is CoroutineType]
        return _joined(values, keys) if keys else values

    def discard(self, values: Iterable[Any], rest: Iterable[Any], _error: Exception) -> None:
        """Settle what an error leaves of an object or list: coroutines among the values, awaitables among the rest."""
        left = [value for value in values if value.__class__ is CoroutineType]
        with suppress(Exception):  # of the iterator
            left.extend(rest)
        if left:
            self.executor.async_helpers.track(left)

    # Running

    def run(self, roots: Sequence[Select], *, serially: bool) -> ExecutionResult | Awaitable[ExecutionResult]:
        """Execute the fields of the root, for each of the functions after that of the previous one is complete."""
        try:
            data = self._serial(iter(roots), {}) if serially else roots[0](self, self.root, None)
        except GraphQLError as error:
            self.add_error(error, None)
            data = None
        if data.__class__ is CoroutineType:
            return self._result(data)
        return ExecutionResult(data, self.errors or None)

    def _serial(self, roots: Iterator[Select], data: dict[str, Any]) -> Any:
        for root in roots:
            part: Any = root(self, self.root, None)
            if part.__class__ is CoroutineType:
                return self._serial_awaited(roots, data, part)
            data.update(part)
        return data

    async def _serial_awaited(self, roots: Iterator[Select], data: dict[str, Any], part: Any) -> Any:
        data.update(await part)
        rest: Any = self._serial(roots, data)
        return await rest if rest.__class__ is CoroutineType else rest

    async def _result(self, awaitable: Awaitable[dict[str, Any]]) -> ExecutionResult:
        data = None
        try:
            data = await awaitable
        except GraphQLError as error:
            self.add_error(error, None)
        return ExecutionResult(data, self.errors or None)


async def _awaited(run: Execution, plan: FieldPlan, awaitable: Any, path: Path, depth: int, finish: Finish) -> Any:
    try:
        value = finish(run, plan, await awaitable, path, complete_awaited)
        return await value if value.__class__ is CoroutineType else value
    except Exception as error:
        return run.handle_error(error, plan, path, depth)


async def guarded(run: Execution, value: Any, plan: FieldPlan, path: Path, depth: int) -> Any:
    """Return the result of a coroutine, and handle its error."""
    try:
        return await value
    except Exception as error:
        return run.handle_error(error, plan, path, depth)


async def _joined(values: Any, keys: Collection[Any]) -> Any:
    if len(keys) == 1:
        (key,) = keys
        values[key] = await values[key]
        return values
    results = await gather_with_cancel(*[values[key] for key in keys])
    for key, result in zip(keys, results, strict=True):
        values[key] = result
    return values
