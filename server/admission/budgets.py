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
    #: The units with which the budget is refilled each second.
    per_second: float

    @property
    def reset(self) -> float:
        """The seconds until the budget is full."""
        return (self.limit - self.remaining) / self.per_second if self.remaining < self.limit else 0.0


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

    def take(self, key: str, budget: Budget, units: float, *, always: bool) -> tuple[bool, float]:
        """Take the units if the balance suffices, or `always`. Refund them if they are negative.

        Return whether they were taken, and the balance afterwards. It may be negative.
        """
        now, buckets = self._clock(), self._buckets
        if not always and len(buckets) > 1:
            self._sweep(now)
        if is_full := key not in buckets:
            balance = budget.units
        else:
            _, balance, at = buckets[key]
            balance = refilled(balance, budget.units, budget.per_second, now - at)
        if balance < units and not always and not budget.allows(balance, units):
            return False, balance
        balance -= units
        if balance >= budget.units:
            buckets.pop(key, None)
            return True, budget.units
        if balance < 0:
            balance = max(balance, -budget.max_debt)
        buckets[key] = budget, balance, now
        if is_full and len(buckets) > self._max_buckets:
            buckets.popitem(last=False)
        return True, balance

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
        #: Whether callers are known to be in debt.
        self.has_debts = False
        units, per_second = capacity.budget_units, capacity.budget_units_per_second
        # By the value of the role: the hash of a member of an enum takes two calls.
        self._by_role = {
            Role.USER.value: Budget(units, per_second),
            Role.ADMIN.value: Budget(units * ADMIN_FACTOR, per_second * ADMIN_FACTOR),
            Role.SYSTEM.value: Budget(0, 0),
        }
        self._anonymous = Budget(capacity.anonymous_budget_units, capacity.anonymous_budget_units_per_second)

    def check(self, caller: Caller) -> None:
        """Raise `OverBudget` if the caller is known to be in debt, which it is not unless `has_debts`."""
        until = self._debts.peek(payer(caller))
        if until is None:
            return
        identity = caller.identity
        budget = self._anonymous if identity is None else self._by_role[identity.role._value_]
        debt = (until - self._clock()) * budget.per_second
        if debt > 0:
            raise _refusal(caller, budget, -debt, 0.0)
        self._forget_debt(payer(caller))

    async def charge(self, caller: Caller, units: float) -> Allowance | None:
        """Charge the estimate of an operation. Return the allowance, or None for a caller without a budget.

        Raises `OverBudget`.
        """
        identity = caller.identity
        budget = self._anonymous if identity is None else self._by_role[identity.role._value_]
        if not budget.units:
            return None
        key = caller.payer or payer(caller)
        if self._shared is None:
            admitted, balance = self._local.take(key, budget, units, always=False)
        else:
            admitted, balance = await self._shared.charge(key, budget, units)
        if not admitted:
            raise _refusal(caller, budget, balance, units)
        return Allowance(budget.units, balance, budget.per_second)

    async def settle(self, caller: Caller, units: float) -> Allowance | None:
        """Charge the cost beyond the estimate, or refund the rest of the estimate if `units` is negative.

        The bucket may be in debt afterwards.
        """
        identity = caller.identity
        budget = self._anonymous if identity is None else self._by_role[identity.role._value_]
        if not budget.units:
            return None
        key = caller.payer or payer(caller)
        if self._shared is None:
            _, balance = self._local.take(key, budget, units, always=True)
        else:
            balance = await self._shared.settle(key, budget, units)
        if balance < 0:
            self._debts.put(key, self._clock() - balance / budget.per_second)
            self.has_debts = True
        elif self.has_debts:
            self._forget_debt(key)
        return Allowance(budget.units, balance, budget.per_second)

    def _forget_debt(self, key: str) -> None:
        self._debts.pop(key)
        self.has_debts = len(self._debts) > 0


def _refusal(caller: Caller, budget: Budget, balance: float, units: float) -> OverBudget:
    owner = "This address's" if caller.identity is None else "Your"
    seconds = max(1, ceil(budget.seconds_until(balance, units)))
    rest = f"{balance:,.0f} remain" if balance >= 0 else f"{-balance:,.0f} are owed"
    message = (
        f"{owner} budget of {budget.units:,.0f} read units, refilled with {budget.per_second:,g} each second, does not "
        f"suffice: the operation may cost {units:,.0f}, and {rest}. Try again in {seconds} s."
    )
    return OverBudget(message, Allowance(budget.units, balance, budget.per_second), retryAfter=seconds)
