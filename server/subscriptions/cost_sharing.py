"""The cost of shared events: the members of a group owe equal shares, which are charged once they reach a minimum."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from datastore.session.metering import Meter
from server.admission.budgets import OverBudget
from server.operations.billing import Billing
from server.operations.outcome import Outcome
from server.operations.request import event_units
from server.subscriptions.group_member import GroupMember

# The minimum share of the units for the size of a result. Smaller shares, of very many members, are not charged.
MIN_SHARE = 0.001


class CostSplitter:
    """A splitter of costs among the members of a group.

    `spawn` runs work that must complete although the group has ended.
    """

    #: Whether a member may owe something that is not settled.
    may_owe: bool

    def __init__(
        self,
        billing: Billing,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        members: Iterable[GroupMember],
    ) -> None:
        self._billing = billing
        self._spawn = spawn
        self._members = members
        self._settling: asyncio.Task[None] | None = None
        self.may_owe = False

    def charge(
        self, meter: Meter, members: Sequence[GroupMember], outcome: Outcome | None = None, *, knows_all: bool
    ) -> None:
        """Charge the members equal shares of the calls in `meter` and of the units for the size of the outcome.

        Members that have left pay only if all of `members` have left. `knows_all` is False if the cost of some calls is
        not known yet.
        """
        units = 0.0 if outcome is None or not members else event_units(members[0].subscriber.request, outcome)
        if units < MIN_SHARE * len(members):
            units = 0.0
        if not meter.calls and not meter.deferred and knows_all and not units:
            return
        payers = [member for member in members if not member.is_over] or members
        for member in payers:
            member.subscriber.share(meter, len(payers), units, knows_all=knows_all)
            if member.is_over:
                self._spawn(member.subscriber.settle_late())
        if payers:
            self._billing.trace(payers[0].report)
        self.may_owe = True

    def settle_soon(self) -> None:
        """Settle with the members that owe enough, in a task, and end the members whose budget is exhausted."""
        if not self.may_owe or not (self._settling is None or self._settling.done()):
            return
        due = [member for member in self._members if member.subscriber.is_due]
        self.may_owe = any(not member.report.events for member in due)
        due = [member for member in due if member.report.events]
        if due:
            self._settling = self._spawn(self._settle(due))

    async def _settle(self, members: Iterable[GroupMember]) -> None:
        for member in members:
            if not member.is_over:
                try:
                    await member.subscriber.settle()
                except OverBudget as refusal:
                    member.refuse(refusal)
