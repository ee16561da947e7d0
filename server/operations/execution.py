"""Execution of operations and of the events of subscriptions: the choice of the executor."""

from collections.abc import Awaitable
from typing import Any

from graphql import ExecutionResult, experimental_execute_incrementally
from graphql.execution import Executor
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.documents.document_cache import Documents
from server.documents.request import Stage
from server.operations.context import OperationContext
from server.operations.explain import FieldTracingExecutor
from server.operations.outcome import Outcome, outcome_of
from server.operations.request import Request


class _Explained(FieldTracingExecutor, StrawberryGraphQLCoreExecutionContext):
    """The executor of explained operations: it traces each field."""


def executor_of(request: Request) -> type[Executor[Any]]:
    """Return the executor class of a request."""
    return _Explained if request.params.explain else request.operation.document.executor


def execute_operation(
    documents: Documents, request: Request, context: OperationContext, event: Any = None, *, in_task: bool = False
) -> Awaitable[ExecutionResult] | ExecutionResult:
    """Execute a query, a mutation or an event of a subscription. Return the result, or an awaitable of it.

    With `in_task` the caller awaits the result at once, in the current task (see `CachedOperation.execute`).
    """
    if request.params.explain:
        return _explained(documents, request, context, event)
    return request.operation.program.execute(
        context, request.params.variables, root=event, hide_suggestions=documents.hides_suggestions, in_task=in_task
    )


def _explained(
    documents: Documents, request: Request, context: OperationContext, event: Any
) -> Awaitable[ExecutionResult] | ExecutionResult:
    # graphql-core's `execute` refuses a schema with `@defer`. This executor executes without the directive.
    return experimental_execute_incrementally(  # type: ignore[return-value]
        documents.schema,
        request.operation.document.node,
        event,
        context_value=context,
        variable_values=request.params.variables,
        operation_name=request.operation.name,
        hide_suggestions=documents.hides_suggestions,
        is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
        executor_class=_Explained,
    )


def selection_outcome(result: ExecutionResult) -> Outcome:
    """Return the outcome of graphql-core's result. A failure before the first field has the selection stage."""
    outcome = outcome_of(result)
    if outcome.is_failure:
        outcome.stage = Stage.SELECTION
    return outcome
