"""A caller's subscription: his place, what he has paid and owes, and what will be told of it when it is over."""

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
    """Who is told the answers of a subscription. Nothing here raises, and only `drained` waits."""

    @property
    def room(self) -> ByteBudget:
        """What may wait for it, here or with whoever tells it."""

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        """An event. Others may be told the same object: `outcome.body` is encoded once for all.

        Whoever cannot send it at once keeps it by `SubscriptionHandle.keeping`; `key` tells which waiting one it
        replaces.
        """

    def stands(self, event_id: str) -> None:
        """Where it begins, if no event tells it: whoever goes on after this misses nothing."""

    def finish(self, outcome: Outcome | None) -> None:
        """It is over, by itself (None) or by this error; what waits comes before. Not called after `stop()`."""

    async def drained(self) -> None:
        """Returns when it can send more: subscriptions that are nobody else's make no event before."""


class SubscriptionHandle(Protocol):
    """A subscription that is delivered to a listener."""

    @property
    def keeping(self) -> QueueLimits:
        """What is kept for a listener that does not keep up."""

    def stop(self, problem: Exception | None = None) -> None:
        """Nobody listens any more, or may not for this problem (`SlowSubscriber`): it is noted, and told to `finish`.

        May be called again, and after the end.
        """

    def standing(self) -> ResumePosition | None:
        """Up to where all that comes of it has been delivered; None while more is being made, or waits to be."""

    def withdraw(self, outcome: Outcome) -> None:
        """It was delivered and will not be sent: it was left out, or the listener fell too far behind."""


class PullPosition:
    """Where a subscription stands whose answers are asked for one by one: whoever makes them says `how` to tell.

    `after` is the event after which it goes on.
    """

    def __init__(self) -> None:
        self.after: str | None = None
        self.how: Callable[[], ResumePosition | None] | None = None

    def standing(self) -> ResumePosition | None:
        """Up to where all has been taken, while the next answer is waited for; None at other times."""
        return None if self.how is None else self.how()


class Subscriber:
    """One subscription from its beginning to its end. What an event reads is shared by those who were told it."""

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
        """The event that its client had last."""
        after = self.request.params.resume_after
        return after if isinstance(after, str) else None

    def note(self, outcome: Outcome) -> None:
        """It is told this."""
        self.report.events += outcome.stage is Stage.EXECUTION
        self.report.add(outcome)

    def refused(self, error: DomainError) -> Outcome:
        """The last that it is told."""
        outcome = refusal(error)
        if self.report.events:  # it ran until now
            outcome.stage = Stage.EXECUTION
        self.report.add(outcome)
        return outcome

    def measure(self, meter: Meter) -> None:
        """What was done for it alone since the last time."""
        self._spent += self._accounts.measure(self.report, meter)

    def share(self, taken: Meter, among: int, answer: float = 0.0, *, knows_all: bool) -> None:
        """Count an equal part of what was done for so many, and of the units that the answer costs by its size."""
        self._spent += self.report.add_shared(taken, among, is_complete=knows_all) + answer / among

    def made(self, outcome: Outcome) -> None:
        """Count an answer that was made for this subscriber alone."""
        self._spent += event_units(self.request, outcome)

    @property
    def is_due(self) -> bool:
        """Whether there is something to settle that is worth it: what was charged at the start, or a unit."""
        return (self._is_new and self._paid > 0) or self._owes >= 1

    @property
    def _owes(self) -> float:
        return self._spent - self._paid

    async def settle(self) -> None:
        """Pay for what was read, or have back what was paid too much at the start. Raises `OverBudget`."""
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
        """End it where nothing is left to settle, and tell whether it is over; otherwise `end` is to be awaited."""
        if not self._is_over and not self._accounts.needs_settlement(self._owed):
            self._is_over = True
            self.leave()
            self._accounts.finish_report(self.report, self._began)
        return self._is_over

    async def end(self) -> None:
        """It is over: its place is free, the rest is settled, and it is told of. May be called again."""
        if self._is_over:
            return
        self._is_over = True
        self.leave()
        try:
            await self._settled()
        finally:
            self._accounts.finish_report(self.report, self._began)

    async def settle_late(self) -> None:
        """Pay for what came to be known after its end; before it, that does."""
        if self._is_over:
            await self._settled()

    def leave(self) -> None:
        """Free its place."""
        if self._taken:
            self._places.release(self._payer, self._taken)
            self._taken = 0
