"""The operations of a schema, compiled when they are executed repeatedly, and the counts of their executions."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Hashable
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType, ref

from graphql import DocumentNode, ExecutionResult, GraphQLSchema, OperationDefinitionNode, OperationType
from graphql.execution import Executor
from graphql.language import FragmentDefinitionNode

from jit.collect_fields import Reason, Unsupported
from jit.completion import is_awaitable
from jit.execution import Execution
from jit.operation import CompiledOperation, Fragments

if TYPE_CHECKING:
    from jit.executor import CompiledExecutor

LOGGER = logging.getLogger(__name__)
MAX_OPERATIONS = 256
# The fields of all compiled operations of a schema, which take up to 50 MB in addition to the documents.
MAX_COMPILED_FIELDS = 20_000
# A schema has its cache as this attribute, so that both are freed together.
ATTRIBUTE = "_jit_cache"


class CacheStatistics(NamedTuple):
    """The executions so far, and the compiled operations that the cache holds."""

    compiled: int
    #: The executions by graphql-core.
    interpreted: dict[Reason, int]
    operations: int
    #: The number of fields of these operations.
    fields: int
    #: The number of compiled operations that were dropped because the cache was full.
    evicted: int


class OperationCache:
    """The operations of a schema, the least recently executed first. All methods may be called by any thread.

    It holds at most `max_operations` operations that `operation_of` has not returned: the callers of that function hold
    the others. The compiled forms of all operations have at most `max_fields` fields, and as many more of retained
    operations, which are not evicted (see `CachedOperation.retain`).
    """

    def __init__(self, max_operations: int = MAX_OPERATIONS, max_fields: int = MAX_COMPILED_FIELDS) -> None:
        self.max_operations = max_operations
        self.max_fields = max_fields
        # The other attributes are changed by the thread that has the lock.
        self._lock = Lock()
        self._operations: OrderedDict[Hashable, CachedOperation] = OrderedDict()
        self._compiled: OrderedDict[int, tuple[ReferenceType[CachedOperation], int]] = OrderedDict()
        # References to operations that no longer exist. The garbage collector may run in a thread that has the lock.
        self._dead: deque[tuple[int, ReferenceType[CachedOperation]]] = deque()
        self._fields = self._retained_fields = self._compiled_executions = self._evicted = 0
        # Retained operations, and the number of their fields.
        self._retained: dict[int, tuple[CachedOperation, int]] = {}
        self._interpreted_executions = dict.fromkeys(Reason, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a schema begins with an empty cache."""
        return OperationCache, (self.max_operations, self.max_fields)

    def clear(self) -> None:
        """Drop all compiled operations, and count executions from 0 again. Running executions are not affected."""
        with self._lock:
            operations = [operation for operation, _ in self._retained.values()]
            operations += [operation for reference, _ in self._compiled.values() if (operation := reference())]
            dropped = [operation.drop() for operation in operations]
            self._compiled.clear()
            self._retained.clear()
            cached, self._operations = self._operations, OrderedDict()
            self._fields = self._retained_fields = 0
        del dropped, operations, cached  # without the lock, because this may call finalizers

    def statistics(self) -> CacheStatistics:
        """Return the counts of this moment. The counts of executions never decrease."""
        with self._lock:
            self._remove_dead()
            interpreted = {reason: count for reason, count in self._interpreted_executions.items() if count}
            return CacheStatistics(
                self._compiled_executions,
                interpreted,
                len(self._compiled) + len(self._retained),
                self._fields + self._retained_fields,
                self._evicted,
            )

    def operation(
        self,
        executor_class: "type[CompiledExecutor]",
        schema: GraphQLSchema,
        fragments: Fragments,
        node: OperationDefinitionNode,
    ) -> "CachedOperation":
        """Return the operation of these nodes, which the cache then holds."""
        key = (executor_class, id(node), *map(id, fragments.values()))
        evicted = None
        with self._lock:
            operation = self._operations.get(key)
            if operation is not None:
                self._operations.move_to_end(key)
                return operation
            operation = self._operations[key] = CachedOperation(executor_class, schema, fragments, node, self)
            if len(self._operations) > self.max_operations:
                evicted = self._operations.popitem(last=False)
        del evicted
        return operation

    def count_interpreted(self, reason: Reason) -> None:
        """Count an execution by graphql-core."""
        with self._lock:
            self._interpreted_executions[reason] += 1

    def is_due(self, operation: "CachedOperation") -> bool:
        """Count an execution of an operation that is not compiled. Return whether the caller has to compile it now."""
        with self._lock:
            operation.until_compiled -= 1
            return operation.until_compiled == 0

    def touch(self, operation: "CachedOperation", program: CompiledOperation, executions: int = 0) -> None:
        """Move a compiled operation to the end of the cache, and count its executions.

        Evict others while there are too many fields.
        """
        key = operation.key
        dropped = []
        with self._lock:
            self._compiled_executions += executions
            if key in self._retained:
                return
            if self._dead:
                self._remove_dead()
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return
            if operation.compiled is not program or self._move_to_retained(operation):
                return  # another thread has dropped the program, or the operation has a user
            dead = self._dead
            self._compiled[key] = ref(operation, lambda reference: dead.append((key, reference))), program.fields
            self._fields += program.fields
            while self._fields > self.max_fields and len(self._compiled) > 1:
                _, (reference, freed) = self._compiled.popitem(last=False)
                self._fields -= freed
                oldest = reference()
                if oldest is not None:
                    self._evicted += 1
                    dropped.append((oldest, oldest.drop()))
        del dropped

    def retain(self, operation: "CachedOperation") -> None:
        """Count a user of an operation. The first user moves its compiled form to the retained ones, if it fits."""
        with self._lock:
            operation.users += 1
            self._move_to_retained(operation)

    def release(self, operation: "CachedOperation") -> None:
        """Count a user less. After the last one the compiled form is the most recently executed one of the cache."""
        with self._lock:
            operation.users -= 1
            program = operation.compiled
            if operation.users or not self._remove_retained(operation) or program is None:
                return
        self.touch(operation, program)

    def _move_to_retained(self, operation: "CachedOperation") -> bool:
        """Retain the compiled form of an operation that has users. Return whether it is retained."""
        program = operation.compiled
        if operation.key in self._retained or not operation.users or program is None:
            return operation.key in self._retained
        if self._retained_fields + program.fields > self.max_fields:
            return False
        self._retained[operation.key] = operation, program.fields
        self._retained_fields += program.fields
        entry = self._compiled.pop(operation.key, None)
        self._fields -= entry[1] if entry is not None else 0
        return True

    def _remove_retained(self, operation: "CachedOperation") -> bool:
        """Remove an operation from the retained ones. Return whether it was one of them."""
        entry = self._retained.pop(operation.key, None)
        self._retained_fields -= entry[1] if entry is not None else 0
        return entry is not None

    def forget(self, operation: "CachedOperation") -> None:
        """Drop the compiled form of an operation, and count its executions from 0 again."""
        with self._lock:
            self._remove_retained(operation)
            dropped = operation.drop()
            entry = self._compiled.pop(operation.key, None)
            self._fields -= entry[1] if entry is not None else 0
        del dropped

    def _remove_dead(self) -> None:
        while self._dead:
            key, reference = self._dead.popleft()
            entry = self._compiled.get(key)
            if entry is not None and entry[0] is reference:
                del self._compiled[key]
                self._fields -= entry[1]


class CachedOperation:
    """An operation of a validated document, with its compiled form once it exists."""

    def __init__(
        self,
        executor_class: "type[CompiledExecutor]",
        schema: GraphQLSchema,
        fragments: Fragments,
        node: OperationDefinitionNode,
        cache: OperationCache,
    ) -> None:
        #: The key of the operation in its cache.
        self.key = id(self)
        self._executor_class = executor_class
        self._schema = schema
        self._fragments = fragments
        self._node = node
        self._cache = cache
        #: The compiled form, once it exists.
        self.compiled: CompiledOperation | None = None
        #: The number of executions until the operation is compiled; 0 or less if it is compiled, or never will be.
        self.until_compiled = executor_class.compile_after
        #: The number of users that have retained the operation.
        self.users = 0
        #: The reason why graphql-core executes the operation while it is not compiled.
        self.reason = Reason.NOT_YET if self.until_compiled > 0 else Reason.DISABLED

    def program(self) -> CompiledOperation | None:
        """Return the compiled operation, or None if it was not executed often enough or cannot be compiled."""
        program = self.compiled
        if program is None:
            if self.until_compiled <= 0 or not self._cache.is_due(self):
                return None
            program = self.compiled = self._compile()
        elif program.is_outdated():
            program = self.compiled = self._compile()
        if program is not None:
            self._cache.touch(self, program)
        return program

    def retain(self) -> None:
        """Keep the compiled form from eviction until `release`: a subscription executes it at every event.

        If the retained operations have more than `max_fields` fields of the cache, it may be evicted like others.
        """
        self._cache.retain(self)

    def release(self) -> None:
        """End one `retain`."""
        self._cache.release(self)

    def forget(self) -> None:
        """Drop the compiled form, and count executions from 0 again. Running executions keep the compiled form."""
        self._cache.forget(self)

    def drop(self) -> CompiledOperation | None:
        """Do the part of `forget` that concerns this object. Return the compiled form that it had."""
        program, self.compiled = self.compiled, None
        self.until_compiled = self._executor_class.compile_after
        self.reason = Reason.NOT_YET if self.until_compiled > 0 else Reason.DISABLED
        return program

    def _compile(self) -> CompiledOperation | None:
        cls = self._executor_class
        try:
            return CompiledOperation(
                self._schema,
                self._fragments,
                self._node,
                cls.resolver_of,
                types_by_class=cls.types_by_class,
                eager=cls.eager,
            )
        except Unsupported as unsupported:
            self.reason = unsupported.reason
        except Exception:  # of a schema with values that no code can be generated for
            LOGGER.exception("An operation cannot be compiled. graphql-core executes it.")
            self.reason = Reason.FAILED
        return None

    def start_execution(self, executor: Executor[Any]) -> Execution | None:
        """Return an execution with the values of an executor; None if graphql-core has to execute it. Count it."""
        program = self.program()
        if program is None:
            self._cache.count_interpreted(self.reason)
            return None
        run = program.start_execution(executor.root_value, executor.context_value, None, lambda _: executor, executor)
        if run is None:
            self._cache.count_interpreted(Reason.VARIABLES)
        else:
            self._cache.touch(self, program, executions=1)
        return run

    def execute(
        self,
        context: Any,
        variables: dict[str, Any] | None = None,
        *,
        root: Any = None,
        hide_suggestions: bool = False,
        in_task: bool = False,
    ) -> ExecutionResult | Awaitable[ExecutionResult]:
        """Execute like graphql-core's `execute`. A compiled operation saves the work that was done at compile time.

        With `in_task` the caller awaits the result at once. The coroutine of a single root field then starts when the
        result is awaited, also in eager execution, and runs in the task that awaits it, without a driver of its own.
        """
        program = self.compiled
        if program is not None and not program.is_outdated():
            run = program.start_execution(root, context, variables, self._build_executor)
            if run is not None and (in_task or run.can_start):
                self._cache.touch(self, program, executions=1)
                if in_task and program.run_in_task is not None:
                    return program.run_in_task(run)
                return run.run(program.roots, serially=self._node.operation is OperationType.MUTATION)
        executor = self._executor_class.build(
            self._schema,
            self._document(),
            root,
            context,
            variables,
            is_awaitable=is_awaitable,  # type: ignore[arg-type]
            hide_suggestions=hide_suggestions,
        )
        if isinstance(executor, list):
            return ExecutionResult(None, executor)
        assert isinstance(executor, self._executor_class), "The class has built it."
        executor.cached_operation = self
        try:
            result: ExecutionResult | Awaitable[ExecutionResult] = executor.execute_operation()
        finally:
            executor.cached_operation = None  # only the garbage collector frees an executor
        return result

    def _build_executor(self, run: Execution) -> Executor[Any]:
        executor = self._executor_class.build(self._schema, self._document(), run.root, run.context, run.raw_variables)
        assert isinstance(executor, Executor), "The variables are valid."
        return executor

    def _document(self) -> DocumentNode:
        return DocumentNode(definitions=(self._node, *self._fragments.values()))


def cache_of(schema: GraphQLSchema) -> OperationCache:
    """Return the cache of a schema. It exists as long as the schema."""
    attributes = vars(schema)
    cache: OperationCache | None = attributes.get(ATTRIBUTE)
    return attributes.setdefault(ATTRIBUTE, OperationCache()) if cache is None else cache


def operation_of(
    executor_class: "type[CompiledExecutor]",
    schema: GraphQLSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
) -> CachedOperation:
    """Return an operation of a document. The caller has to keep it as long as the document."""
    fragments = {part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)}
    return CachedOperation(executor_class, schema, fragments, operation, cache_of(schema))


def has_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
