"""The calls of DynamoDB Streams: the shards of a table's stream, and the records of a shard from a position on.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError, Internal, TableMissing
from datastore.model.timestamps import from_seconds

BATCH = 1000  # the maximum of GetRecords
CALL_SECONDS = 10.0
RETENTION = timedelta(hours=24)  # of AWS
TRIMMED = "TrimmedDataAccessException"
INVALID = "ValidationException"
LOST = {TRIMMED, "ResourceNotFoundException"}
SPENT = {"ExpiredIteratorException", INVALID}
FROM_THE_START = {"ShardIteratorType": "TRIM_HORIZON"}
# The refusals in a row after which a position counts as invalid. The first may be of the iterator, which is replaced.
MAX_REFUSALS = 3


class Wire(Protocol):
    """The part of the client that readers of streams use."""

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]: ...  # noqa: ASYNC109

    def now(self) -> datetime:
        """Return the store's time, which may be far from that of this machine."""


class StreamMissing(Internal):
    """The table exists, but has no stream."""


class ShardGone(Exception):
    """The stream no longer has the shard: it ended more than a day ago, or the table was replaced."""


class Trimmed(Exception):
    """The stream no longer has the records after the position in a shard."""


class PositionRefused(Trimmed):
    """The stream does not accept the position in a shard, so the records after it cannot be found."""


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as the stream lists it. Its `parent` may no longer be listed."""

    id: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Records of a shard, in order."""

    records: list[dict[str, Any]]
    #: Whether the shard has ended: it has no further records.
    ended: bool
    #: The number of records that the stream returned, with those that it had returned before.
    received: int = 0


async def call(wire: Wire, operation: str, payload: dict[str, Any]) -> dict[str, Any]:
    return await wire.call(operation, payload, timeout=CALL_SECONDS)


async def stream_of(wire: Wire, table: str, prefix: str) -> str:
    """Return the ARN of the table's present stream. Raises `TableMissing` or `StreamMissing`."""
    try:
        answer = await call(wire, "DescribeTable", {"TableName": prefix + table})
    except RequestRefused as problem:
        if problem.code != "ResourceNotFoundException":
            raise
        raise TableMissing(
            f"The table {prefix}{table} does not exist: `gateway.py tables create` creates it."
        ) from problem
    stream: str | None = answer["Table"].get("LatestStreamArn")
    if stream is None:
        raise StreamMissing(
            f"The table {prefix}{table} has no stream: `gateway.py tables create --update` turns it on."
        )
    return stream


async def shards_of(wire: Wire, stream: str, parent: str | None = None) -> list[ListedShard]:
    """Return all shards that the stream lists, or only the children of `parent` (API_streams_ShardFilter)."""
    listed: list[ListedShard] = []
    page: dict[str, Any] = {"StreamArn": stream}
    if parent is not None:
        page["ShardFilter"] = {"Type": "CHILD_SHARDS", "ShardId": parent}
    while True:
        description = (await call(wire, "DescribeStream", page))["StreamDescription"]
        listed += [ListedShard(shard["ShardId"], shard.get("ParentShardId")) for shard in description.get("Shards", ())]
        last = description.get("LastEvaluatedShardId")
        if last is None:
            return listed
        page["ExclusiveStartShardId"] = last


async def iterator_at(wire: Wire, stream: str, shard_id: str, start: dict[str, str]) -> str:
    answer = await call(wire, "GetShardIterator", {"StreamArn": stream, "ShardId": shard_id, **start})
    iterator: str = answer["ShardIterator"]
    return iterator


def after(sequence: str) -> dict[str, str]:
    return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": sequence}


def sequence_of(record: Mapping[str, Any]) -> str | None:
    """Return the record's sequence number; None if it has no valid one."""
    body = record.get("dynamodb")
    sequence = body.get("SequenceNumber") if isinstance(body, Mapping) else None
    return sequence if isinstance(sequence, str) and sequence.isascii() and sequence.isdigit() else None


def time_of(record: Mapping[str, Any]) -> datetime | None:
    """Return the time of the change, to about a second; None if the record has no valid one."""
    try:
        return from_seconds(record["dynamodb"]["ApproximateCreationDateTime"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


class ShardCursor:
    """A cursor that reads one shard after the record `last`, or from the shard's start."""

    def __init__(self, wire: Wire, stream: str, shard_id: str, last: str | None) -> None:
        self.id = shard_id
        #: The sequence number of the record that was read last; None at the shard's start.
        self.last = last
        self.iterator: str | None = None
        self._wire = wire
        self._stream = stream
        self._refusals = 0  # of the position or of iterators, in a row
        self._refused: str | None = None

    def skip_to(self, last: str) -> None:
        """Continue after a record that was read elsewhere."""
        self.last, self.iterator = last, None

    async def read(self, limit: int = BATCH) -> ShardPage:
        """Return the next records. Each is returned once, although the stream may deliver some again.

        Raises:
            Trimmed: Changes are lost. The next call reads the oldest records.
            PositionRefused: The stream has refused the position `MAX_REFUSALS` times in a row. The next call reads the
                oldest records, so records that were handled before are returned again.
            ShardGone: The stream no longer has the shard.
            DomainError, RequestRefused: The error of the wire. The next call reads the same records.
        """
        try:
            answer = await self._read(limit)
        except DomainError:
            self._refusals = 0
            raise
        except RequestRefused as problem:
            self._count(problem)
            if problem.code not in LOST:
                raise
            self.last = self.iterator = None
            kind = Trimmed if problem.code == TRIMMED else ShardGone
            raise kind(f"The stream has lost changes of the shard {self.id}.") from problem
        self._refusals = 0
        self.iterator = answer.get("NextShardIterator")
        received = answer.get("Records", ())
        # An open shard may have an ending sequence number: only a missing iterator means its end.
        return ShardPage([record for record in received if self._is_new(record)], self.iterator is None, len(received))

    def _count(self, problem: RequestRefused) -> None:
        """Count a refusal. Raise `PositionRefused` after `MAX_REFUSALS`, and drop the position."""
        self._refusals = self._refusals + 1 if problem.code == INVALID else 0
        if self._refusals < MAX_REFUSALS or not self._has_position():
            return
        refused = self._refused = self.last
        self.last, self.iterator, self._refusals = None, None, 0
        raise PositionRefused(
            f"The stream refuses to continue after the sequence number {refused} of the shard {self.id}: {problem}"
        ) from problem

    def _has_position(self) -> bool:
        return self.last is not None

    def _start(self) -> dict[str, str]:
        """Return the parameters of GetShardIterator that continue at the position."""
        return FROM_THE_START if self.last is None else after(self.last)

    async def _read(self, limit: int) -> dict[str, Any]:
        if self.iterator is not None:
            try:
                return await self._records(self.iterator, limit)
            except RequestRefused as problem:
                if problem.code not in SPENT:
                    raise
                self.iterator = None
        self.iterator = await iterator_at(self._wire, self._stream, self.id, self._start())
        return await self._records(self.iterator, limit)

    async def _records(self, iterator: str, limit: int) -> dict[str, Any]:
        return await call(self._wire, "GetRecords", {"ShardIterator": iterator, "Limit": limit})

    def _is_new(self, record: dict[str, Any]) -> bool:
        sequence = sequence_of(record)
        if sequence is None:
            return True  # the caller reports the malformed record
        if self.last is not None and int(sequence) <= int(self.last):
            return False
        self.last = sequence
        return not self._was_handled_long_ago(sequence, record)

    def _was_handled_long_ago(self, sequence: str, record: dict[str, Any]) -> bool:
        """Return whether a record before the refused position is older than AWS keeps records.

        An embedded engine keeps all records, but the marks of consumers' effects expire.
        """
        if self._refused is None or int(sequence) > int(self._refused):
            return False
        time = time_of(record)
        return time is not None and self._wire.now() - time > RETENTION
