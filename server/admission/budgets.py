"""What callers may spend, in DynamoDB read units: a token bucket for each, filled up over time.

An operation is charged its estimate before it is executed, and settled afterwards at what DynamoDB reported. What it
costs beyond its estimate may leave a debt, which is paid off as the bucket fills.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from datastore.model.identity import Role
from server.admission.client_address import payer
from server.admission.settings import Capacity
from server.operations.lifecycle import OverBudget
from server.operations.outcome import Allowance
from server.operations.request import Caller

MOST_CALLERS = 50_000
# How many of the callers that were looked at longest ago are looked at when one is charged.
SWEPT = 2
ADMIN_TIMES = 10
# So many buckets may be owed, no more: whatever happened, nobody waits for ever.
MOST_OWED = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """A bucket's size in read units, and how many flow into it each second."""

    units: float
    per_second: float

    @property
    def most_owed(self) -> float:
        return MOST_OWED * self.units

    def allows(self, balance: float, units: float) -> bool:
        """What costs more than the whole bucket is let through when the bucket is full."""
        return balance >= min(units, self.units)

    def seconds_until(self, balance: float, units: float) -> float:
        return max(0.0, (min(units, self.units) - balance) / self.per_second)

    def allowance(self, balance: float) -> Allowance:
        return Allowance(self.units, balance, (self.units - balance) / self.per_second if balance < self.units else 0.0)


class Buckets(Protocol):
    """Where the buckets are."""

    async def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        """Whether the units were taken, and what the bucket holds now."""

    async def settle(self, key: str, budget: Budget, units: float) -> float:
        """Take, or give back (below 0), in any case. What the bucket holds then, which may be below 0."""


class LocalBuckets:
    """Buckets of this process. `clock` tells seconds. Those that are full again are dropped: they are like new.

    `most` are kept; when there are more, the one that was not looked at for the longest time is dropped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_CALLERS) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[Budget, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    async def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        return self.charge_now(key, budget, units)

    async def settle(self, key: str, budget: Budget, units: float) -> float:
        return self.settle_now(key, budget, units)

    def charge_now(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        """As `charge`: there is nothing here to wait for."""
        now = self._clock()
        if len(self._buckets) > 1:
            self._sweep(now)
        kept = self._buckets.get(key)
        balance = budget.units if kept is None else _filled(budget, kept[1], now - kept[2])
        if balance < units and not budget.allows(balance, units):
            return False, balance
        return True, self._keep(key, budget, balance - units, now)

    def settle_now(self, key: str, budget: Budget, units: float) -> float:
        """As `settle`."""
        now = self._clock()
        kept = self._buckets.get(key)
        balance = budget.units if kept is None else _filled(budget, kept[1], now - kept[2])
        return self._keep(key, budget, balance - units, now)

    def _keep(self, key: str, budget: Budget, balance: float, now: float) -> float:
        if balance >= budget.units:
            self._buckets.pop(key, None)
            return budget.units
        if balance < 0:
            balance = max(balance, -budget.most_owed)
        self._buckets[key] = budget, balance, now
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return balance

    def _sweep(self, now: float) -> None:
        for _ in range(min(SWEPT, len(self._buckets))):
            key = next(iter(self._buckets))
            budget, balance, at = self._buckets[key]
            if _filled(budget, balance, now - at) >= budget.units:
                del self._buckets[key]
            else:
                self._buckets.move_to_end(key)


def _filled(budget: Budget, balance: float, seconds: float) -> float:
    """What a bucket holds so many seconds later. A clock that was set back gives nothing, and takes nothing."""
    if seconds > 0:
        balance += seconds * budget.per_second
    return balance if balance < budget.units else budget.units


class CallersBudgets:
    """The budgets of all callers: of users, of addresses without a token, and ten times as much for administrators.

    Services (the role system) have none. Whoever owes is remembered until his debt is paid off, by this process's
    `clock`: he is refused before anything is made ready for him.
    """

    def __init__(self, buckets: Buckets, capacity: Capacity, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = buckets
        self._here = buckets if isinstance(buckets, LocalBuckets) else None
        self.at_once = self._here is not None
        self._clock = clock
        self._debts: OrderedDict[str, float] = OrderedDict()
        self._user = Budget(capacity.budget_units, capacity.budget_units_per_second)
        self._admin = Budget(self._user.units * ADMIN_TIMES, self._user.per_second * ADMIN_TIMES)
        self._anonymous = Budget(capacity.anonymous_budget_units, capacity.anonymous_budget_units_per_second)

    def check(self, caller: Caller) -> None:
        until = self._debts.get(payer(caller)) if self._debts else None
        if until is None:
            return
        budget = self._budget(caller)
        owed = (until - self._clock()) * budget.per_second
        if owed > 0:
            raise _refusal(caller, budget, -owed, 0.0)
        del self._debts[payer(caller)]

    def charge_now(self, caller: Caller, units: float) -> Allowance | None:
        budget = self._budget(caller)
        if not budget.units:
            return None
        assert self._here is not None, "What another process keeps is waited for."
        admitted, balance = self._here.charge_now(caller.payer or payer(caller), budget, units)
        if not admitted:
            raise _refusal(caller, budget, balance, units)
        return budget.allowance(balance)

    def settle_now(self, caller: Caller, units: float) -> Allowance | None:
        budget = self._budget(caller)
        if not budget.units:
            return None
        assert self._here is not None, "What another process keeps is waited for."
        key = caller.payer or payer(caller)
        return self._settled(key, budget, self._here.settle_now(key, budget, units))

    async def charge(self, caller: Caller, units: float) -> Allowance | None:
        if self.at_once:
            return self.charge_now(caller, units)
        budget = self._budget(caller)
        if not budget.units:
            return None
        admitted, balance = await self._buckets.charge(payer(caller), budget, units)
        if not admitted:
            raise _refusal(caller, budget, balance, units)
        return budget.allowance(balance)

    async def settle(self, caller: Caller, units: float) -> Allowance | None:
        if self.at_once:
            return self.settle_now(caller, units)
        budget = self._budget(caller)
        if not budget.units:
            return None
        key = payer(caller)
        return self._settled(key, budget, await self._buckets.settle(key, budget, units))

    def _settled(self, key: str, budget: Budget, balance: float) -> Allowance:
        """What is left, and remembered where that is a debt."""
        if self._debts:
            self._debts.pop(key, None)
        if balance < 0:
            self._debts[key] = self._clock() - balance / budget.per_second
            if len(self._debts) > MOST_CALLERS:
                self._debts.popitem(last=False)
        return budget.allowance(balance)

    def _budget(self, caller: Caller) -> Budget:
        identity = caller.identity
        if identity is None:
            return self._anonymous
        role = identity.role
        if role is _USER:
            return self._user
        if role is Role.ADMIN:
            return self._admin
        return _NONE if role is Role.SYSTEM else self._user


# To look members of an enum up takes longer than what is done with them here.
_USER = Role.USER
_NONE = Budget(0, 0)


def _refusal(caller: Caller, budget: Budget, balance: float, units: float) -> OverBudget:
    whose = "This address's" if caller.identity is None else "Your"
    seconds = max(1, ceil(budget.seconds_until(balance, units)))
    left = f"{balance:,.0f} are left" if balance >= 0 else f"{-balance:,.0f} are owed"
    message = (
        f"{whose} budget of {budget.units:,.0f} read units, {budget.per_second:,g} more each second, does not suffice: "
        f"this may cost {units:,.0f}, and {left}. Try again in {seconds} s."
    )
    return OverBudget(message, budget.allowance(balance), retryAfter=seconds)
