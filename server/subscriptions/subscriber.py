"""A subscriber: its quota, its charges, and the report at its end; and the protocols of listeners and handles."""

import time
from collections.abc import Callable, Hashable
from typing import Protocol

from datastore.change_streams.subscriptions.resume_position import ResumePosition
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
from server.operations.report import new_report
from server.operations.request import Request, event_units

# A subscription of so many characters, document and variables together, takes one place, and so do so many values of
# each of its events.
CHARACTERS_PER_PLACE, VALUES_PER_PLACE = 4_096, 1_000


class Listener(Protocol):
    """A receiver of the results of a subscription. Its methods do not raise, and only `drained` waits."""

    @property
    def room(self) -> ByteBudget:
        """The byte budget shared by all queues of this listener."""

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        """Deliver an event. Several listeners may get the same object, whose `body` is encoded once.

        A listener that cannot send it at once queues it by `SubscriptionHandle.keeping`; it replaces a queued event
        with the same `key`.
        """

    def send_position(self, event_id: str) -> None:
        """Deliver the resume id of the start: a client that resumes after it misses nothing."""

    def finish(self, outcome: Outcome | None) -> None:
        """End the subscription, with an error unless `outcome` is None, after all queued events.

        Not called after `stop()`.
        """

    async def drained(self) -> None:
        """Wait until more can be sent. An unshared subscription executes no event before."""


class SubscriptionHandle(Protocol):
    """A subscription whose results are delivered to a listener."""

    @property
    def keeping(self) -> QueueLimits:
        """The queue limits for a listener that reads too slowly."""

    def stop(self, problem: Exception | None = None) -> None:
        """End the subscription.

        Its client has left, or `problem` (`SlowSubscriber`) is reported and passed to `finish`.

        May be called again, and after the end.
        """

    def settled_position(self) -> ResumePosition | None:
        """Return the position up to which every event was delivered; None while an event is executed or queued."""

    def withdraw(self, outcome: Outcome) -> None:
        """Take back the report of a delivered outcome that will not be sent: it was dropped."""


class PullPosition:
    """The position of a subscription whose consumer requests one result after the other."""

    def __init__(self) -> None:
        self.after: str | None = None
        self.how: Callable[[], ResumePosition | None] | None = None

    def settled_position(self) -> ResumePosition | None:
        """Return the position up to which every result was taken, while the next is awaited; None at other times."""
        return None if self.how is None else self.how()


class Subscriber:
    """One subscription from start to end. The cost of an event is shared by the subscribers that received it."""

    __slots__ = (
        "_accounts",
        "_began",
        "_is_new",
        "_is_over",
        "_keeps",
        "_paid",
        "_payer",
        "_places",
        "_spent",
        "_taken",
        "allowance",
        "report",
        "request",
    )

    def __init__(self, accounts: Billing, places: KeyedQuota, request: Request) -> None:
        self.request = request
        self.report = accounts.start_report(new_report(request))
        self.allowance: Allowance | None = None
        self._accounts = accounts
        self._places = places
        self._payer = payer(request.caller)
        self._taken = 0  # places
        self._began = time.perf_counter()
        self._spent = self._paid = 0.0
        self._keeps = 0.0  # of what was charged at the start, whatever was read
        self._is_new = True
        self._is_over = False

    async def admit(self) -> None:
        """Charge the estimate. Raises `OverBudget`."""
        self.allowance = await self._accounts.charge(self.request)
        self._paid = self.request.charged
        self._keeps = self.request.min_units

    def take_place(self) -> None:
        """Take one place, and more for a large document, large variables and large events.

        Raises `Throttled` or `Unavailable`.
        """
        request = self.request
        kept = len(request.operation.document.text) + characters_in(request.params.variables or {})
        taken = 1 + kept // CHARACTERS_PER_PLACE + int(request.max_values) // VALUES_PER_PLACE
        self._places.acquire(self._payer, taken)
        self._taken = taken

    @property
    def resumes_after(self) -> str | None:
        """The id of the last event that the client received before it reconnected."""
        after = self.request.params.resume_after
        return after if isinstance(after, str) else None

    def note(self, outcome: Outcome) -> None:
        """Count an outcome that is delivered."""
        self.report.events += outcome.stage is Stage.EXECUTION
        self.report.add(outcome)

    def refused(self, error: DomainError) -> Outcome:
        """Return the final outcome for a refusal by the budget."""
        outcome = refusal(error)
        if self.report.events:  # it ran until now
            outcome.stage = Stage.EXECUTION
        self.report.add(outcome)
        return outcome

    def measure(self, meter: Meter) -> None:
        """Count the work done for this subscriber alone since the last call."""
        self._spent += self._accounts.measure(self.report, meter)

    def share(self, taken: Meter, among: int, answer: float = 0.0, *, knows_all: bool) -> None:
        """Count an equal share of work done for `among` subscribers, and of the units for the result size."""
        self._spent += self.report.add_shared(taken, among, is_complete=knows_all) + answer / among

    def made(self, outcome: Outcome) -> None:
        """Count a result that was executed for this subscriber alone."""
        self._spent += event_units(self.request, outcome)

    @property
    def is_due(self) -> bool:
        """Whether enough is owed to settle: the charge at the start, or at least one unit."""
        return (self._is_new and self._paid > 0) or self._owes >= 1

    @property
    def _owes(self) -> float:
        return self._spent - self._paid

    async def settle(self) -> None:
        """Charge the units read, or refund the surplus of the charge at the start. Raises `OverBudget`."""
        check_debt(await self._settled())

    async def _settled(self) -> Allowance | None:
        units = self._owed
        self._is_new = False
        self._spent, self._keeps = max(self._spent, self._least), 0.0
        self._paid += units
        return await self._accounts.settle(self.request, units)

    @property
    def _owed(self) -> float:
        return unsettled_units(self.report, self._spent, self._paid, self._least)

    @property
    def _least(self) -> float:
        return max(self._keeps, withheld_units(self.request, self.report))

    def end_if_settled(self) -> bool:
        """End the subscription if nothing is left to settle.

        Return whether it has ended; if not, `end` must be awaited.
        """
        if not self._is_over and not self._accounts.needs_settlement(self._owed):
            self._is_over = True
            self.leave()
            self._accounts.finish_report(self.report, self._began)
        return self._is_over

    async def end(self) -> None:
        """Release the quota, settle the rest and write the report. May be called again."""
        if self._is_over:
            return
        self._is_over = True
        self.leave()
        try:
            await self._settled()
        finally:
            self._accounts.finish_report(self.report, self._began)

    async def settle_late(self) -> None:
        """Settle costs that became known after the end. Before the end, do nothing: `end` settles them."""
        if self._is_over:
            await self._settled()

    def leave(self) -> None:
        """Release the quota."""
        if self._taken:
            self._places.release(self._payer, self._taken)
            self._taken = 0
