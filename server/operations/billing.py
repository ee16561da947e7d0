"""Billing of operations: contexts, charges and settlements, and reports, the same for every kind of operation."""

import time
from collections.abc import Collection
from math import ceil

from graphql.language import OperationType

from datastore.errors import DomainError
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness
from server.admission.budgets import Allowance, CallerBudgets, OverBudget
from server.documents.document_cache import Documents
from server.documents.request import Stage
from server.operations.context import OpenContext, OperationContext
from server.operations.explain import Explanations
from server.operations.outcome import Outcome, failure
from server.operations.report import Observe, Report, Tracing
from server.operations.request import RESPONSE_BYTES_PER_UNIT, Request

# The read units that executing a missed event costs in addition to its reads. A replay may contain ten thousand events;
# each takes about as long as reads of this many units.
MISSED_EVENT_UNITS = 0.05

# The largest cost of reading a withheld post beyond its estimate, for two consistent reads: of 8 KB of text and tags,
# and of the item that says whether the caller follows the author.
WITHHELD_UNITS = 4.0

_MUTATION = OperationType.MUTATION
# By the value of `OperationType`: the hash of a member of an enum takes two calls.
_FRESHNESS = {
    OperationType.QUERY.value: ReadFreshness.CACHED,
    OperationType.MUTATION.value: ReadFreshness.OWN,
    OperationType.SUBSCRIPTION.value: ReadFreshness.AFTER_LAST_EVENT,
}


class Billing:
    """The part of the runner that opens the contexts, charges and settles the budgets, and writes the reports."""

    def __init__(
        self,
        documents: Documents,
        open_context: OpenContext,
        *,
        budgets: CallerBudgets,
        observers: Collection[Observe],
        tracing: Tracing | None,
        explanations: Explanations,
    ) -> None:
        self._documents = documents
        self._open_context = open_context
        self._budgets = budgets
        self._observers = observers
        self.tracing = tracing
        self._explanations = explanations

    def open_context(self, request: Request) -> OperationContext:
        """Return a new context for a request, with its read limit and freshness set."""
        interpreted = request.params.explain or request.is_incremental
        compiled = not interpreted and request.operation.program.compiled is not None
        freshness = _FRESHNESS[request.operation.kind._value_]
        context = self._open_context(request.caller.identity, freshness, compiled)
        meter = context.meter
        meter.detailed = request.params.explain
        # The read units at which the operation is stopped.
        meter.limit = self._documents.max_cost / 2 + 2 * request.estimate
        meter.completes_writes = request.operation.kind is _MUTATION
        return context

    def explain(self, request: Request, outcome: Outcome, meter: Meter) -> None:
        """Add the report of a meter's calls to the response if the client requested it."""
        if not request.params.explain:
            return
        report = self._explanations.report(request.operation, request.caller, request.estimate, meter)
        outcome.add_extension("dynamodb", report)

    async def charge(self, request: Request) -> Allowance | None:
        """Charge the caller's budget before the execution. Raises `OverBudget`; returns None without a budget."""
        return await self._budgets.charge(request.caller, request.charged)

    async def settle(self, request: Request, units: float) -> Allowance | None:
        """Charge more units after the execution, or refund them if `units` is negative."""
        return await self._budgets.settle(request.caller, units) if units else None

    def open_report(self, request: Request) -> Report:
        """Return the report of a prepared operation, with its span started."""
        operation = request.operation
        report = Report(
            request.params, request.caller, request.transport, operation.document, operation, request.estimate
        )
        if self.tracing is not None:
            self.tracing.start(report)
        return report

    def start_report(self, report: Report) -> Report:
        """Start the span of a report, and return the report."""
        if self.tracing is not None:
            self.tracing.start(report)
        return report

    def measure(self, report: Report, meter: Meter) -> float:
        """Add the calls since the previous measurement to a report. Return their cost in read units."""
        spent = report.measure(meter)
        if self.tracing is not None:
            self.tracing.add_calls(report)
        return spent

    def trace(self, report: Report) -> None:
        """Add the latest calls of a report to its trace. Several subscribers may share these calls."""
        if self.tracing is not None:
            self.tracing.add_calls(report)

    def finish_report(self, report: Report, started_at: float) -> None:
        """Complete a report, and pass it to the observers. `started_at` is a time of `time.perf_counter`."""
        report.seconds = time.perf_counter() - started_at
        if self.tracing is not None:
            self.tracing.end(report)
        for observe in self._observers:
            observe(report)


def refusal(error: DomainError) -> Outcome:
    """Return the outcome of an operation that was refused before it was executed."""
    outcome = failure(error, Stage.ADMISSION)
    if isinstance(error, OverBudget):
        outcome.allowance = error.allowance
    return outcome


def unsettled_units(report: Report, spent: float, paid: float, least: float) -> float:
    """Return the read units to settle: `spent`, but at least `least`, minus the units `paid` in advance.

    After an abandoned call there is no refund: DynamoDB bills the call without reporting its cost.
    """
    units = (spent if spent > least else least) - paid
    return units if report.is_complete or units > 0 else 0.0


def withheld_units(request: Request, report: Report) -> float:
    """Return the minimum cost, in read units, of an operation from which items were withheld; 0 for other operations.

    The minimum is the whole estimate and `WITHHELD_UNITS` per item, so that the budget does not reveal whether an item
    exists.
    """
    return request.charged + report.withheld * WITHHELD_UNITS if report.withheld else 0.0


def owed_units(request: Request, report: Report, charged: float) -> float:
    """Return the read units to settle after an operation: its cost minus the units `charged` in advance.

    It costs at least `request.min_units`, and the units for the size of the response if it has one.
    """
    least, by_size = request.min_units, report.response_bytes / RESPONSE_BYTES_PER_UNIT
    if by_size > least:
        least = by_size
    if report.withheld:
        least = max(least, withheld_units(request, report))
    return unsettled_units(report, report.cost, charged, least)


def check_debt(allowance: Allowance | None) -> None:
    """Raise `OverBudget` if the events of a subscription overdrew the budget by more than its size.

    Events are charged after they are sent.
    """
    if allowance is not None and allowance.remaining < -allowance.limit:
        message = f"The events of this subscription overdrew your budget by {-allowance.remaining:,.0f} read units."
        raise OverBudget(message, allowance, retryAfter=ceil(allowance.reset))
