"""An executor for graphql-core that compiles operations which are executed repeatedly."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

from graphql import OperationType
from graphql.execution import Executor, MiddlewareManager
from graphql.execution.execute import assume_not_async_iterable, assume_not_awaitable
from graphql.pyutils import is_async_iterable
from graphql.pyutils import is_awaitable as is_awaitable_in_core

from jit.cache import CachedOperation, cache_of, has_loop
from jit.collect_fields import Reason
from jit.completion import is_awaitable
from jit.field_plan import FieldPlan
from jit.field_resolvers import Resolver, core_resolver_of

# Methods of graphql-core's executor that compiled operations call, or leave to it.
CALLED_METHODS = frozenset(
    ["build", "build_per_event_executor", "build_resolve_info", "ensure_valid_runtime_type", "execute_operation"]
)
# The other methods, which compiled operations do not call. graphql-core executes for a class that overrides one.
REPLACED_METHODS = [
    name
    for name, value in vars(Executor).items()
    if isinstance(value, FunctionType | staticmethod)
    and not name.startswith(("__", "is_"))
    and name not in CALLED_METHODS
]


class CompiledExecutor(Executor[Any]):
    """The `executor_class` of graphql-core's `execute` and `subscribe`.

    An operation is compiled at its `compile_after`th execution, or never if that is 0. `Reason` lists what graphql-core
    executes. `types_by_class`: for all object types of the schema, the class of a value decides whether it has the
    type. `eager`: coroutines start at once, and are driven without tasks (see `jit.eager`).
    """

    compile_after: ClassVar[int] = 2
    types_by_class: ClassVar[bool] = False
    eager: ClassVar[bool] = False
    #: The functions that an operation may be executed with: they return the same as graphql-core's `is_awaitable`.
    awaitable_predicates: ClassVar[tuple[Callable[[Any], bool], ...]] = (is_awaitable_in_core, is_awaitable)
    #: The operation that is executed. If it is None, the cache of the schema has it.
    cached_operation: CachedOperation | None = None
    _is_customized: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        methods = [getattr(cls, name) for name in REPLACED_METHODS]
        cls._is_customized = not all(method.__module__.startswith("graphql.execution.") for method in methods)

    @classmethod
    def resolver_of(cls, plan: FieldPlan) -> Resolver:
        """Return the resolver of a field."""
        return core_resolver_of(plan)

    def execute_operation(self, serially: bool | None = None) -> Any:
        """Return the result, or an awaitable of it."""
        is_mutation = self.operation.operation is OperationType.MUTATION
        reason = self._obstacle() if serially is None or serially is is_mutation else Reason.FIELD_ORDER
        if reason is not None:
            cache_of(self.schema).count_interpreted(reason)
            return super().execute_operation(serially)
        run = self._operation().start_execution(self)
        if run is None:
            return super().execute_operation(serially)
        return run.run(run.program.roots, serially=is_mutation)

    def build_per_event_executor(self, payload: Any) -> Executor[Any]:
        """Return the executor of an event. A subscription keeps its operation, also if the cache evicts it."""
        self.cached_operation = self._operation()
        return super().build_per_event_executor(payload)

    def _operation(self) -> CachedOperation:
        return self.cached_operation or cache_of(self.schema).operation(
            type(self), self.schema, self.fragment_definitions, self.operation
        )

    def _obstacle(self) -> Reason | None:
        """Return the reason why no operation with these arguments can be compiled."""
        if self._is_customized:
            return Reason.OVERRIDDEN
        if self.middleware_manager is not None and not _is_empty(self.middleware_manager):
            return Reason.MIDDLEWARE
        if self.abort_signal is not None:
            return Reason.ABORT_SIGNAL
        if self.hooks is not None:
            return Reason.HOOKS
        if not self._has_usual_predicates():
            return Reason.PREDICATE
        return None if not self.eager or has_loop() else Reason.NO_LOOP

    def _has_usual_predicates(self) -> bool:
        if self.is_awaitable is assume_not_awaitable and self.is_async_iterable is assume_not_async_iterable:
            return not self.eager  # graphql-core's `execute_sync`
        return self.is_awaitable in self.awaitable_predicates and self.is_async_iterable is is_async_iterable


def _is_empty(manager: MiddlewareManager) -> bool:
    """Return whether there is no middleware. Strawberry passes a manager in any case."""
    return type(manager) is MiddlewareManager and not manager.middlewares
