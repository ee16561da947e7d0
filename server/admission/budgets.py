"""The budgets of callers in read units: each caller has a token bucket, which is refilled over time.

The estimate of an operation is charged before the execution. Afterwards the operation is settled: the difference to the
cost that DynamoDB reported is charged or refunded. A cost above the estimate may leave the bucket in debt until it is
refilled.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from datastore.errors import Throttled
from datastore.model.identity import Role
from datastore.primitives.lru_cache import LruCache
from datastore.primitives.token_bucket import refilled
from server.admission.callers import Caller, payer
from server.admission.settings import Capacity

if TYPE_CHECKING:
    from server.admission.redis_budgets import RedisBuckets

MAX_CALLERS = 50_000
# The number of buckets that each charge examines for removal, the least recently examined ones first.
SWEPT = 2
ADMIN_FACTOR = 10
# The largest debt, as a multiple of the bucket's size. It bounds the time until the caller is admitted again.
MAX_DEBT_SIZES = 10


class Allowance(Struct, gc=False):
    """The state of a caller's budget after an operation."""

    #: The size of the budget, in read units.
    limit: float
    #: The read units that remain. A negative number is a debt.
    remaining: float
    #: The seconds until the budget is full.
    reset: float


class OverBudget(Throttled):
    """The caller's budget does not suffice. `retryAfter` is the number of seconds after which it does."""

    def __init__(self, message: str, allowance: Allowance, **details: Any) -> None:
        super().__init__(message, **details)
        self.allowance = allowance


@dataclass(frozen=True, slots=True)
class Budget:
    """The size of a token bucket in read units, and its refill in read units per second."""

    units: float
    per_second: float

    @property
    def max_debt(self) -> float:
        return MAX_DEBT_SIZES * self.units

    def allows(self, balance: float, units: float) -> bool:
        """Return whether the balance suffices for a cost. A full bucket also admits a cost above its size."""
        return balance >= min(units, self.units)

    def seconds_until(self, balance: float, units: float) -> float:
        return max(0.0, (min(units, self.units) - balance) / self.per_second)

    def allowance(self, balance: float) -> Allowance:
        return Allowance(self.units, balance, (self.units - balance) / self.per_second if balance < self.units else 0.0)


class LocalBuckets:
    """The buckets of this process. A full bucket is removed, because it is equal to a new one.

    Beyond `max_buckets` the least recently used bucket is removed. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_buckets: int = MAX_CALLERS) -> None:
        self._clock = clock
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[str, tuple[Budget, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, key: str, budget: Budget, units: float) -> tuple[bool, float]:
        """Take the units if the balance suffices. Return whether they were taken, and the balance afterwards."""
        now = self._clock()
        if len(self._buckets) > 1:
            self._sweep(now)
        _, balance, at = self._buckets.get(key) or (budget, budget.units, now)
        balance = refilled(balance, budget.units, budget.per_second, now - at)
        if balance < units and not budget.allows(balance, units):
            return False, balance
        return True, self._update(key, budget, balance - units, now)

    def settle(self, key: str, budget: Budget, units: float) -> float:
        """Take the units unconditionally, or refund them if negative. Return the balance, which may be negative."""
        now = self._clock()
        _, balance, at = self._buckets.get(key) or (budget, budget.units, now)
        balance = refilled(balance, budget.units, budget.per_second, now - at)
        return self._update(key, budget, balance - units, now)

    def _update(self, key: str, budget: Budget, balance: float, now: float) -> float:
        if balance >= budget.units:
            self._buckets.pop(key, None)
            return budget.units
        if balance < 0:
            balance = max(balance, -budget.max_debt)
        self._buckets[key] = budget, balance, now
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)
        return balance

    def _sweep(self, now: float) -> None:
        for _ in range(min(SWEPT, len(self._buckets))):
            key = next(iter(self._buckets))
            budget, balance, at = self._buckets[key]
            if refilled(balance, budget.units, budget.per_second, now - at) >= budget.units:
                del self._buckets[key]
            else:
                self._buckets.move_to_end(key)


class CallerBudgets:
    """The budgets of all callers: of users, of the networks of anonymous clients, and ten times larger ones of admins.

    They are in the `local` buckets of this process, or in the `shared` ones of all processes. Services (the role
    system) have no budget. The process records callers in debt until the debt is paid off by its `clock`, so that
    `check` refuses their operations before they are prepared.
    """

    def __init__(
        self,
        local: LocalBuckets,
        capacity: Capacity,
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: "RedisBuckets | None" = None,
    ) -> None:
        self._local = local
        self._shared = shared
        self._clock = clock
        self._debts = LruCache[str, float](MAX_CALLERS)
        self._user = Budget(capacity.budget_units, capacity.budget_units_per_second)
        self._admin = Budget(self._user.units * ADMIN_FACTOR, self._user.per_second * ADMIN_FACTOR)
        self._anonymous = Budget(capacity.anonymous_budget_units, capacity.anonymous_budget_units_per_second)

    def check(self, caller: Caller) -> None:
        """Raise `OverBudget` if the caller is known to be in debt."""
        until = self._debts.peek(payer(caller)) if self._debts else None
        if until is None:
            return
        budget = self._budget(caller)
        debt = (until - self._clock()) * budget.per_second
        if debt > 0:
            raise _refusal(caller, budget, -debt, 0.0)
        self._debts.pop(payer(caller))

    async def charge(self, caller: Caller, units: float) -> Allowance | None:
        """Charge the estimate of an operation. Return the allowance, or None for a caller without a budget.

        Raises `OverBudget`.
        """
        budget = self._budget(caller)
        if not budget.units:
            return None
        key = caller.payer or payer(caller)
        if self._shared is None:
            admitted, balance = self._local.charge(key, budget, units)
        else:
            admitted, balance = await self._shared.charge(key, budget, units)
        if not admitted:
            raise _refusal(caller, budget, balance, units)
        return budget.allowance(balance)

    async def settle(self, caller: Caller, units: float) -> Allowance | None:
        """Charge the cost beyond the estimate, or refund the rest of the estimate if `units` is negative.

        The bucket may be in debt afterwards.
        """
        budget = self._budget(caller)
        if not budget.units:
            return None
        key = caller.payer or payer(caller)
        if self._shared is None:
            balance = self._local.settle(key, budget, units)
        else:
            balance = await self._shared.settle(key, budget, units)
        if self._debts:
            self._debts.pop(key)
        if balance < 0:
            self._debts.put(key, self._clock() - balance / budget.per_second)
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


# A name of the module is faster to look up than the member of an enum.
_USER = Role.USER
_NONE = Budget(0, 0)


def _refusal(caller: Caller, budget: Budget, balance: float, units: float) -> OverBudget:
    owner = "This address's" if caller.identity is None else "Your"
    seconds = max(1, ceil(budget.seconds_until(balance, units)))
    rest = f"{balance:,.0f} remain" if balance >= 0 else f"{-balance:,.0f} are owed"
    message = (
        f"{owner} budget of {budget.units:,.0f} read units, refilled with {budget.per_second:,g} each second, does not "
        f"suffice: the operation may cost {units:,.0f}, and {rest}. Try again in {seconds} s."
    )
    return OverBudget(message, budget.allowance(balance), retryAfter=seconds)
