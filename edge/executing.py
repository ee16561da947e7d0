"""How operations are executed: the one place where the executor is chosen."""

from inspect import isawaitable
from typing import Any

from graphql import ExecutionResult, execute
from graphql.execution import Executor
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from edge.answers import Outcome, Stage, outcome_of
from edge.documents.prepared import Documents
from edge.explain import Asking
from edge.requests import OperationContext, Request


class _Explained(Asking, StrawberryGraphQLCoreExecutionContext):
    """Executes what is to be explained: its fields are watched one by one."""


def executor_of(request: Request) -> type[Executor[Any]]:
    """What executes it."""
    return _Explained if request.asked.explain else request.operation.document.executor


async def executed(documents: Documents, request: Request, context: OperationContext) -> Outcome:
    """What became of a query or a mutation."""
    operation, variables = request.operation, request.asked.variables
    if request.asked.explain:
        result = execute(
            documents.schema,
            operation.document.node,
            context_value=context,
            variable_values=variables,
            operation_name=operation.name,
            hide_suggestions=documents.hides_suggestions,
            is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
            executor_class=_Explained,
        )
    else:
        result = operation.program.execute(context, variables, hide_suggestions=documents.hides_suggestions)
    return answered(await result if isawaitable(result) else result)


def answered(result: ExecutionResult) -> Outcome:
    """What graphql-core answered: no field is to blame where the variables did not fit, for none was executed."""
    outcome = outcome_of(result)
    if outcome.is_failure:
        outcome.stage = Stage.SELECTION
    return outcome
