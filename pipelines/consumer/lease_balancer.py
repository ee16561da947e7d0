"""Lease balancing: the choice of the shards that an instance of the consumer reads, a fair share of the ready shards.

A shard is ready when it has not ended, and its parent, if still listed, has ended.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from datastore.change_streams.leases import Lease
from datastore.change_streams.shards.shard_reader import ListedShard


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """A lease to acquire."""

    shard_id: str
    #: The lease as it was read; None if it did not exist.
    seen: Lease | None = None
    #: Whether the lease is taken from an instance that may still read the shard.
    may_be_active: bool = False


@dataclass(frozen=True, slots=True)
class _Observation:
    """The state of a lease, and the time since when it has not changed (seconds of the caller's monotonic clock)."""

    fence: int
    held_until: float | None
    since: float


class LeaseBalancer:
    """The leases as one instance has observed them.

    The clocks of several machines differ. The lease of another instance counts as expired when it was unchanged for its
    whole `lifetime` (seconds), by a monotonic clock of this instance.
    """

    def __init__(self, owner: str, lifetime: float) -> None:
        self._owner = owner
        self._lifetime = lifetime
        self._observations: dict[str, _Observation] = {}

    def observe(self, leases: Sequence[Lease], read_by: float) -> None:
        """Record the state of the leases. `read_by` is a time after the read: no lease counts as expired too early."""
        before = self._observations
        self._observations = {}
        for lease in leases:
            observation = before.get(lease.shard_id)
            if observation is None or (observation.fence, observation.held_until) != (lease.fence, lease.held_until):
                observation = _Observation(lease.fence, lease.held_until, read_by)
            self._observations[lease.shard_id] = observation

    def to_acquire(
        self, shards: Sequence[ListedShard], leases: Sequence[Lease], own_shards: Collection[str], read_from: float
    ) -> list[LeaseCandidate]:
        """Return the leases to acquire now, up to a fair share of the ready shards.

        These are free leases, or if none is free, one lease of the instance that has most, if it has at least two more
        than this one. `own_shards` are the ids of the shards that this instance reads already. `read_from` is a time
        before the leases were read: no lease counts as expired too early.
        """
        by_shard = {lease.shard_id: lease for lease in leases}
        ready = [shard.id for shard in _ready(shards, by_shard)]
        leased = [by_shard[shard_id] for shard_id in ready if shard_id in by_shard]
        held = [lease for lease in leased if self.is_held_by_other(lease, read_from)]
        instances = {lease.owner for lease in held} | {self._owner}
        shortfall = math.ceil(len(ready) / len(instances)) - len(own_shards)
        if shortfall <= 0:
            return []
        if free := self.all_free(shards, leases, own_shards, read_from):
            return free[:shortfall]
        # Skip the shards that this instance still reads: a task that has just lost its lease may run a moment longer.
        return self._from_busiest([lease for lease in held if lease.shard_id not in own_shards], len(own_shards))

    def all_free(
        self, shards: Sequence[ListedShard], leases: Sequence[Lease], own_shards: Collection[str], read_from: float
    ) -> list[LeaseCandidate]:
        """Return all leases that no other instance holds. The arguments are those of `to_acquire`."""
        by_shard = {lease.shard_id: lease for lease in leases}
        ready = [shard.id for shard in _ready(shards, by_shard) if shard.id not in own_shards]
        return [
            LeaseCandidate(shard_id, by_shard.get(shard_id))
            for shard_id in ready
            if not self.is_held_by_other(by_shard.get(shard_id), read_from)
        ]

    def is_held_by_other(self, lease: Lease | None, read_from: float) -> bool:
        """Return whether another instance holds the lease, and it has not expired. `lease` was observed."""
        if lease is None or lease.owner in (None, self._owner):
            return False
        return read_from - self._observations[lease.shard_id].since < self._lifetime

    def _from_busiest(self, held: Sequence[Lease], own_count: int) -> list[LeaseCandidate]:
        busiest = Counter(lease.owner for lease in held).most_common(1)
        if not busiest or busiest[0][1] < own_count + 2:
            return []
        lease = next(lease for lease in held if lease.owner == busiest[0][0])
        return [LeaseCandidate(lease.shard_id, lease, may_be_active=True)]


def _ready(shards: Sequence[ListedShard], leases: dict[str, Lease]) -> list[ListedShard]:
    """Return the shards that have not ended and whose parents have ended, to keep the order of each item's changes."""
    listed = {shard.id for shard in shards}
    ended = {shard_id for shard_id, lease in leases.items() if lease.ended}
    return [
        shard
        for shard in shards
        if shard.id not in ended and (shard.parent is None or shard.parent not in listed or shard.parent in ended)
    ]
