"""graphql-core's executor, which makes programs of the operations that are executed again and again."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any, ClassVar
from weakref import ReferenceType, ref

from graphql import DocumentNode, ExecutionResult, GraphQLSchema, OperationDefinitionNode, OperationType, execute
from graphql.execution import Executor
from graphql.language import FragmentDefinitionNode
from graphql.pyutils.is_awaitable import is_async_iterable, is_awaitable
from strawberry.execution import optimized_is_awaitable

from jit.collect_fields import Unsupported
from jit.execution import Execution
from jit.field_plan import FieldPlan
from jit.field_resolvers import Resolver, of_field
from jit.operation import CompiledOperation, Fragments

OPERATIONS_KEPT = 256
# In all programs together: some 50 MB, were no two of them alike, beside the documents they are of. Those that were not
# executed for the longest time are forgotten first.
FIELDS_KEPT = 20_000


class CompiledExecutor(Executor[Any]):
    """Give it to graphql-core's `execute` and `subscribe` as `executor_class`.

    An operation is compiled when it is executed for the `compile_after`th time. Introspection, incremental delivery,
    middleware, abort signals and hooks are left to graphql-core's own execution, as is what runs without an event loop.
    `types_by_class`: that a value is of an object type follows from its class, for all types of the schema.
    """

    compile_after: ClassVar[int] = 2
    types_by_class: ClassVar[bool] = False
    _operations: ClassVar[OrderedDict[Any, "CachedOperation"]] = OrderedDict()

    @classmethod
    def resolver_of(cls, plan: FieldPlan) -> Resolver:
        """How a field is resolved."""
        return of_field(plan)

    def execute_operation(self, serially: bool | None = None) -> Any:
        """The result, or an awaitable of it."""
        program = self._operation().program() if self._is_usual() else None
        run: Execution | None = None
        if program is not None:
            run = program.begun(self.root_value, self.context_value, None, lambda _: self, self)
        if program is None or run is None:
            return super().execute_operation(serially)
        is_mutation = self.operation.operation is OperationType.MUTATION
        return program.run(run, serially=is_mutation if serially is None else serially)

    def _is_usual(self) -> bool:
        return (
            self.middleware_manager is None
            and self.abort_signal is None
            and self.hooks is None
            and self.is_awaitable in (is_awaitable, optimized_is_awaitable)
            and self.is_async_iterable is is_async_iterable
            and _has_loop()
        )

    def _operation(self) -> "CachedOperation":
        key = (type(self), id(self.schema), id(self.operation), *map(id, self.fragment_definitions.values()))
        operations = self._operations
        found = operations.get(key)
        if found is None:
            found = operations[key] = CachedOperation(
                type(self), self.schema, self.fragment_definitions, self.operation
            )
            if len(operations) > OPERATIONS_KEPT:
                operations.popitem(last=False)
        else:
            operations.move_to_end(key)
        return found


class CachedOperation:
    """An operation of a validated document, and its program once it has one."""

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
        self._left = executor_class.compile_after
        self._program: CompiledOperation | None = None

    def program(self) -> CompiledOperation | None:
        """None until it has been asked for often enough, and for what is not compiled."""
        if self._left > 0:
            self._left -= 1
            if not self._left:
                self._program = self._compiled()
        if self._program is not None:
            _KEPT.used(self, self._program.fields)
        return self._program

    def forget(self) -> None:
        """Begin anew: executions under way have the program as long as they need it."""
        self._program = None
        self._left = self._executor_class.compile_after

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
        except (Unsupported, RecursionError):
            return None

    def _build_executor(self, run: Execution) -> Executor[Any]:
        document = DocumentNode(definitions=(self._node, *self._fragments.values()))
        executor = self._executor_class.build(self._schema, document, run.root, run.context, run.raw_variables)
        assert isinstance(executor, Executor), "The variables were good a moment ago."
        return executor

    def execute(
        self,
        context: Any,
        variables: dict[str, Any] | None = None,
        *,
        root: Any = None,
        hide_suggestions: bool = False,
    ) -> ExecutionResult | Awaitable[ExecutionResult]:
        """As graphql-core's `execute` does, with nothing that could have been done before."""
        program = self.program() if _has_loop() else None
        run = program.begun(root, context, variables, self._build_executor) if program is not None else None
        if program is None or run is None:
            return execute(
                self._schema,
                DocumentNode(definitions=(self._node, *self._fragments.values())),
                root,
                context,
                variables,
                is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
                executor_class=self._executor_class,
                hide_suggestions=hide_suggestions,
            )
        return program.run(run, serially=self._node.operation is OperationType.MUTATION)


class _OperationCache:
    """The operations that have programs, those last that were executed last; none is kept alive by it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[ReferenceType[CachedOperation], int]] = OrderedDict()
        self._fields = 0

    def used(self, operation: CachedOperation, fields: int) -> None:
        """It has a program with so many fields. Others are forgotten where there are too many."""
        key = id(operation)
        if key in self._known:
            self._known.move_to_end(key)
            return
        self._known[key] = ref(operation, lambda _: self._leave(key)), fields
        self._fields += fields
        while self._fields > self._most and len(self._known) > 1:
            oldest = self._known[next(iter(self._known))][0]()
            self._leave(next(iter(self._known)))
            if oldest is not None:
                oldest.forget()

    def _leave(self, key: int) -> None:
        known = self._known.pop(key, None)
        self._fields -= known[1] if known is not None else 0


_KEPT = _OperationCache(FIELDS_KEPT)


def operation_of(
    executor_class: type[CompiledExecutor],
    schema: GraphQLSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
) -> CachedOperation:
    """An operation of a document, to be kept beside it."""
    fragments = {part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)}
    return CachedOperation(executor_class, schema, fragments, operation)


def _has_loop() -> bool:
    return asyncio._get_running_loop() is not None
