"""Which shards an instance should read: its fair share of those that can be read now."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from datastore.change_streams.leases import Lease
from datastore.change_streams.shards.shard_reader import ListedShard


@dataclass(frozen=True, slots=True)
class Taking:
    """A lease to take, as it was seen; None: there was none. `alive`: whoever holds it may be at work."""

    shard_id: str
    seen: Lease | None = None
    alive: bool = False


@dataclass(frozen=True, slots=True)
class _Sight:
    fence: int
    held_until: float | None
    since: float


class LeaseBalancer:
    """What an instance sees of the leases, and makes of it.

    Clocks of several machines differ: another's lease has lapsed when it was seen unchanged for its whole lifetime, by
    a clock of one's own that only goes forward (seconds).
    """

    def __init__(self, owner: str, lifetime: float) -> None:
        self._owner = owner
        self._lifetime = lifetime
        self._sights: dict[str, _Sight] = {}

    def look(self, leases: Sequence[Lease], at: float) -> None:
        """Note the leases as they stood at a moment, or before: the time when they had been read."""
        before = self._sights
        self._sights = {}
        for lease in leases:
            sight = before.get(lease.shard_id)
            if sight is None or (sight.fence, sight.held_until) != (lease.fence, lease.held_until):
                sight = _Sight(lease.fence, lease.held_until, at)
            self._sights[lease.shard_id] = sight

    def takings(
        self, shards: Sequence[ListedShard], leases: Sequence[Lease], working: Collection[str], at: float
    ) -> list[Taking]:
        """The leases to take now, free ones first; or one of another instance that has at least two more.

        `working` are the shards that are read here already, and `at` is a moment when the leases still stood so: the
        time before they were read.
        """
        by_shard = {lease.shard_id: lease for lease in leases}
        ready = [shard.id for shard in _ready(shards, by_shard)]
        held = {shard_id: by_shard[shard_id] for shard_id in ready if self.is_anothers(by_shard.get(shard_id), at)}
        instances = {lease.owner for lease in held.values()} | {self._owner}
        wanted = math.ceil(len(ready) / len(instances)) - len(working)
        if wanted <= 0:
            return []
        free = [shard_id for shard_id in ready if shard_id not in held and shard_id not in working]
        if free:
            return [Taking(shard_id, by_shard.get(shard_id)) for shard_id in free[:wanted]]
        # What is lost may still be worked here, for a moment.
        return self._stolen([lease for lease in held.values() if lease.shard_id not in working], len(working))

    def free(
        self, shards: Sequence[ListedShard], leases: Sequence[Lease], working: Collection[str], at: float
    ) -> list[Taking]:
        """The leases that no other instance holds, whatever an instance's share is; the arguments as of `takings`."""
        by_shard = {lease.shard_id: lease for lease in leases}
        ready = [shard.id for shard in _ready(shards, by_shard) if shard.id not in working]
        return [
            Taking(shard_id, by_shard.get(shard_id))
            for shard_id in ready
            if not self.is_anothers(by_shard.get(shard_id), at)
        ]

    def is_anothers(self, lease: Lease | None, at: float) -> bool:
        """Whether another instance holds it, and lives."""
        if lease is None or lease.owner in (None, self._owner):
            return False
        return at - self._sights[lease.shard_id].since < self._lifetime

    def _stolen(self, held: Sequence[Lease], mine: int) -> list[Taking]:
        most = Counter(lease.owner for lease in held).most_common(1)
        if not most or most[0][1] < mine + 2:
            return []
        lease = next(lease for lease in held if lease.owner == most[0][0])
        return [Taking(lease.shard_id, lease, alive=True)]


def _ready(shards: Sequence[ListedShard], leases: dict[str, Lease]) -> list[ListedShard]:
    """The shards that are not handled to their end, and whose parents are: that keeps each item's order."""
    listed = {shard.id for shard in shards}
    ended = {shard_id for shard_id, lease in leases.items() if lease.ended}
    return [
        shard
        for shard in shards
        if shard.id not in ended and (shard.parent is None or shard.parent not in listed or shard.parent in ended)
    ]
