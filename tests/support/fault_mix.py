"""Random faults for a proxy, by rate, seed, operation and table: the same in each run."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tests.support.fault_proxy import (
    EXPIRED,
    TRIMMED,
    Fault,
    Proxy,
    Seen,
    corrupt,
    cut_body,
    damage,
    fail_after_all,
    forward,
    hang,
    leave_half,
    lose_answer,
    plain_error,
    refuse,
    repeat_records,
    reset,
    slow,
)

# The faults by name, each with the operations that it can happen to (empty: all).
FAULTS: Mapping[str, tuple[Fault, tuple[str, ...]]] = {
    "throttled": (refuse(400, "ProvisionedThroughputExceededException"), ()),
    "500": (refuse(500, "InternalServerError"), ()),
    "500 after it was done": (fail_after_all(500, "InternalServerError"), ()),
    "503": (plain_error(503), ()),
    "reset": (reset, ()),
    "answer lost": (lose_answer, ()),
    "wrong checksum": (damage, ()),
    "corrupted": (corrupt, ()),
    "cut body": (cut_body, ()),
    "slow": (slow(0.1), ()),
    "hang": (hang, ()),
    "half left": (leave_half, ("BatchGetItem", "BatchWriteItem")),
    "records repeated": (repeat_records, ("GetRecords",)),
    "iterator expired": (EXPIRED, ("GetRecords",)),
    "stream trimmed": (TRIMMED, ("GetRecords",)),
}
# Rates by which one request in five meets a fault.
FIFTH = {
    "throttled": 0.045,
    "500": 0.015,
    "500 after it was done": 0.015,
    "503": 0.02,
    "reset": 0.02,
    "answer lost": 0.025,
    "wrong checksum": 0.01,
    "corrupted": 0.01,
    "cut body": 0.015,
    "slow": 0.0245,
    "hang": 0.0005,
    "half left": 0.2,
    "records repeated": 0.2,
    "iterator expired": 0.02,
}


@dataclass(frozen=True, slots=True)
class Only:
    """The requests that faults can happen to: by operation and by the end of the table's name; () means all."""

    operations: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def holds(self, seen: Seen) -> bool:
        if self.operations and seen.operation not in self.operations:
            return False
        return not self.tables or any(name.endswith(self.tables) for name in seen.tables.split("+"))


class FaultMix:
    """A fault for `Proxy.always`, drawn by the request's number among those of its operation and table.

    Therefore one part of a load does not change the faults of another. `done` counts the faults by name. The rates are
    multiplied by `times`: with 0 there are no faults. While it is `away`, all connections are lost.
    """

    def __init__(self, rates: Mapping[str, float], seed: int, only: Only = Only()) -> None:
        self._rates = rates
        self._seed = seed
        self._only = only
        self._chances: dict[tuple[str, str], random.Random] = {}
        self.done: Counter[str] = Counter()
        self.times = 1.0
        self.away = False

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        name = "away" if self.away else self._drawn(seen)
        if name is None:
            return await forward(proxy, seen)
        self.done[name] += 1
        return await (reset if self.away else FAULTS[name][0])(proxy, seen)

    def _drawn(self, seen: Seen) -> str | None:
        if not self._only.holds(seen):
            return None
        kind = seen.operation, seen.tables
        if kind not in self._chances:
            self._chances[kind] = random.Random(f"{self._seed} {kind}")
        at = self._chances[kind].random()
        for name, rate in self._rates.items():
            operations = FAULTS[name][1]
            if not operations or seen.operation in operations:
                if at < rate * self.times:
                    return name
                at -= rate * self.times
        return None
