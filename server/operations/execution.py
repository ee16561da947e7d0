"""Execution of queries and mutations: the choice of the executor."""

import asyncio
from collections.abc import Awaitable
from contextlib import nullcontext
from inspect import isawaitable
from typing import Any

from graphql import ExecutionResult, execute
from graphql.execution import Executor
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.admission.fairness import TimeSlices
from server.documents.document_cache import Documents
from server.documents.request import Stage
from server.operations.context import OperationContext
from server.operations.explain import FieldTracingExecutor
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure, outcome_of
from server.operations.request import Request


class _Explained(FieldTracingExecutor, StrawberryGraphQLCoreExecutionContext):
    """The executor of explained operations: it traces each field."""


def executor_of(request: Request) -> type[Executor[Any]]:
    """Return the executor class of a request."""
    return _Explained if request.params.explain else request.operation.document.executor


async def execute_operation(
    documents: Documents, request: Request, context: OperationContext, slices: TimeSlices | None = None
) -> Outcome:
    """Execute a query or a mutation. A foreign cancellation in a resolver is an error like any other.

    `slices` measures the time until the operation first waits.
    """
    program, variables = request.operation.program, request.params.variables
    try:
        with slices.measure() if slices is not None else nullcontext():
            if request.params.explain:
                result = _explained(documents, request, context)
            else:
                result = program.execute(context, variables, hide_suggestions=documents.hides_suggestions)
        return selection_outcome(await result if isawaitable(result) else result)
    except asyncio.CancelledError as cancelled:
        return failure(translate_cancellation(cancelled))


def _explained(
    documents: Documents, request: Request, context: OperationContext
) -> Awaitable[ExecutionResult] | ExecutionResult:
    return execute(
        documents.schema,
        request.operation.document.node,
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
