"""An executor for graphql-core that compiles operations which are executed repeatedly."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import FunctionType
from typing import Any, ClassVar
from weakref import ReferenceType, ref

from graphql import DocumentNode, ExecutionResult, GraphQLSchema, OperationDefinitionNode, OperationType, execute
from graphql.execution import Executor, MiddlewareManager
from graphql.language import FragmentDefinitionNode
from graphql.pyutils import is_async_iterable
from graphql.pyutils import is_awaitable as is_awaitable_in_core

from jit.collect_fields import Unsupported
from jit.completion import is_awaitable
from jit.execution import Execution
from jit.field_plan import FieldPlan
from jit.field_resolvers import Resolver, core_resolver_of
from jit.operation import CompiledOperation, Fragments

LOGGER = logging.getLogger(__name__)
MAX_CACHED_OPERATIONS = 256
# The fields of all compiled operations, which take up to 50 MB in addition to the documents. The least recently
# executed operations are evicted first.
MAX_COMPILED_FIELDS = 20_000


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

    An operation is compiled at its `compile_after`th execution. graphql-core executes introspection, incremental
    delivery, operations with middleware, abort signals or hooks, operations without an event loop, and those of classes
    that override methods by which it executes.
    `types_by_class`: for all object types of the schema, the class of a value decides whether it has the type.
    """

    compile_after: ClassVar[int] = 2
    types_by_class: ClassVar[bool] = False
    #: The functions that an operation may be executed with: they return the same as graphql-core's `is_awaitable`.
    awaitable_predicates: ClassVar[tuple[Callable[[Any], bool], ...]] = (is_awaitable_in_core, is_awaitable)
    _operations: ClassVar[OrderedDict[Any, "CachedOperation"]] = OrderedDict()
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
        program = self._operation().program() if self._can_compile() else None
        run: Execution | None = None
        if program is not None:
            run = program.start_execution(self.root_value, self.context_value, None, lambda _: self, self)
        if program is None or run is None:
            return super().execute_operation(serially)
        is_mutation = self.operation.operation is OperationType.MUTATION
        return program.run(run, serially=is_mutation if serially is None else serially)

    def _can_compile(self) -> bool:
        return (
            not self._is_customized
            and (self.middleware_manager is None or _is_empty(self.middleware_manager))
            and self.abort_signal is None
            and self.hooks is None
            and self.is_awaitable in self.awaitable_predicates
            and self.is_async_iterable is is_async_iterable
            and _has_loop()
        )

    def _operation(self) -> "CachedOperation":
        key = (type(self), id(self.schema), id(self.operation), *map(id, self.fragment_definitions.values()))
        operations = self._operations
        operation = operations.get(key)
        if operation is None:
            operation = operations[key] = CachedOperation(
                type(self), self.schema, self.fragment_definitions, self.operation
            )
            if len(operations) > MAX_CACHED_OPERATIONS:
                operations.popitem(last=False)
        else:
            operations.move_to_end(key)
        return operation


class CachedOperation:
    """An operation of a validated document, with its compiled form once it exists."""

    def __init__(
        self,
        executor_class: type[CompiledExecutor],
        schema: GraphQLSchema,
        fragments: Fragments,
        operation: OperationDefinitionNode,
    ) -> None:
        self._executor_class = executor_class
        self._schema = schema
        self._fragments = fragments
        self._node = operation
        self._until_compiled = executor_class.compile_after
        self._program: CompiledOperation | None = None

    def program(self) -> CompiledOperation | None:
        """Return the compiled operation, or None if it was not executed often enough or cannot be compiled."""
        if self._until_compiled > 0:
            self._until_compiled -= 1
            if not self._until_compiled:
                self._program = self._compiled()
        if self._program is not None and self._program.is_outdated():
            self._program = self._compiled()
        if self._program is not None:
            _CACHE.touch(self, self._program.fields)
        return self._program

    def forget(self) -> None:
        """Drop the compiled form, and count executions from 0 again. Running executions keep the compiled form."""
        self._program = None
        self._until_compiled = self._executor_class.compile_after

    def _compiled(self) -> CompiledOperation | None:
        cls = self._executor_class
        try:
            return CompiledOperation(
                self._schema,
                self._fragments,
                self._node,
                cls.resolver_of,
                types_by_class=cls.types_by_class,
            )
        except Unsupported:
            return None
        except Exception:  # of a schema with values that no code can be generated for
            LOGGER.exception("An operation cannot be compiled. graphql-core executes it.")
            return None

    def _build_executor(self, run: Execution) -> Executor[Any]:
        document = DocumentNode(definitions=(self._node, *self._fragments.values()))
        executor = self._executor_class.build(self._schema, document, run.root, run.context, run.raw_variables)
        assert isinstance(executor, Executor), "The variables are valid."
        return executor

    def execute(
        self,
        context: Any,
        variables: dict[str, Any] | None = None,
        *,
        root: Any = None,
        hide_suggestions: bool = False,
    ) -> ExecutionResult | Awaitable[ExecutionResult]:
        """Execute like graphql-core's `execute`. A compiled operation saves the work that was done at compile time."""
        program = self.program() if _has_loop() else None
        run = program.start_execution(root, context, variables, self._build_executor) if program is not None else None
        if program is None or run is None:
            return execute(
                self._schema,
                DocumentNode(definitions=(self._node, *self._fragments.values())),
                root,
                context,
                variables,
                is_awaitable=is_awaitable,  # type: ignore[arg-type]
                executor_class=self._executor_class,
                hide_suggestions=hide_suggestions,
            )
        return program.run(run, serially=self._node.operation is OperationType.MUTATION)


class _OperationCache:
    """Weak references to compiled operations, the least recently executed first, with at most `max_fields` fields."""

    def __init__(self, max_fields: int) -> None:
        self._max_fields = max_fields
        self._entries: OrderedDict[int, tuple[ReferenceType[CachedOperation], int]] = OrderedDict()
        self._fields = 0

    def touch(self, operation: CachedOperation, fields: int) -> None:
        """Record an execution. Evict other operations while there are too many fields."""
        key = id(operation)
        if key in self._entries:
            self._entries.move_to_end(key)
            return
        self._entries[key] = ref(operation, lambda _: self._remove(key)), fields
        self._fields += fields
        while self._fields > self._max_fields and len(self._entries) > 1:
            oldest = self._entries[next(iter(self._entries))][0]()
            self._remove(next(iter(self._entries)))
            if oldest is not None:
                oldest.forget()

    def _remove(self, key: int) -> None:
        entry = self._entries.pop(key, None)
        self._fields -= entry[1] if entry is not None else 0


_CACHE = _OperationCache(MAX_COMPILED_FIELDS)


def operation_of(
    executor_class: type[CompiledExecutor],
    schema: GraphQLSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
) -> CachedOperation:
    """Return an operation of a document. The caller has to keep it as long as the document."""
    fragments = {part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)}
    return CachedOperation(executor_class, schema, fragments, operation)


def _is_empty(manager: MiddlewareManager) -> bool:
    """Return whether there is no middleware. Strawberry passes a manager in any case."""
    return type(manager) is MiddlewareManager and not manager.middlewares


def _has_loop() -> bool:
    return asyncio._get_running_loop() is not None
