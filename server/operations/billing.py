"""What an operation is opened with, what it is charged, and what is told of it: the same for all kinds of them."""

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
from server.operations.request import Request

# What it costs to execute an event that was missed, beside what it reads, in read units: who comes back may ask for
# ten thousand at once, and each takes about as long as reading so much does.
MISSED_EVENT_UNITS = 0.05

# What it may cost to read a post that is not shown, at most, beyond its estimate: 8 KB of text and tags, and whether
# its author is followed, read consistently.
WITHHELD_UNITS = 4.0

_MUTATION = OperationType.MUTATION
_SHARING = {
    OperationType.QUERY: ReadFreshness.CACHED,
    OperationType.MUTATION: ReadFreshness.OWN,
    OperationType.SUBSCRIPTION: ReadFreshness.AFTER_LAST_EVENT,
}


class Billing:
    """Opens contexts, keeps to budgets, and tells observers, traces and those who want explanations."""

    def __init__(
        self,
        documents: Documents,
        open_context: OpenContext,
        *,
        budgets: CallerBudgets | None,
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

    def opened(self, request: Request) -> OperationContext:
        context = self._open_context(request.caller.identity)
        meter = context.meter
        meter.detailed = request.asked.explain
        meter.limit = self._documents.most_read(request.estimate)
        meter.completes_writes = request.operation.kind is _MUTATION
        context.set_freshness(_SHARING[request.operation.kind])
        return context

    def explain(self, request: Request, outcome: Outcome, meter: Meter) -> None:
        if not request.asked.explain:
            return
        told = self._explanations.of(request.operation, request.caller, request.estimate, meter)
        outcome.extend("dynamodb", told)

    @property
    def pays_at_once(self) -> bool:
        """Whether there is nothing to wait for: then `charge_now` and `settle_now` do what `charge` and `settle` do."""
        return self._budgets is None or self._budgets.at_once

    def charge_now(self, request: Request) -> Allowance | None:
        return None if self._budgets is None else self._budgets.charge_now(request.caller, request.charged)

    def settle_now(self, request: Request, units: float) -> Allowance | None:
        return None if self._budgets is None or not units else self._budgets.settle_now(request.caller, units)

    async def charge(self, request: Request) -> Allowance | None:
        if self._budgets is None:
            return None
        return await self._budgets.charge(request.caller, request.charged)

    def settles(self, units: float) -> bool:
        """Whether `settle` has anything to do."""
        return self._budgets is not None and units != 0

    async def settle(self, request: Request, units: float) -> Allowance | None:
        if self._budgets is None or not units:
            return None
        return await self._budgets.settle(request.caller, units)

    def begin(self, report: Report) -> Report:
        if self.tracing is not None:
            self.tracing.began(report)
        return report

    def measure(self, report: Report, meter: Meter) -> float:
        """What was spent since the last time, in read units."""
        spent = report.measure(meter)
        if self.tracing is not None:
            self.tracing.measured(report)
        return spent

    def trace(self, report: Report) -> None:
        """The latest calls of a report that others have too are told as its."""
        if self.tracing is not None:
            self.tracing.measured(report)

    def tell(self, report: Report, began: float) -> None:
        """It is over; `began` is by `time.perf_counter`."""
        report.seconds = time.perf_counter() - began
        if self.tracing is not None:
            self.tracing.ended(report)
        for observe in self._observers:
            observe(report)


def not_admitted(error: DomainError) -> Outcome:
    """The outcome of an operation that was refused before it was executed."""
    outcome = failure(error, Stage.ADMISSION)
    if isinstance(error, OverBudget):
        outcome.allowance = error.allowance
    return outcome


def owed(report: Report, spent: float, paid: float, least: float) -> float:
    """What is to be settled of read units that were spent, so many `least`: something stays, whatever was read.

    Nothing comes back where calls were given up: DynamoDB bills them, and tells nobody.
    """
    units = (spent if spent > least else least) - paid
    return units if report.knows_all or units > 0 else 0.0


def kept_of(request: Request, report: Report) -> float:
    """Return the read units that an operation costs at least where it asked for what is missing or not to be seen.

    They are the whole estimate and a fixed part, so that no budget tells which of both it was; 0 for other operations.
    """
    return request.charged + report.withheld * WITHHELD_UNITS if report.withheld else 0.0


def check_debt(allowance: Allowance | None) -> None:
    """Events are paid for after they were sent; they may go on until they owe as much as a budget holds."""
    if allowance is not None and allowance.remaining < -allowance.limit:
        message = f"The events of this subscription overdrew your budget by {-allowance.remaining:,.0f} read units."
        raise OverBudget(message, allowance, retryAfter=ceil(allowance.reset))
