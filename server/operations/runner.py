"""The runner: it processes an operation from the request to the response, in the same way for every transport."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from graphql import ExecutionResult
from graphql.language import OperationType

from datastore.errors import BadUserInput, DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from server.admission.budgets import CallerBudgets, LocalBuckets
from server.admission.callers import Caller, payer
from server.admission.deadlines import Deadlines, DeadlineScope
from server.admission.fairness import TimeSlices
from server.admission.load_shedding import LoadShedder
from server.admission.settings import Capacity
from server.documents.cost.refusals import TooCostly
from server.documents.document_cache import Document, DocumentRejected, Documents, DocumentText, PreparedOperation
from server.documents.persisted.registry import DocumentRegistry
from server.documents.request import GraphQLParams, Stage
from server.documents.variables import check_variables
from server.operations.billing import Billing, owed_units, refusal
from server.operations.context import OpenContext
from server.operations.execution import execute_operation, selection_outcome
from server.operations.explain import Explanations
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.idempotency import Idempotency
from server.operations.incremental.runner import IncrementalRunner
from server.operations.outcome import MAX_RESPONSE_CHARACTERS, Outcome, ResponseTooLarge, failure, is_too_large
from server.operations.report import CANCELLED, Observe, Report, Tracing
from server.operations.request import UNMEASURED_VALUES, UNSLICED_VALUES, Request, Transport, preparation_units

DEADLINE = 30.0
UNLIMITED = Capacity(budget_units=0, anonymous_budget_units=0)
Process = Callable[[Request, Report], Coroutine[Any, Any, Outcome]]


class Runner:
    """The executor of queries and mutations, within `deadline` seconds. `load` limits the operations that run at once.

    It also prepares subscriptions, which `SubscriptionManager` runs with the same billing, limits and deadline.
    """

    def __init__(
        self,
        documents: Documents,
        open_context: OpenContext,
        *,
        deadline: float = DEADLINE,
        registry: DocumentRegistry | None = None,
        budgets: CallerBudgets | None = None,
        load: LoadShedder | None = None,
        idempotency: Idempotency | None = None,
        observers: Collection[Observe] = (),
        tracing: Tracing | None = None,
        explanations: Explanations = Explanations(),  # noqa: B008 - frozen
    ) -> None:
        self.documents = documents
        self.deadlines = Deadlines(deadline)
        self.slices = TimeSlices()
        self.load = load or LoadShedder(0)
        self._registry = registry
        self._budgets = budgets = budgets or CallerBudgets(LocalBuckets(), UNLIMITED)
        self._idempotency = idempotency
        self._explanations = explanations
        self.billing = Billing(
            documents,
            open_context,
            budgets=budgets,
            observers=observers,
            tracing=tracing,
            explanations=explanations,
        )
        #: Runs the requests that are `is_incremental`.
        self.incremental = IncrementalRunner(
            documents, self.billing, budgets=budgets, load=self.load, slices=self.slices, seconds=deadline
        )

    async def prepare(self, params: GraphQLParams, caller: Caller, transport: Transport) -> Request | Outcome:
        """Return the prepared request, or the outcome that refuses it."""
        started_at = time.perf_counter()
        document: Document | None = None
        operation: PreparedOperation | None = None
        estimate = 0.0
        try:
            if self._budgets.has_debts:
                self._budgets.check(caller)
            if params.explain:
                self._explanations.check(caller)
            registry = self._registry
            plain_text = None if registry is None else registry.plain_text(params)
            source = plain_text or await self._text(params, caller)
            document = self.documents.prepare(source.text, trusted=source.trusted)
            if document.introspects:
                self.documents.check_introspection(document, caller.identity)
            if registry is not None and plain_text is None:
                await registry.on_valid(params, document)
            operation = document.operation(params.name)
            variables = params.variables or {}
            values = check_variables(variables) if variables else 0
            if operation.formula.modelled:
                await operation.load_statistics(variables)
            estimate, max_values = self.documents.estimate(operation, variables)
            min_units = preparation_units(
                0 if source.trusted else document.characters, values, document.introspection_values, params.size
            )
            incremental = operation.incremental is not None and self._is_incremental(operation, params, variables)
            if operation.kind is OperationType.SUBSCRIPTION:
                params.retain_variables(operation.variable_names)
            return Request(params, caller, transport, operation, estimate, min_units, max_values, incremental)
        except DocumentRejected as rejection:
            outcome = Outcome(errors=rejection.errors, stage=rejection.stage)
        except (Throttled, Unavailable) as error:
            outcome = refusal(error)
        except DomainError as error:
            if isinstance(error, TooCostly):
                estimate = error.estimate
            outcome = failure(error, Stage.SELECTION)
        report = self.billing.start_report(Report(params, caller, transport, document, operation, estimate))
        return await self._refuse(report, outcome, started_at)

    def _is_incremental(self, operation: PreparedOperation, params: GraphQLParams, variables: dict[str, Any]) -> bool:
        """Return whether the response is delivered in parts.

        Not if a mutation has an Idempotency-Key: its response is stored and repeated as a whole. Raises `BadUserInput`.
        """
        directives = operation.incremental
        if directives is None or not directives.are_active(variables):
            return False
        if operation.kind is OperationType.SUBSCRIPTION:
            raise BadUserInput("@defer and @stream cannot be active in a subscription: set their `if` to false.")
        self.documents.check_parts(operation, variables)
        return params.idempotency_key is None or operation.kind is not OperationType.MUTATION

    async def _refuse(self, report: Report, outcome: Outcome, started_at: float) -> Outcome:
        """Charge and report a request that is not executed. Return its outcome."""
        if outcome.stage is not Stage.ADMISSION:
            params = report.params
            outcome.allowance = await self._budgets.settle(
                report.caller, preparation_units(len(params.query or ""), size=params.size)
            )
        report.add(outcome)
        self.billing.finish_report(report, started_at)
        return outcome

    async def _text(self, params: GraphQLParams, caller: Caller) -> DocumentText:
        if self._registry is not None:
            return await self._registry.resolve(params, caller)
        if params.query is None:
            raise BadUserInput("Documents have no ids here: send the query.")
        return DocumentText(params.query)

    def run(self, request: Request) -> Coroutine[Any, Any, Outcome]:
        """Execute a query or a mutation. A mutation with an Idempotency-Key runs once, and to its end."""
        idempotency = self._idempotency
        if request.params.idempotency_key is None or idempotency is None or request.kind is not OperationType.MUTATION:
            return self._with_report(request, self._process)
        return idempotency.shielded(self._with_report(request, partial(self._process_once, idempotency)))

    async def _with_report(self, request: Request, process: Process) -> Outcome:
        """Process a request, and report its outcome."""
        report = self.billing.open_report(request)
        started_at = time.perf_counter()
        try:
            try:
                outcome = await process(request, report)
            except DomainError as error:
                outcome = refusal(error)
            except TimeoutError:
                outcome = self._timed_out(report)
            if request.params.explain and outcome.replayed is None:
                self.billing.explain(request, outcome, report.explained_calls)
            report.add(outcome)
            return outcome
        except asyncio.CancelledError:
            report.add_code(CANCELLED)
            raise
        except Exception:
            report.add_code(Internal.code)
            raise
        finally:
            self.billing.finish_report(report, started_at)

    async def _process(self, request: Request, report: Report) -> Outcome:
        """Execute an operation: deadline, admission, charge, execution, settlement.

        Raises `TimeoutError` at the deadline.
        """
        load, budgets, caller, charged = self.load, self._budgets, request.caller, request.charged
        key = payer(caller)
        with DeadlineScope(self.deadlines):
            if not load.try_acquire(key):
                await load.acquire(key)
            try:
                allowance = await budgets.charge(caller, charged)
                try:
                    outcome = await self._execute(request, report)
                finally:
                    if units := owed_units(request, report, charged):
                        allowance = await budgets.settle(caller, units) or allowance
            finally:
                load.release(key)
        outcome.allowance = allowance
        return outcome

    async def _process_once(self, idempotency: Idempotency, request: Request, report: Report) -> Outcome:
        """Execute a mutation under its idempotency key: charge, deadline, admission, execution, settlement.

        A concurrent request with the same key waits without a slot of the load shedder, and its charge is refunded.
        """
        budgets, caller, charged = self._budgets, request.caller, request.charged

        async def execute(source: IdSource) -> Outcome:
            try:
                with DeadlineScope(self.deadlines):
                    async with self.load.slot(payer(caller)):
                        return await self._execute(request, report, source)
            except TimeoutError:
                return self._timed_out(report)

        meter = Meter()
        meter.detailed = request.params.explain
        allowance, outcome = await budgets.charge(caller, charged), None
        try:
            outcome = await idempotency.run_once(request, execute, meter)
        finally:
            report.response_bytes = 0 if outcome is None else len(outcome.body)
            executed, wrote = report.latest_calls, report.latest_wrote
            self.billing.measure(report, meter)
            report.latest_calls = [*executed, *report.latest_calls]
            report.latest_wrote |= wrote
            if units := owed_units(request, report, charged):
                allowance = await budgets.settle(caller, units) or allowance
        outcome.allowance = allowance
        return outcome

    def _timed_out(self, report: Report) -> Outcome:
        message = f"The operation did not finish within {self.deadlines.seconds:g} seconds and was stopped."
        outcome = failure(Timeout(message))
        if report.latest_wrote:
            outcome.mark_ambiguous()
        return outcome

    async def _execute(self, request: Request, report: Report, id_source: IdSource | None = None) -> Outcome:
        context = self.billing.open_context(request)
        if id_source is not None:
            context.use_id_source(id_source)
        meter = context.meter
        try:
            if request.max_values <= UNSLICED_VALUES:
                result = execute_operation(self.documents, request, context, in_task=True)
            else:
                await self.slices.wait_for_slice()
                with self.slices:
                    result = execute_operation(self.documents, request, context)
            if not isinstance(result, ExecutionResult):
                result = await result
            outcome = selection_outcome(result) if result.errors else Outcome(result.data)
        except asyncio.CancelledError as cancelled:
            outcome = failure(translate_cancellation(cancelled))
        finally:
            context.close()
            self.billing.measure(report, meter)
        wrote = report.latest_wrote
        stopped = meter.stop_error
        if request.max_values > UNMEASURED_VALUES and is_too_large(outcome.data):
            outcome = failure(ResponseTooLarge())
        if stopped is not None and (request.kind is OperationType.QUERY or not wrote):
            # A partial response would be misleading: it is random which fields were resolved before the stop.
            outcome = failure(stopped)
        if wrote:
            outcome.mark_ambiguous()
        report.response_bytes = len(outcome.body)
        if report.response_bytes > MAX_RESPONSE_CHARACTERS and is_too_large(outcome.data):
            outcome = failure(ResponseTooLarge())
            if wrote:
                outcome.mark_ambiguous()
            report.response_bytes = len(outcome.body)
        return outcome
