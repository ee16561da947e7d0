"""The cost of shared events: the members of a group pay equal shares, which are settled once they reach a minimum."""

import asyncio
from collections.abc import Iterable, Sequence

from datastore.session.metering import Meter
from server.admission.budgets import OverBudget
from server.operations.billing import Billing
from server.operations.request import event_units
from server.subscriptions.group_member import HAS_ENDED, GroupMember
from server.subscriptions.subscriber import Spawn

# The minimum share of the units for the size of a result. Smaller shares, of very many members, are not charged.
MIN_SHARE = 0.001


class CostSplitter:
    """A splitter of costs among the members of a group.

    `spawn` runs work that must complete although the group has ended.
    """

    #: Whether a member may have an amount to settle.
    may_be_due: bool

    def __init__(
        self,
        billing: Billing,
        spawn: Spawn,
        members: Iterable[GroupMember],
    ) -> None:
        self._billing = billing
        self._spawn = spawn
        self._members = members
        self._settling: asyncio.Task[None] | None = None
        self.may_be_due = False

    def share(
        self, meter: Meter, members: Sequence[GroupMember], size: int | None = None, *, is_complete: bool
    ) -> None:
        """Charge the members equal shares of the calls in `meter` and of the units for an event of `size` bytes.

        Members that have left pay only if all of `members` have left. `is_complete` is False if the cost of some calls
        is not known yet.
        """
        units = 0.0
        if size is not None and members:
            units = event_units(members[0].subscriber.request, size)
            if units < MIN_SHARE * len(members):
                units = 0.0
        has_calls = bool(meter.calls or meter.deferred or meter.withheld) or not is_complete
        if not has_calls and not units:
            return
        payers: Sequence[GroupMember] = [member for member in members if member.state is not HAS_ENDED]
        if payers and not has_calls:  # nearly every event of many operations
            share = units / len(payers)
            for member in payers:
                subscriber = member.subscriber
                subscriber.spent += share
                if subscriber.spent >= subscriber.due_at:
                    self.may_be_due = True
        else:
            self._share_calls(meter, payers or members, units, is_complete=is_complete)
            self.may_be_due = True

    def _share_calls(self, meter: Meter, payers: Sequence[GroupMember], units: float, *, is_complete: bool) -> None:
        for member in payers:
            member.subscriber.share(meter, len(payers), units, is_complete=is_complete)
            if member.is_over:
                self._spawn(member.subscriber.settle_late())
        if payers:
            self._billing.trace(payers[0].report)

    def settle_soon(self) -> None:
        """Settle with the members whose amount is large enough, in a task. End those whose budget is exhausted."""
        if not self.may_be_due or not (self._settling is None or self._settling.done()):
            return
        due = [member for member in self._members if member.subscriber.spent >= member.subscriber.due_at]
        self.may_be_due = any(not member.report.events for member in due)
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
