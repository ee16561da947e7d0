"""The execution of operations with active `@defer` or `@stream`: one admission, deadline, bill and report for each."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from graphql import ExecutionResult, GraphQLError, experimental_execute_incrementally
from graphql.execution import ExperimentalIncrementalExecutionResults
from msgspec import Struct
from strawberry.execution import optimized_is_awaitable

from datastore.dynamodb.calls import ITEM_WRITES
from datastore.errors import DomainError, Internal, Timeout
from server.admission.budgets import Allowance, CallerBudgets
from server.admission.callers import payer
from server.admission.fairness import TimeSlices
from server.admission.load_shedding import LoadShedder
from server.documents.document_cache import Documents
from server.operations.billing import Billing, owed_units, refusal
from server.operations.context import OperationContext
from server.operations.execution import selection_outcome
from server.operations.foreign_cancellation import ForeignCancellation, translate_cancellation
from server.operations.incremental.delivery import (
    DeliveryByIds,
    DeliveryByPaths,
    IncrementalDelivery,
    IncrementalOutcome,
    Payload,
)
from server.operations.incremental.executor import (
    DeliveryPlan,
    ExplainedIncrementalExecutor,
    GatewayIncrementalExecutor,
)
from server.operations.outcome import (
    MAX_RESPONSE_CHARACTERS,
    Outcome,
    ResponseTooLarge,
    failure,
    format_errors,
    is_too_large,
    mark_ambiguous,
    release,
)
from server.operations.report import CANCELLED, Report
from server.operations.request import UNMEASURED_VALUES, UNSLICED_VALUES, IncrementalFormat, Request

# The bytes of all payloads of a response. A character has at most four bytes.
MAX_RESPONSE_BYTES = 4 * MAX_RESPONSE_CHARACTERS


class _Run(Struct, eq=False):
    """The state of one execution."""

    request: Request
    report: Report
    format: IncrementalFormat
    #: The time of the event loop at which the operation is stopped.
    deadline: float
    #: The outcome after which nothing follows. It is sent once the operation is settled and reported.
    last: Outcome | None = None
    allowance: Allowance | None = None
    sent_bytes: int = 0
    #: The errors of the current payload, and in the form that clients may see.
    errors: list[GraphQLError] = []
    formatted: list[dict[str, Any]] = []


class IncrementalRunner:
    """The executor of queries and mutations whose results are delivered in parts, within `seconds`."""

    def __init__(
        self,
        documents: Documents,
        billing: Billing,
        *,
        budgets: CallerBudgets,
        load: LoadShedder,
        slices: TimeSlices,
        seconds: float,
    ) -> None:
        self._documents = documents
        self._billing = billing
        self._budgets = budgets
        self._load = load
        self._slices = slices
        self._seconds = seconds

    async def run(self, request: Request, format: IncrementalFormat) -> AsyncGenerator[Outcome, None]:
        """Yield the payloads, or a single `Outcome` if nothing was deferred, or the operation failed at once.

        The execution pauses until the next payload is requested: work that has begun ends, and none begins. Closing the
        generator abandons the reads in flight, and settles the budget.
        """
        report, started_at = self._billing.open_report(request), time.perf_counter()
        run = _Run(request, report, format, asyncio.get_running_loop().time() + self._seconds)
        try:
            try:
                async with aclosing(self._process(run)) as outcomes:
                    async for outcome in outcomes:
                        report.add(outcome)
                        yield outcome
            except DomainError as error:
                run.last = refusal(error)
            except TimeoutError:
                run.last = failure(self._timeout())
            assert run.last is not None, "The execution has an end."
            if request.params.explain:
                self._billing.explain(request, run.last, report.explained_calls)
            report.add(run.last)
        except (asyncio.CancelledError, GeneratorExit):
            report.add_code(CANCELLED)
            raise
        except Exception:
            report.add_code(Internal.code)
            raise
        finally:
            self._billing.finish_report(report, started_at)
        yield run.last

    async def _process(self, run: _Run) -> AsyncGenerator[Outcome, None]:
        """Yield the outcomes before the last one: admission, charge, execution, settlement.

        Raises `TimeoutError` at the deadline if there is no outcome yet.
        """
        request, key = run.request, payer(run.request.caller)
        if not self._load.try_acquire(key):
            await _before(run.deadline, self._load.acquire(key))
        try:
            run.allowance = await _before(run.deadline, self._billing.charge(request))
            try:
                async with aclosing(self._execute(run)) as outcomes:
                    async for outcome in outcomes:
                        yield outcome
            finally:
                if units := owed_units(request, run.report, request.charged):
                    run.allowance = await self._budgets.settle(request.caller, units) or run.allowance
        finally:
            self._load.release(key)
        if run.last is not None:
            run.last.allowance = run.allowance

    async def _execute(self, run: _Run) -> AsyncGenerator[Outcome, None]:
        context = self._billing.open_context(run.request)
        plan = DeliveryPlan() if run.format is IncrementalFormat.PATHS else None
        try:
            result = await self._first_result(run, context, plan)
            if isinstance(result, ExecutionResult):
                run.last = self._only(run, context, result)
                return
            format_errors = _error_formatter(run, context)
            delivery = DeliveryByIds(format_errors) if plan is None else DeliveryByPaths(plan, format_errors)
            async with aclosing(self._deliver(run, context, result, delivery)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        finally:
            context.close()
            self._billing.measure(run.report, context.meter)

    async def _deliver(
        self,
        run: _Run,
        context: OperationContext,
        result: ExperimentalIncrementalExecutionResults,
        delivery: IncrementalDelivery,
    ) -> AsyncGenerator[Outcome, None]:
        """Yield the payloads before the last one."""
        results = result.subsequent_results
        async with aclosing(results):
            try:
                outcome = self._outcome(run, context, delivery.begin(result.initial_result))
            except Exception as error:
                run.last = self._failed(run, context, error)
                return
            yield outcome
            while not outcome.is_last:
                pending = dict(delivery.pending)
                try:
                    payload = delivery.next(await _before(run.deadline, anext(results)))
                    if payload == {"hasNext": True}:
                        continue
                    outcome = self._outcome(run, context, payload)
                except Exception as error:
                    errors = self._failed(run, context, error).formatted_errors
                    outcome = IncrementalOutcome(
                        payload=delivery.fail(pending, errors), _formatted=errors, errors=run.errors
                    )
                if not outcome.is_last:
                    yield outcome
            run.last = outcome

    async def _first_result(
        self, run: _Run, context: OperationContext, plan: DeliveryPlan | None
    ) -> ExecutionResult | ExperimentalIncrementalExecutionResults:
        try:
            if run.request.max_values <= UNSLICED_VALUES:
                result = self._begin(run.request, context, plan)
            else:
                await _before(run.deadline, self._slices.wait_for_slice())
                with self._slices:
                    result = self._begin(run.request, context, plan)
            if isinstance(result, ExecutionResult | ExperimentalIncrementalExecutionResults):
                return result
            first: ExecutionResult | ExperimentalIncrementalExecutionResults = await _before(run.deadline, result)
            return first
        except asyncio.CancelledError as cancelled:
            error = translate_cancellation(cancelled)
            return ExecutionResult(None, [GraphQLError(str(error), original_error=error)])

    def _begin(self, request: Request, context: OperationContext, plan: DeliveryPlan | None) -> Any:
        executor = ExplainedIncrementalExecutor if request.params.explain else GatewayIncrementalExecutor
        return experimental_execute_incrementally(
            self._documents.schema,
            request.operation.document.node,
            context_value=context,
            variable_values=request.params.variables,
            operation_name=request.operation.name,
            hide_suggestions=self._documents.hides_suggestions,
            is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
            executor_class=executor,
            plan=plan,
        )

    def _only(self, run: _Run, context: OperationContext, result: ExecutionResult) -> Outcome:
        """Return the outcome of an operation without deferred parts."""
        outcome = selection_outcome(result)
        stopped, wrote = context.meter.stop_error, _wrote(context)
        if stopped is not None and not wrote:
            outcome = failure(stopped)
        if run.request.max_values > UNMEASURED_VALUES and is_too_large(outcome.data):
            outcome = failure(ResponseTooLarge())
        if wrote:
            outcome.mark_ambiguous()
        run.report.response_bytes = len(outcome.body)
        return outcome

    def _outcome(self, run: _Run, context: OperationContext, payload: Payload) -> IncrementalOutcome:
        """Return the outcome of a payload.

        Raises:
            ReadTooMuch: the operation has reached its read limit.
            ResponseTooLarge: the payloads are too large.
            TypeError: JSON cannot express a value.
        """
        if context.meter.stop_error is not None and not _wrote(context):
            raise context.meter.stop_error
        if run.request.max_values > UNMEASURED_VALUES and is_too_large(payload):
            raise ResponseTooLarge
        outcome = IncrementalOutcome(payload=payload, errors=run.errors, _formatted=run.formatted)
        run.errors, run.formatted = [], []
        run.sent_bytes += len(outcome.body)
        if run.sent_bytes > MAX_RESPONSE_BYTES:
            raise ResponseTooLarge
        run.report.response_bytes = run.sent_bytes
        return outcome

    def _failed(self, run: _Run, context: OperationContext, error: Exception) -> Outcome:
        """Return the failure of the whole operation, or of the rest of it."""
        run.errors, run.formatted = [], []
        outcome = failure(self._timeout() if isinstance(error, TimeoutError) else error)
        run.errors += outcome.errors
        if _wrote(context):
            outcome.mark_ambiguous()
        return outcome

    def _timeout(self) -> Timeout:
        return Timeout(f"The operation did not finish within {self._seconds:g} seconds and was stopped.")


def _error_formatter(run: _Run, context: OperationContext) -> Callable[[Sequence[GraphQLError]], list[dict[str, Any]]]:
    """Return a function that formats errors and adds them to the current payload of the run."""

    def format(errors: Sequence[GraphQLError]) -> list[dict[str, Any]]:
        translated = [_translated(error) for error in errors]
        formatted = format_errors(translated)
        if _wrote(context):
            mark_ambiguous(formatted)
        for error in translated:
            release(error)
        run.errors += translated[: len(formatted)]
        run.formatted += formatted
        return formatted

    return format


def _translated(error: GraphQLError) -> GraphQLError:
    """Return the error of a part. A cancelled awaitable of a resolver is no fault of the caller."""
    if error.original_error is None and error.nodes is None and error.path is None:
        problem = ForeignCancellation("An awaitable of the resolver was cancelled.")
        return GraphQLError(str(problem), original_error=problem)
    return error


def _wrote(context: OperationContext) -> bool:
    return any(call.operation in ITEM_WRITES and call.may_have_written for call in context.meter.calls)


async def _before(deadline: float, awaitable: Awaitable[Any]) -> Any:
    """Await until a time of the event loop. Raises `TimeoutError`."""
    async with asyncio.timeout_at(deadline):
        return await awaitable
