"""How operations are executed: the one place where the executor is chosen."""

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
from server.operations.explain import Asking
from server.operations.foreign_cancellation import cut_off
from server.operations.outcome import Outcome, failure, outcome_of
from server.operations.request import Request


class _Explained(Asking, StrawberryGraphQLCoreExecutionContext):
    """Executes what is to be explained: its fields are watched one by one."""


def executor_of(request: Request) -> type[Executor[Any]]:
    """What executes it."""
    return _Explained if request.asked.explain else request.operation.document.executor


async def executed(
    documents: Documents, request: Request, context: OperationContext, slices: TimeSlices | None = None
) -> Outcome:
    """Execute a query or a mutation. A resolver that is cut off is an error like any other.

    The time until it waits for the first time counts in `slices`.
    """
    program, variables = request.operation.program, request.asked.variables
    try:
        with slices.used() if slices is not None else nullcontext():
            if request.asked.explain:
                result = _explained(documents, request, context)
            else:
                result = program.execute(context, variables, hide_suggestions=documents.hides_suggestions)
        return answered(await result if isawaitable(result) else result)
    except asyncio.CancelledError as cancelled:
        return failure(cut_off(cancelled))


def _explained(
    documents: Documents, request: Request, context: OperationContext
) -> Awaitable[ExecutionResult] | ExecutionResult:
    return execute(
        documents.schema,
        request.operation.document.node,
        context_value=context,
        variable_values=request.asked.variables,
        operation_name=request.operation.name,
        hide_suggestions=documents.hides_suggestions,
        is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
        executor_class=_Explained,
    )


def answered(result: ExecutionResult) -> Outcome:
    """What graphql-core answered: no field is to blame where the variables did not fit, for none was executed."""
    outcome = outcome_of(result)
    if outcome.is_failure:
        outcome.stage = Stage.SELECTION
    return outcome
