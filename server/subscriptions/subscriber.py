"""A subscriber with its quota, charges and final report; and the protocols of listeners and handles."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol

from datastore.change_streams.subscriptions.delivery import ResumePosition
from datastore.errors import DomainError
from datastore.queues import ByteBudget, QueueLimits
from datastore.session.metering import Meter
from server.admission.budgets import Allowance
from server.admission.callers import payer
from server.admission.quotas import KeyedQuota
from server.documents.request import Stage
from server.documents.variables import characters_in
from server.operations.billing import Billing, check_debt, refusal, unsettled_units, withheld_units
from server.operations.outcome import Outcome
from server.operations.request import Request

# A subscription takes one unit of its caller's quota, and another one for each of these: characters of its document and
# variables, and values of one event.
CHARACTERS_PER_UNIT, VALUES_PER_UNIT = 4_096, 1_000


# Starts work that must complete although its group has ended.
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Listener(Protocol):
    """A receiver of the results of a subscription. Its methods do not raise, and only `drained` waits."""

    @property
    def byte_budget(self) -> ByteBudget:
        """The byte budget shared by all queues of this listener."""

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        """Deliver an event. Several listeners may get the same object, whose `body` is encoded once.

        A listener that cannot send it at once queues it by `SubscriptionHandle.limits`; it replaces a queued event
        with the same `key`.
        """

    def send_position(self, event_id: str) -> None:
        """Send the resume id of the start: a client that resumes after it misses no event."""

    def finish(self, outcome: Outcome | None) -> None:
        """End the subscription, with an error unless `outcome` is None, after all queued events.

        Not called after `stop()`.
        """

    async def drained(self) -> None:
        """Wait until the listener can send more. A replay delivers its next event after that."""


class SubscriptionHandle(Protocol):
    """A subscription whose results are delivered to a listener."""

    @property
    def limits(self) -> QueueLimits:
        """The queue limits for a listener that reads too slowly."""

    def stop(self, problem: Exception | None = None) -> None:
        """End the subscription, because its client has left or because of `problem`, a `SlowSubscriber`.

        `problem` is reported, and its outcome is passed to `finish`. May be called again, and after the end.
        """

    def settled_position(self) -> ResumePosition | None:
        """Return the position up to which every event was delivered; None while an event is executed or queued."""

    def withdraw(self, outcome: Outcome) -> None:
        """Remove a delivered outcome from the report: the listener has dropped it instead of sending it."""


class EndedSubscription:
    """The handle of a subscription that ended at its start."""

    limits = QueueLimits()

    def stop(self, problem: Exception | None = None) -> None: ...
    def settled_position(self) -> ResumePosition | None: ...
    def withdraw(self, outcome: Outcome) -> None: ...


ENDED = EndedSubscription()


class Subscriber:
    """One subscription from its start to its end, with its charges and its report.

    The subscribers that receive an event share its cost.
    """

    __slots__ = (
        "_acquired",
        "_began",
        "_billing",
        "_is_over",
        "_min_units",
        "_paid",
        "_payer",
        "_quota",
        "allowance",
        "due_at",
        "report",
        "request",
        "spent",
    )

    def __init__(self, billing: Billing, quota: KeyedQuota, request: Request) -> None:
        self.request = request
        self.report = billing.open_report(request)
        self.allowance: Allowance | None = None
        self._billing = billing
        self._quota = quota
        self._payer = payer(request.caller)
        self._acquired = 0  # units of the quota
        self._began = time.perf_counter()
        #: The read units spent so far.
        self.spent = 0.0
        self._paid = 0.0  # read units
        #: The spent units at which to settle: one more than are paid; 0 until the charge at the start is settled.
        self.due_at = 1.0
        self._min_units = 0.0  # the part of the charge at the start that is never refunded
        self._is_over = False

    async def admit(self) -> None:
        """Charge the estimate. Raises `OverBudget`."""
        self.allowance = await self._billing.charge(self.request)
        self._paid = self.request.charged
        self.due_at = 0.0 if self._paid > 0 else 1.0
        self._min_units = self.request.min_units

    def take_quota(self) -> None:
        """Acquire one unit of the caller's quota, and more for a large document, large variables and large events.

        Raises: `Throttled` or `Unavailable`.
        """
        request = self.request
        characters = len(request.operation.document.text) + characters_in(request.params.variables or {})
        units = 1 + characters // CHARACTERS_PER_UNIT + int(request.max_values) // VALUES_PER_UNIT
        self._quota.acquire(self._payer, units)
        self._acquired = units

    def note(self, outcome: Outcome) -> None:
        """Count an outcome that is delivered."""
        self.report.events += outcome.stage is Stage.EXECUTION
        self.report.add(outcome)

    def refused(self, error: DomainError) -> Outcome:
        """Report a refusal by the budget. Return its outcome, which ends the subscription."""
        outcome = refusal(error)
        if self.report.events:  # the subscription ran until now
            outcome.stage = Stage.EXECUTION
        self.report.add(outcome)
        return outcome

    def measure(self, meter: Meter) -> None:
        """Count the calls made for this subscriber alone since the last measurement."""
        self.spent += self._billing.measure(self.report, meter)

    def share(self, meter: Meter, among: int, result_units: float = 0.0, *, is_complete: bool) -> None:
        """Count an equal share of the calls made for `among` subscribers, and of the units for the size of the result.

        `is_complete` is False if the cost of some calls is not known yet.
        """
        self.spent += self.report.add_shared(meter, among, is_complete=is_complete) + result_units / among

    async def settle(self) -> None:
        """Charge the units read, or refund the surplus of the charge at the start. Raises `OverBudget`."""
        check_debt(await self._settled())

    async def _settled(self) -> Allowance | None:
        units = self._owed
        self.spent, self._min_units = max(self.spent, self._least), 0.0
        self._paid += units
        self.due_at = self._paid + 1
        return await self._billing.settle(self.request, units)

    @property
    def _owed(self) -> float:
        return unsettled_units(self.report, self.spent, self._paid, self._least)

    @property
    def _least(self) -> float:
        return max(self._min_units, withheld_units(self.request, self.report))

    def end_if_settled(self) -> bool:
        """End the subscription if nothing is left to settle.

        Return whether it has ended; if not, `end` must be awaited.
        """
        if not self._is_over and not self._owed:
            self._is_over = True
            self.leave()
            self._billing.finish_report(self.report, self._began)
        return self._is_over

    async def end(self) -> None:
        """Release the quota, settle the remaining cost and finish the report. May be called again."""
        if self._is_over:
            return
        self._is_over = True
        self.leave()
        try:
            await self._settled()
        finally:
            self._billing.finish_report(self.report, self._began)

    async def settle_late(self) -> None:
        """Settle costs that became known after the end. Before the end, do nothing: `end` settles them."""
        if self._is_over:
            await self._settled()

    def leave(self) -> None:
        """Release the quota."""
        if self._acquired:
            self._quota.release(self._payer, self._acquired)
            self._acquired = 0
