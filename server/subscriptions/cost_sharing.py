"""The shared cost of events: subscribers owe equal shares, which are charged once they reach a minimum."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from datastore.session.metering import Meter
from server.admission.budgets import OverBudget
from server.operations.billing import Billing
from server.operations.outcome import Outcome
from server.operations.request import event_units
from server.subscriptions.group_member import GroupMember

# Shares below this are not charged: an event shared by very many subscribers is free.
LEAST_SHARE = 0.001


class CostSplitter:
    """The debts of the members of a group. `spawn` runs work that must complete although the group has ended."""

    def __init__(
        self,
        accounts: Billing,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        members: Iterable[GroupMember],
    ) -> None:
        self._accounts = accounts
        self._spawn = spawn
        self._members = members
        self._settling: asyncio.Task[None] | None = None
        self.may_owe = False

    def charge(
        self, taken: Meter, members: Sequence[GroupMember], outcome: Outcome | None = None, *, knows_all: bool
    ) -> None:
        """Charge the members equal shares of the reads and of the outcome.

        Members that have left pay only if all of `members` have left.
        """
        answer = 0.0 if outcome is None or not members else event_units(members[0].subscriber.request, outcome)
        if answer < LEAST_SHARE * len(members):
            answer = 0.0
        if not taken.calls and not taken.deferred and knows_all and not answer:
            return
        payers = [member for member in members if not member.is_over] or members
        for member in payers:
            member.subscriber.share(taken, len(payers), answer, knows_all=knows_all)
            if member.is_over:
                self._spawn(member.subscriber.settle_late())
        if payers:
            self._accounts.trace(payers[0].report)
        self.may_owe = True

    def settle_soon(self) -> None:
        """Settle with the members that owe enough, and end those whose budget is exhausted."""
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
