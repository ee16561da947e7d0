"""What HTTP and WebSocket share: reading an operation, running it, and what may be said about its errors."""

import asyncio
import copy
import logging
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Protocol

import orjson
import strawberry
from graphql import FieldNode, GraphQLError, OperationDefinitionNode
from graphql.execution import Executor
from strawberry.exceptions import MissingQueryError
from strawberry.extensions import SchemaExtension
from strawberry.schema.exceptions import CannotGetOperationTypeError, InvalidOperationTypeError
from strawberry.types import ExecutionResult
from strawberry.types.graphql import OperationType

from datastore.emails import without_emails
from datastore.errors import BadUserInput, DomainError, Internal, Timeout
from resolvers.access import Identity

MAX_ERRORS = 20
# Messages of graphql-core quote the value they complain about, which can be as long as the request.
MAX_MESSAGE = 1000
MASKED = "Something went wrong on our side."

_log = logging.getLogger(__name__)


class OperationContext(Protocol):
    """What resolvers get as `info.context`; a fresh one is made for every operation."""

    def renew(self) -> None:
        """Forget what was read: called when an event of a subscription has come, before it is resolved."""


OpenContext = Callable[[Identity | None], OperationContext]
Identify = Callable[[str | None], Awaitable[Identity | None]]
OnResult = Callable[[str | None, OperationContext, ExecutionResult, float], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asks to be executed."""

    query: str
    variables: dict[str, Any] | None = None
    name: str | None = None
    extensions: dict[str, Any] | None = None


class OperationNotAllowed(Exception):
    """The operation is of a type that its transport does not carry."""

    def __init__(self, kind: OperationType) -> None:
        super().__init__(kind.value)
        self.kind = kind


def read_operation(payload: object) -> Operation:
    """The operation in a decoded JSON body or message; `BadUserInput` names the field that is wrong."""
    if not isinstance(payload, dict):
        raise BadUserInput("The request must be a JSON object.")
    query = payload.get("query")
    if not isinstance(query, str):
        raise BadUserInput("query must be a string.")
    name = payload.get("operationName")
    if name is not None and not isinstance(name, str):
        raise BadUserInput("operationName must be a string.")
    return Operation(query, _object(payload, "variables"), name or None, _object(payload, "extensions"))


def _object(payload: dict[str, Any], field: str) -> dict[str, Any] | None:
    value = payload.get(field)
    if value is not None and not isinstance(value, dict):
        raise BadUserInput(f"{field} must be an object.")
    return value


class Runner:
    """Runs operations against a schema, each within `deadline` seconds; a subscription runs as long as it is wanted."""

    def __init__(self, schema: strawberry.Schema, deadline: float, on_result: OnResult | None = None) -> None:
        self._schema = _renewing(schema)
        self._deadline = deadline
        self._on_result = on_result

    async def run(
        self, operation: Operation, context: OperationContext, allowed: Iterable[OperationType]
    ) -> ExecutionResult:
        """Execute a query or a mutation; `OperationNotAllowed` when the document asks for something else."""
        began = time.perf_counter()
        result = await self._run(operation, context, allowed)
        if self._on_result is not None:
            self._on_result(operation.name, context, result, time.perf_counter() - began)
        return result

    async def _run(
        self, operation: Operation, context: OperationContext, allowed: Iterable[OperationType]
    ) -> ExecutionResult:
        try:
            async with asyncio.timeout(self._deadline):
                return await self._schema.execute(
                    operation.query,
                    operation.variables,
                    context,
                    operation_name=operation.name,
                    allowed_operation_types=allowed,
                    operation_extensions=operation.extensions,
                )
        except InvalidOperationTypeError as refusal:
            raise OperationNotAllowed(refusal.operation_type) from None
        except CannotGetOperationTypeError as refusal:
            return failure(BadUserInput(_unknown_operation(refusal.operation_name)))
        except MissingQueryError:
            return failure(BadUserInput("The query is empty."))
        except TimeoutError:
            return failure(Timeout(f"The operation did not finish within {self._deadline:g} seconds and was stopped."))

    async def subscribe(self, operation: Operation, context: OperationContext) -> AsyncGenerator[ExecutionResult, None]:
        """The results of a subscription. The caller closes the generator, which releases the event source."""
        return await self._schema.subscribe(
            operation.query,
            operation.variables,
            context,
            operation_name=operation.name,
            operation_extensions=operation.extensions,
        )


def _unknown_operation(name: str | None) -> str:
    return "The document holds no operation." if name is None else "The document has no operation of that name."


def _renewing(schema: strawberry.Schema) -> strawberry.Schema:
    """The same schema, with a context that is renewed between the coming of an event and its resolution.

    Renewing before the wait for the event would be too early: its moment would be that of the event before.
    """
    renewing = copy.copy(schema)
    renewing.extensions = (*schema.extensions, _OneOperation)
    renewing.execution_context_class = type("RenewingExecutor", (_Renewing, schema.execution_context_class), {})
    return renewing


class _OneOperation(SchemaExtension):
    """Strawberry runs the first of several operations when none is named; the GraphQL specification wants an error."""

    def on_validate(self) -> Iterator[None]:
        document, name = self.execution_context.graphql_document, self.execution_context._provided_operation_name
        if name is None and document is not None and len(document.definitions) > 1:
            operations = [part for part in document.definitions if isinstance(part, OperationDefinitionNode)]
            if len(operations) > 1:
                problem = GraphQLError("The document holds several operations: name one in operationName.")
                self.execution_context.pre_execution_errors = [problem]
        yield


class _Renewing(Executor[Any]):
    def build_per_event_executor(self, payload: Any) -> Executor[Any]:
        self.context_value.renew()
        return super().build_per_event_executor(payload)


def failure(error: DomainError) -> ExecutionResult:
    """A result that is nothing but this error."""
    return ExecutionResult(data=None, errors=[GraphQLError(str(error), original_error=error)])


def described_failure(error: Exception) -> list[dict[str, Any]]:
    """An error that was raised instead of being part of a result, as a client may see it."""
    return described([error if isinstance(error, GraphQLError) else GraphQLError(str(error), original_error=error)])


def belongs_to_no_field(result: ExecutionResult) -> bool:
    """Whether the errors are about the operation as a whole: it never ran, or was broken off."""
    return result.data is None and bool(result.errors) and all(error.path is None for error in result.errors or ())


def domain_error(error: GraphQLError) -> DomainError | None:
    """The `DomainError` inside, also through wrapping and through a task group that only failed with such errors."""
    leaves = list(_leaves(_cause(error)))
    known = [leaf for leaf in leaves if isinstance(leaf, DomainError)]
    return known[0] if known and len(known) == len(leaves) else None


def _cause(error: GraphQLError) -> BaseException:
    cause: BaseException = error
    while isinstance(cause, GraphQLError) and cause.original_error is not None:
        cause = cause.original_error
    return cause


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from _leaves(part)


def answer(result: ExecutionResult) -> dict[str, Any]:
    """The response map: without `data` when nothing was executed, with at most `MAX_ERRORS` errors."""
    body: dict[str, Any] = {}
    if result.errors:
        body["errors"] = described(result.errors)
    if not belongs_to_no_field(result):
        body["data"] = result.data
    extensions = dict(result.extensions or {})
    if result.errors and len(result.errors) > MAX_ERRORS:
        extensions["omittedErrors"] = len(result.errors) - MAX_ERRORS
    if extensions:
        body["extensions"] = extensions
    return body


def described(errors: Sequence[GraphQLError]) -> list[dict[str, Any]]:
    """The errors as a client may see them."""
    return [_described(error) for error in errors[:MAX_ERRORS]]


def _described(error: GraphQLError) -> dict[str, Any]:
    known = domain_error(error)
    if known is not None:
        told = told_error(known)
    elif _is_callers_fault(error):
        told = {
            "message": _shortened(error.message),
            "extensions": {"code": BadUserInput.code, **(error.extensions or {})},
        }
    else:
        told = masked(_cause(error), error.path)
    if error.locations:
        told["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    if error.path is not None:
        told["path"] = error.path
    return told


def told_error(error: DomainError) -> dict[str, Any]:
    """A domain error in the form of the wire."""
    return {"message": _shortened(str(error)), "extensions": error.extensions}


def _is_callers_fault(error: GraphQLError) -> bool:
    """Whether the document or its variables are to blame, and not a resolver or a value it returned."""
    cause = _cause(error)
    if isinstance(cause, GraphQLError) and (error.path is None or "code" in (error.extensions or {})):
        return True
    if error.path is None:
        return bool(error.locations) or isinstance(cause, RecursionError)
    # Only errors about arguments point at something else than the field itself.
    return bool(error.nodes) and not any(isinstance(node, FieldNode) for node in error.nodes or ())


def masked(cause: BaseException, where: object = None) -> dict[str, Any]:
    """Say nothing but an id, under which the log has everything."""
    error_id = token_hex(8)
    # What an exception says may hold what was stored.
    trace = without_emails("".join(traceback.format_exception(cause)))
    _log.error("Error %s at %s\n%s", error_id, where, trace)
    return {"message": MASKED, "extensions": {"code": Internal.code, "errorId": error_id}}


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…"


def encode(body: dict[str, Any]) -> bytes:
    """JSON. A value that JSON cannot express (a lone surrogate, a huge integer) is a fault of ours like any other."""
    try:
        return orjson.dumps(body)
    except TypeError as error:
        return orjson.dumps({"errors": [masked(error)], "data": None})
