"""A table's stream as DynamoDB tells of it: which shards there are, and the records of one from a place on.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError, Internal, TableMissing
from datastore.model.timestamps import from_seconds

BATCH = 1000  # what GetRecords gives at most
CALL_SECONDS = 10.0
RETENTION = timedelta(hours=24)  # AWS's
TRIMMED = "TrimmedDataAccessException"
INVALID = "ValidationException"
LOST = {TRIMMED, "ResourceNotFoundException"}
SPENT = {"ExpiredIteratorException", INVALID}
FROM_THE_START = {"ShardIteratorType": "TRIM_HORIZON"}
# In a row: then a position is given up. The first time the iterator may have been at fault, which is replaced then.
MOST_REFUSALS = 3


class Wire(Protocol):
    """What is needed of the client."""

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]: ...  # noqa: ASYNC109

    def now(self) -> datetime:
        """Return the store's time, which may be far from that of this machine."""


class StreamMissing(Internal):
    """The table is there, but has no stream."""


class ShardGone(Exception):
    """The stream no longer knows the shard: it ended more than a day ago, or the table is another one now."""


class Trimmed(Exception):
    """The stream no longer holds what came after the place where a shard was left."""


class PositionRefused(Trimmed):
    """The stream does not accept the place where a shard was left, so the records after it cannot be found."""


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as the stream lists it; `parent` may be listed no longer."""

    id: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Records of a shard, in order; `ended` when there will never be more."""

    records: list[dict[str, Any]]
    ended: bool


async def call(wire: Wire, operation: str, payload: dict[str, Any]) -> dict[str, Any]:
    return await wire.call(operation, payload, timeout=CALL_SECONDS)


async def stream_of(wire: Wire, table: str, prefix: str) -> str:
    """The ARN of the table's present stream. Raises `TableMissing`, or `StreamMissing`."""
    try:
        answer = await call(wire, "DescribeTable", {"TableName": prefix + table})
    except RequestRefused as problem:
        if problem.code != "ResourceNotFoundException":
            raise
        raise TableMissing(f"The table {table} does not exist.") from problem
    stream: str | None = answer["Table"].get("LatestStreamArn")
    if stream is None:
        raise StreamMissing(f"The table {table} has no stream to follow.")
    return stream


async def shards_of(wire: Wire, stream: str, parent: str | None = None) -> list[ListedShard]:
    """All shards that the stream still lists, or the children of one (API_streams_ShardFilter)."""
    listed: list[ListedShard] = []
    page: dict[str, Any] = {"StreamArn": stream}
    if parent is not None:
        page["ShardFilter"] = {"Type": "CHILD_SHARDS", "ShardId": parent}
    while True:
        told = (await call(wire, "DescribeStream", page))["StreamDescription"]
        listed += [ListedShard(shard["ShardId"], shard.get("ParentShardId")) for shard in told.get("Shards", ())]
        last = told.get("LastEvaluatedShardId")
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
    """The record's sequence number; None for a record that has none it could be found by."""
    body = record.get("dynamodb")
    sequence = body.get("SequenceNumber") if isinstance(body, Mapping) else None
    return sequence if isinstance(sequence, str) and sequence.isascii() and sequence.isdigit() else None


def time_of(record: Mapping[str, Any]) -> datetime | None:
    """When the change was made, to about a second; None for a record that does not tell."""
    try:
        return from_seconds(record["dynamodb"]["ApproximateCreationDateTime"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


class ShardCursor:
    """Reads one shard on from the record that was handled last, or from its start."""

    def __init__(self, wire: Wire, stream: str, shard_id: str, last: str | None) -> None:
        self._wire = wire
        self._stream = stream
        self._shard_id = shard_id
        self._last = last
        self._iterator: str | None = None
        self._refusals = 0  # of the position or of iterators, in a row
        self._refused: str | None = None

    @property
    def last(self) -> str | None:
        """The sequence number of the record that was read last, None at the shard's start."""
        return self._last

    def skip_to(self, last: str) -> None:
        """Go on behind a record that was read elsewhere."""
        self._last, self._iterator = last, None

    async def read(self, limit: int = BATCH) -> ShardPage:
        """The next records, none of them twice, though the stream may deliver some again.

        Raises:
            Trimmed: Changes are lost. The next call reads the oldest records there are.
            PositionRefused: The stream has refused the place `MOST_REFUSALS` times in a row. The next call reads the
                oldest records there are, so records that were handled come again.
            ShardGone: The stream does not know the shard any more.
            DomainError, RequestRefused: What the wire raises. The next call reads the same records.
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
            self._last = self._iterator = None
            kind = Trimmed if problem.code == TRIMMED else ShardGone
            raise kind(f"The stream has lost changes of the shard {self._shard_id}.") from problem
        self._refusals = 0
        self._iterator = answer.get("NextShardIterator")
        # A shard may be told an ending sequence while it is open: only a missing iterator means its end.
        return ShardPage(
            [record for record in answer.get("Records", ()) if self._is_new(record)], self._iterator is None
        )

    def _count(self, problem: RequestRefused) -> None:
        """Count a refusal. Raises `PositionRefused` when it is one too many, and there is a position to give up."""
        self._refusals = self._refusals + 1 if problem.code == INVALID else 0
        if self._refusals < MOST_REFUSALS or self._last is None:
            return
        refused = self._refused = self._last
        self._last, self._iterator, self._refusals = None, None, 0
        raise PositionRefused(
            f"The stream refuses to be read on after the sequence number {refused} of the shard {self._shard_id}: "
            f"{problem}"
        ) from problem

    async def _read(self, limit: int) -> dict[str, Any]:
        if self._iterator is not None:
            try:
                return await self._records(self._iterator, limit)
            except RequestRefused as problem:
                if problem.code not in SPENT:
                    raise
                self._iterator = None
        start = FROM_THE_START if self._last is None else after(self._last)
        self._iterator = await iterator_at(self._wire, self._stream, self._shard_id, start)
        return await self._records(self._iterator, limit)

    async def _records(self, iterator: str, limit: int) -> dict[str, Any]:
        return await call(self._wire, "GetRecords", {"ShardIterator": iterator, "Limit": limit})

    def _is_new(self, record: dict[str, Any]) -> bool:
        sequence = sequence_of(record)
        if sequence is None:
            return True  # it makes no sense, and somebody has to be told
        if self._last is not None and int(sequence) <= int(self._last):
            return False
        self._last = sequence
        return not self._was_handled_long_ago(sequence, record)

    def _was_handled_long_ago(self, sequence: str, record: dict[str, Any]) -> bool:
        """Whether a record before the refused position is older than AWS keeps any.

        An embedded engine keeps them for good. What consumers remember of what they handled does not last as long.
        """
        if self._refused is None or int(sequence) > int(self._refused):
            return False
        time = time_of(record)
        return time is not None and self._wire.now() - time > RETENTION
