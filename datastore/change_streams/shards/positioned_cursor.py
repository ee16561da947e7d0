"""A cursor of a shard that was joined at its end, or is continued at the position of another reader."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from datastore.change_streams.shards.checkpoints import START, joined, joined_by, sequence_at
from datastore.change_streams.shards.shard_reader import (
    BATCH,
    FROM_THE_START,
    RETENTION,
    TRIMMED,
    ShardCursor,
    ShardPage,
    Trimmed,
    Wire,
    after,
    iterator_at,
    time_of,
)
from datastore.dynamodb.client import RequestRefused

ITERATOR_LIFE = timedelta(minutes=15)
# The ARNs of DynamoDB Local's streams have this as their region.
DYNAMODB_LOCAL = ":ddblocal:"
# Times are the store's, by the Date of its responses, or this machine's if it sends none. AWS refuses requests whose
# signing clock differs by more than this.
CLOCK_SKEW = timedelta(minutes=5)


class PositionedCursor(ShardCursor):
    """A cursor with a position that other readers can continue at. `as_of` is the store's time of the listing."""

    def __init__(self, wire: Wire, stream: str, shard_id: str, parent: str | None, as_of: datetime) -> None:
        super().__init__(wire, stream, shard_id, None)
        self.parent = parent
        #: The checkpoint after the last change that was delivered.
        self.position = START
        # The store's time of the last request that was answered; None if it is unknown.
        self._as_of: datetime | None = as_of
        # Whether the shard is read from its first record, and was not joined at its end.
        self._whole = True
        # Changes before this time are skipped: the shard is read again from its start.
        self._skip_before: datetime | None = None

    async def join(self, order: str) -> None:
        """Continue at the shard's present end."""
        self._whole = False
        self.iterator = await iterator_at(self._wire, self._stream, self.id, {"ShardIteratorType": "LATEST"})
        self.position = joined(order, self.iterator)

    def restore(self, position: str) -> None:
        """Continue at the position of another reader."""
        self.position = position
        if sequence_at(position) is not None:
            self.last = position
        joining = joined_by(position)
        if joining is not None:
            self._whole, self.iterator, self._as_of = False, joining[1], None

    async def read(self, limit: int = BATCH) -> ShardPage:
        """Return the next records: see `ShardCursor.read`. The caller sets `position` when it has delivered them."""
        now = self._wire.now()
        page = await super().read(limit)
        self._as_of = now
        joining = joined_by(self.position)
        if not page.received and self.iterator is not None and joining is not None and self._skip_before is None:
            self.position = joined(joining[0], self.iterator)
        return page

    def _has_position(self) -> bool:
        return True

    def _start(self) -> dict[str, str]:
        """Return the parameters of GetShardIterator that continue at the position.

        A shard that was joined at its end and has shown no record has no sequence number to continue after. It is read
        from its start, without records older than the last response. This may repeat changes from up to CLOCK_SKEW
        earlier, and loses none.

        Raises:
            Trimmed: The last response is older than the stream keeps records, or another reader received it, so that
                its time is unknown.
        """
        if self.last is not None:
            return after(self.last)
        if self._as_of is None:
            raise Trimmed("The iterator of the previous reader of the shard has expired.")
        if self._wire.now() - self._as_of > RETENTION:
            raise Trimmed("The shard had no record for as long as the stream keeps records.")
        if not self._whole:
            self._skip_before = self._as_of - CLOCK_SKEW
        return FROM_THE_START

    async def _read(self, limit: int) -> dict[str, Any]:
        try:
            return await super()._read(limit)
        except RequestRefused as problem:
            if problem.code != TRIMMED or not self._may_read_from_the_start():
                raise
            self.iterator = None
            return await super()._read(limit)

    def _may_read_from_the_start(self) -> bool:
        """Return whether a shard that was refused as trimmed may be read from its start.

        DynamoDB Local refuses an iterator of type LATEST in this way at the first record of a shard. Reading from the
        start loses nothing there: the stream keeps records far longer than an iterator lives. The refusal of another
        store means that changes were trimmed.
        """
        return (
            DYNAMODB_LOCAL in self._stream
            and not self._whole
            and self.last is None
            and self._skip_before is None
            and self._as_of is not None
        )

    def _is_new(self, record: dict[str, Any]) -> bool:
        if not super()._is_new(record):
            return False
        time = time_of(record)
        return self._skip_before is None or time is None or time >= self._skip_before


def ancestors(shards: Mapping[str, PositionedCursor], id: str) -> list[str]:
    """Return the ids of a shard's ancestors that are still listed, the nearest first."""
    found: list[str] = []
    parent = shards[id].parent
    while parent is not None and parent in shards:
        found.append(parent)
        parent = shards[parent].parent
    return found
