"""Leases of a stream's shards with their checkpoints (FEED-P1).

Each acquisition of a lease increments its fencing token: writes of a former holder, with an old token, fail.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from datastore.change_streams.consumer_table import ConsumerTable
from datastore.dynamodb.records import readable_records
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import to_seconds
from datastore.session.store import Store
from datastore.session.writes import WriteResult

LIFETIME_SECONDS = 10.0
# The minimum by which a renewal increases `held_until`.
STEP_SECONDS = 0.001
# Longer than AWS lists an ended shard. Other leases do not expire: the stream of an embedded engine is never trimmed,
# and without its checkpoint a consumer would read it from the start, after the marks of its effects have expired.
ENDED_LIFETIME = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of a shard."""

    shard_id: str
    #: The fencing token.
    fence: int
    #: The instance that holds the lease; None if it is free.
    owner: str | None = None
    #: Epoch seconds by the holder's clock. The holder renews it: an unchanged value shows that the holder has ended.
    held_until: float | None = None
    #: The sequence number of the last record that was handled.
    checkpoint: str | None = None
    #: Whether all records of the shard were handled.
    ended: bool = False


class Leases:
    """The leases of one stream, as one instance of a consumer (`owner`) acquires and renews them."""

    def __init__(
        self,
        store: Store,
        table: ConsumerTable,
        stream: str,
        owner: str,
        now: datetime,
        seconds: float = LIFETIME_SECONDS,
    ) -> None:
        self._store = store
        self._table = table
        self._stream = stream
        self._owner = owner
        self._now = now
        self._seconds = seconds

    async def all(self) -> list[Lease]:
        """FEED-P1: return all leases, including those of ended shards."""
        values = self._table.lease.values_of(self._stream)
        found = self._store.query_all(self._table.list_leases, values)
        return readable_records(lease_from, [item async for item in found])

    async def acquire(self, shard_id: str, seen: Lease | None) -> Lease | None:
        """FEED-P1: acquire a lease and return it; None if it differs from `seen`. `seen` is None if it did not exist.

        Return None also for a shard that has ended in the meantime, after the lease is released.
        """
        fence, held = (0, None) if seen is None else (seen.fence, seen.held_until)
        values = {"seen": fence, "held": held or 0, "owner": self._owner, "one": 1, "until": self._expiry()}
        written = await self._update(self._table.take_lease, shard_id, **values)
        if written.item is None or not written.has_acquired(self._owner, fence + 1):
            return None
        lease = lease_from(written.item)
        if lease.ended:
            await self.end(lease)
            return None
        return lease

    async def renew(self, lease: Lease) -> Lease | None:
        """FEED-P1: renew a lease and return it; None if another owner has acquired it, so that this one must stop."""
        values = {**self._ownership(lease), "until": self._expiry(lease)}
        written = await self._update(self._table.renew_lease, lease.shard_id, **values)
        return replace(lease, held_until=values["until"]) if written.ok else None

    async def checkpoint(self, lease: Lease, sequence: str) -> Lease | None:
        """FEED-P1: store a checkpoint, renew the lease and return it; None if another owner has acquired it."""
        values = {**self._ownership(lease), "until": self._expiry(lease), "checkpoint": sequence}
        written = await self._update(self._table.checkpoint, lease.shard_id, **values)
        return replace(lease, checkpoint=sequence, held_until=values["until"]) if written.ok else None

    async def end(self, lease: Lease) -> bool:
        """FEED-P1: record that the shard is handled. Return False if another owner has acquired the lease."""
        values = {**self._ownership(lease), "yes": True, "gone": to_seconds(self._now + ENDED_LIFETIME)}
        written = await self._update(self._table.end_shard, lease.shard_id, **values)
        ended_before = written.item is not None and written.item.get("ended") is True
        return written.ok or (written.is_retry and ended_before)

    async def release(self, lease: Lease) -> bool:
        """FEED-P1: release a lease. Return False if another owner has acquired it."""
        return (await self._update(self._table.release_lease, lease.shard_id, **self._ownership(lease))).ok

    async def _update(self, pattern: AccessPattern, shard_id: str, **values: Any) -> WriteResult:
        return await self._store.update(pattern, self._table.lease(self._stream, shard_id), **values)

    def _ownership(self, lease: Lease) -> dict[str, Any]:
        return {"owner": self._owner, "fence": lease.fence}

    def _expiry(self, before: Lease | None = None) -> float:
        expiry = (self._now + timedelta(seconds=self._seconds)).timestamp()
        if before is not None and before.held_until is not None:
            expiry = max(expiry, before.held_until + STEP_SECONDS)  # it increases even if the clock is set back
        return round(expiry, 3)


def lease_from(item: Mapping[str, Any]) -> Lease:
    return Lease(
        item["SK"],
        item["fence"],
        item.get("owner"),
        item.get("held_until"),
        item.get("checkpoint"),
        item.get("ended", False),
    )
