"""A reader's position in a shard, and how reading continues from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from datastore.change_streams.shards.checkpoints import START, joined, joined_by, sequence_at
from datastore.change_streams.shards.shard_reader import FROM_THE_START, RETENTION, Trimmed, after

ITERATOR_LIFE = timedelta(minutes=15)
# The ARNs of DynamoDB Local's streams have this as their region.
DYNAMODB_LOCAL = ":ddblocal:"
# Times are the store's, by the Date of its responses, or this machine's if it sends none. AWS refuses requests whose
# signing clock differs by more than this.
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(slots=True)
class ShardIterator:
    """A reader's position in a shard: an iterator, and the data to request another one for the same position."""

    id: str
    parent: str | None
    #: The store's time of the last request that was answered; None if it is unknown.
    as_of: datetime | None
    #: Whether the shard is read from its first record, and was not joined at its end.
    whole: bool = True
    iterator: str | None = None
    #: The sequence number of the last record.
    last: str | None = None
    #: The checkpoint after the last change that was new.
    position: str = START
    #: Changes before this time are skipped: the shard is read again from its start.
    skip_before: datetime | None = None

    def resume(self, now: datetime) -> dict[str, str]:
        """Return the parameters of GetShardIterator that continue at this position. `now` is the store's time.

        A shard that was joined at its end and has shown no record has no sequence number to continue after. It is read
        from its start, without records older than the last response. This may repeat changes from up to CLOCK_SKEW
        earlier, and loses none.

        Raises:
            Trimmed: The last response is older than the stream keeps records, or another reader received it, so that
                its time is unknown.
        """
        if self.last is not None:
            return after(self.last)
        if self.as_of is None:
            raise Trimmed("The iterator of the previous reader of the shard has expired.")
        if now - self.as_of > RETENTION:
            raise Trimmed("The shard had no record for as long as the stream keeps records.")
        if not self.whole:
            self.skip_before = self.as_of - CLOCK_SKEW
        return FROM_THE_START

    def restore(self, position: str) -> None:
        """Continue at the position of another reader."""
        self.position = position
        if sequence_at(position) is not None:
            self.last = position
        joining = joined_by(position)
        if joining is not None:
            self.whole, self.iterator, self.as_of = False, joining[1], None

    def may_read_from_the_start(self, stream: str) -> bool:
        """Drop an iterator that was refused as trimmed, if the shard has shown no record since it was joined.

        Return whether the shard may be read from its start. DynamoDB Local refuses an iterator of type LATEST in this
        way at the first record of a shard. Reading from the start loses nothing there: the stream keeps records far
        longer than an iterator lives. The refusal of another store means that changes were trimmed.
        """
        if (
            DYNAMODB_LOCAL not in stream
            or self.whole
            or self.last is not None
            or self.skip_before is not None
            or self.as_of is None
        ):
            return False
        self.iterator = None
        return True

    def accept(self, sequence: str, time: datetime | None) -> bool:
        """Record a change, and return whether it is new. A retry or a new iterator may return earlier changes again.

        `sequence` is kept as the stream returned it: some stores do not accept it without its leading zeros.
        """
        if self.last is not None and int(sequence) <= int(self.last):
            return False
        self.last = sequence
        is_new = self.skip_before is None or time is None or time >= self.skip_before
        if is_new:
            self.position = sequence
        return is_new

    def update_iterator(self, iterator: str | None, as_of: datetime) -> None:
        """Continue with the iterator of a response, None at the shard's end. `as_of` is the time of the request."""
        self.iterator, self.as_of = iterator, as_of
        joining = joined_by(self.position)
        if iterator is not None and joining is not None and self.skip_before is None:
            self.position = joined(joining[0], iterator)


def ancestors(shards: Mapping[str, ShardIterator], id: str) -> list[str]:
    """Return the ids of a shard's ancestors that are still listed, the nearest first."""
    found: list[str] = []
    parent = shards[id].parent
    while parent is not None and parent in shards:
        found.append(parent)
        parent = shards[parent].parent
    return found
