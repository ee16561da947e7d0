"""From what a client asks to its answer, the same for every transport: known, prepared, afforded, executed, told of."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from math import ceil
from typing import Any

from graphql import ExecutionResult, execute, subscribe
from graphql.execution import Executor
from graphql.language import OperationType
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from datastore.errors import BadUserInput, DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.metering import Meter
from edge.answers import Allowance, Outcome, Stage, failure, outcome_of
from edge.capacity.addresses import payer
from edge.capacity.load import Load
from edge.capacity.places import Places
from edge.documents.costs import TooCostly
from edge.documents.prepared import Documents, KnownText, Rejected
from edge.documents.variables import check_variables
from edge.explain import Asking, Explanations
from edge.operations import Caller, Operation, Transport
from edge.requests import (
    Budgets,
    Observe,
    Once,
    OpenContext,
    OperationContext,
    OverBudget,
    Registry,
    Report,
    Request,
    Tracing,
    least_units,
    report_on,
)

DEADLINE = 30.0
CANCELLED = "CANCELLED"

Answer = Callable[[Request, Report], Coroutine[Any, Any, Outcome]]


class Runner:
    """Runs operations, each within `deadline` seconds; a subscription runs as long as it is wanted.

    `load` is what the process takes on at once, and `subscriptions` are the places for those that run.
    """

    def __init__(
        self,
        documents: Documents,
        open_context: OpenContext,
        *,
        deadline: float = DEADLINE,
        registry: Registry | None = None,
        budgets: Budgets | None = None,
        load: Load | None = None,
        subscriptions: Places | None = None,
        once: Once | None = None,
        observers: Collection[Observe] = (),
        tracing: Tracing | None = None,
        explanations: Explanations = Explanations(),  # noqa: B008 - frozen
    ) -> None:
        self._documents = documents
        self._open_context = open_context
        self._deadline = deadline
        self._registry = registry
        self._budgets = budgets
        self._load = load or Load(0)
        self._subscriptions = subscriptions or Places("subscriptions", 0, 0)
        self._once = once
        self._observers = observers
        self._tracing = tracing
        self._explanations = explanations

    def check_load(self) -> None:
        """Raises `Unavailable` when an operation that came now would not be executed: it need not be read."""
        self._load.check()

    async def prepare(self, asked: Operation, caller: Caller, transport: Transport) -> Request | Outcome:
        """The operation made ready, or why it will not be executed."""
        report = Report(asked, caller, transport)
        began = time.perf_counter()
        least = least_units(asked.query or "")
        try:
            if self._budgets is not None:
                self._budgets.check(caller)
            if asked.explain:
                self._explanations.check(caller)
            known = await self._text(asked, caller)
            report.document = document = self._documents.prepare(known.text, trusted=known.trusted)
            self._documents.allow(document, caller.identity)
            if self._registry is not None:
                await self._registry.accepted(asked, document)
            report.operation = operation = document.operation(asked.name)
            variables = asked.variables or {}
            values = check_variables(variables)
            estimate = self._documents.estimate(operation, variables)
            least = least_units("" if known.trusted else known.text, values, document.introspected)
            return Request(asked, caller, transport, operation, estimate, least)
        except Rejected as refusal:
            outcome = Outcome(errors=refusal.errors, stage=refusal.stage)
        except (Throttled, Unavailable) as error:
            outcome = _not_admitted(error)
        except DomainError as error:
            if isinstance(error, TooCostly):
                report.estimate = error.estimate
            outcome = failure(error, Stage.SELECTION)
        self._begin(report)
        if outcome.stage is not Stage.ADMISSION and self._budgets is not None:
            outcome.allowance = await self._budgets.settle(caller, least)
        report.add(outcome)
        self._tell(report, began)
        return outcome

    async def _text(self, asked: Operation, caller: Caller) -> KnownText:
        if self._registry is not None:
            return await self._registry.text_of(asked, caller)
        if asked.query is None:
            raise BadUserInput("Documents are not known by an id here: send the query.")
        return KnownText(asked.query)

    async def run(self, request: Request) -> Outcome:
        """Execute a query or a mutation. A mutation with an Idempotency-Key is executed once, and to its end."""
        keyed = request.kind is OperationType.MUTATION and request.asked.idempotency_key is not None
        if self._once is None or not keyed:
            return await self._reported(request, self._timed)
        return await self._once.lasting(self._reported(request, partial(self._answered_once, self._once)))

    async def _reported(self, request: Request, answer: Answer) -> Outcome:
        report = self._begin(report_on(request))
        began = time.perf_counter()
        try:
            outcome = await self._admitted(request, report, answer)
            if outcome.replayed is None:
                self._explain(request, outcome, report.done)
            report.add(outcome)
            return outcome
        except asyncio.CancelledError:
            report.note(CANCELLED)
            raise
        except Exception:
            report.note(Internal.code)
            raise
        finally:
            self._tell(report, began)

    async def _admitted(self, request: Request, report: Report, answer: Answer) -> Outcome:
        try:
            return await answer(request, report)
        except DomainError as error:
            return _not_admitted(error)

    async def _timed(self, request: Request, report: Report) -> Outcome:
        return await self._in_time(request, report, partial(self._paid, self._executed))

    async def _answered_once(self, once: Once, request: Request, report: Report) -> Outcome:
        """Only what is executed takes a turn: twins wait without one. What they have not cost is given back."""

        async def answer(request: Request, report: Report) -> Outcome:
            meter = Meter()
            meter.detailed = request.asked.explain
            try:
                run = partial(self._in_time, request, report, self._executed)
                return await once.answered(request, run, meter)
            finally:
                executed = report.latest
                self._measure(report, meter)
                report.latest = executed + report.latest

        return await self._paid(answer, request, report)

    async def _in_time(self, request: Request, report: Report, work: Answer) -> Outcome:
        try:
            async with asyncio.timeout(self._deadline), self._load.turn(payer(request.caller)):
                return await work(request, report)
        except TimeoutError:
            late = Timeout(f"The operation did not finish within {self._deadline:g} seconds and was stopped.")
            wrote = any(call.wrote for call in report.latest)
            if wrote:
                late.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
            outcome = failure(late)
            outcome.wrote = wrote
            return outcome

    async def _paid(self, work: Answer, request: Request, report: Report) -> Outcome:
        """What `work` answers, its estimate charged before and what it really cost afterwards, however it ends."""
        allowance = await self._charge(request)
        try:
            outcome = await work(request, report)
        finally:
            settled = await self._settle(request, _owed(request, report, report.price, request.charged))
        outcome.allowance = settled or allowance
        return outcome

    async def _executed(self, request: Request, report: Report) -> Outcome:
        context = self._opened(request)
        try:
            outcome = await self._execute(request, context)
        finally:
            context.close()
            self._measure(report, context.meter)
        wrote = any(call.wrote for call in report.latest)
        stopped = context.meter.stopped
        if stopped is not None and (request.kind is OperationType.QUERY or not wrote):
            # Which fields had what they needed before is chance: nobody shall take their values for the answer.
            outcome = failure(stopped)
        outcome.wrote = wrote
        return outcome

    async def _execute(self, request: Request, context: OperationContext) -> Outcome:
        result = execute(
            self._documents.schema,
            request.operation.document.node,
            context_value=context,
            variable_values=request.asked.variables,
            operation_name=request.operation.name,
            hide_suggestions=self._documents.hides_suggestions,
            is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
            executor_class=_Explained if request.asked.explain else StrawberryGraphQLCoreExecutionContext,
        )
        return _answered(await result if isawaitable(result) else result)

    async def stream(self, request: Request) -> AsyncGenerator[Outcome, None]:
        """The answers of a subscription. The caller closes the generator, which releases the event source."""
        report = self._begin(report_on(request))
        began = time.perf_counter()
        results = self._events(request, report)
        try:
            with self._subscriptions.taken(payer(request.caller)):
                async with aclosing(results):
                    async for outcome in results:
                        report.events += outcome.stage is Stage.EXECUTION
                        report.add(outcome)
                        yield outcome
        except DomainError as error:
            outcome = _not_admitted(error)
            if report.events:  # it ran until now
                outcome.stage = Stage.EXECUTION
            report.add(outcome)
            yield outcome
        finally:
            self._tell(report, began)

    async def _events(self, request: Request, report: Report) -> AsyncGenerator[Outcome, None]:
        context = self._opened(request)
        paid, started = 0.0, False
        try:
            async with self._load.turn(payer(request.caller)):
                allowance = await self._charge(request)
                paid = request.charged
                results = await self._source(request, context)
            started = True
            if isinstance(results, ExecutionResult):
                outcome = _answered(results)
                outcome.allowance = allowance
                self._explain(request, outcome, context.meter)
                yield outcome
                return
            async with aclosing(results):
                async for result in results:
                    outcome = outcome_of(result)
                    self._explain(request, outcome, context.meter)
                    yield outcome
                    # What an event reads is paid for once it has been sent, beyond what was paid for the start.
                    spent = self._measure(report, context.meter)
                    owed, paid = _spent(request, spent, paid) - paid, 0.0
                    _check_debt(await self._settle(request, owed))
        except Exception as error:
            if isinstance(error, OverBudget) or (isinstance(error, DomainError) and not started):
                raise
            outcome = failure(error)
            self._explain(request, outcome, context.meter)
            yield outcome
        finally:
            context.close()
            if paid or context.meter.calls:
                spent = self._measure(report, context.meter)
                await self._settle(request, _owed(request, report, spent, paid))

    async def _source(self, request: Request, context: OperationContext) -> Any:
        source = subscribe(
            self._documents.schema,
            request.operation.document.node,
            context_value=context,
            variable_values=request.asked.variables,
            operation_name=request.operation.name,
            hide_suggestions=self._documents.hides_suggestions,
            executor_class=_ExplainedRenewing if request.asked.explain else _Renewing,
        )
        return await source if isawaitable(source) else source

    def _opened(self, request: Request) -> OperationContext:
        context = self._open_context(request.caller.identity)
        context.meter.detailed = request.asked.explain
        context.meter.allowed = self._documents.most_read(request.estimate)
        context.meter.finishes = request.kind is OperationType.MUTATION
        return context

    def _explain(self, request: Request, outcome: Outcome, meter: Meter) -> None:
        if not request.asked.explain:
            return
        told = self._explanations.of(request.operation, request.caller, request.estimate, meter)
        outcome.extend("dynamodb", told)

    async def _charge(self, request: Request) -> Allowance | None:
        if self._budgets is None:
            return None
        return await self._budgets.charge(request.caller, request.charged)

    async def _settle(self, request: Request, units: float) -> Allowance | None:
        if self._budgets is None or not units:
            return None
        return await self._budgets.settle(request.caller, units)

    def _begin(self, report: Report) -> Report:
        if self._tracing is not None:
            self._tracing.began(report)
        return report

    def _measure(self, report: Report, meter: Meter) -> float:
        spent = report.measure(meter)
        if self._tracing is not None:
            self._tracing.measured(report)
        return spent

    def _tell(self, report: Report, began: float) -> None:
        report.seconds = time.perf_counter() - began
        if self._tracing is not None:
            self._tracing.ended(report)
        for observe in self._observers:
            observe(report)


def _not_admitted(error: DomainError) -> Outcome:
    outcome = failure(error, Stage.ADMISSION)
    if isinstance(error, OverBudget):
        outcome.allowance = error.allowance
    return outcome


def _answered(result: ExecutionResult) -> Outcome:
    """What graphql-core answered: no field is to blame where the variables did not fit, for none was executed."""
    outcome = outcome_of(result)
    if outcome.is_failure:
        outcome.stage = Stage.SELECTION
    return outcome


def _spent(request: Request, spent: float, paid: float) -> float:
    """What counts as spent of what was `paid` at the start: something stays, whatever was read."""
    return max(spent, request.least) if paid else spent


def _owed(request: Request, report: Report, spent: float, paid: float) -> float:
    """What is to be settled. Nothing comes back where calls were given up: DynamoDB bills them, and tells nobody."""
    spent = _spent(request, spent, paid)
    return spent - paid if report.knows_all else max(0.0, spent - paid)


def _check_debt(allowance: Allowance | None) -> None:
    """Events are paid for after they were sent; they may go on until they owe as much as a budget holds."""
    if allowance is not None and allowance.remaining < -allowance.limit:
        message = f"The events of this subscription overdrew your budget by {-allowance.remaining:,.0f} read units."
        raise OverBudget(message, allowance, retryAfter=ceil(allowance.reset))


class _Renewing(StrawberryGraphQLCoreExecutionContext):
    """Renews the context between the coming of an event and its resolution.

    Renewing before the wait for the event would be too early: its moment would be that of the event before.
    """

    def build_per_event_executor(self, payload: Any) -> Executor[Any]:
        self.context_value.renew()
        return super().build_per_event_executor(payload)


class _Explained(Asking, StrawberryGraphQLCoreExecutionContext):
    """Executes what is to be explained."""


class _ExplainedRenewing(Asking, _Renewing):
    """Executes the events of a subscription that are to be explained."""
