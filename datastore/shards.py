"""A table's stream as DynamoDB tells of it: which shards there are, and the records of one from a place on.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from datastore.client import RequestRefused
from datastore.errors import Internal, TableMissing
from datastore.moments import from_seconds

BATCH = 1000  # what GetRecords gives at most
CALL_SECONDS = 10.0
TRIMMED = "TrimmedDataAccessException"
INVALID = "ValidationException"
LOST = {TRIMMED, "ResourceNotFoundException"}
SPENT = {"ExpiredIteratorException", INVALID}
FROM_THE_START = {"ShardIteratorType": "TRIM_HORIZON"}


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


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as the stream lists it; `parent` may be listed no longer."""

    id: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Page:
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

    async def read(self, limit: int = BATCH) -> Page:
        """The next records, none of them twice, though the stream may deliver some again.

        Raises `Trimmed`, after which reading goes on with the oldest there is, `ShardGone`, and what the wire raises;
        the same records come at the next call then.
        """
        try:
            answer = await self._read(limit)
        except RequestRefused as problem:
            if problem.code not in LOST:
                raise
            self._last = self._iterator = None
            kind = Trimmed if problem.code == TRIMMED else ShardGone
            raise kind(f"The stream has lost changes of the shard {self._shard_id}.") from problem
        self._iterator = answer.get("NextShardIterator")
        # A shard may be told an ending sequence while it is open: only a missing iterator means its end.
        return Page([record for record in answer.get("Records", ()) if self._is_new(record)], self._iterator is None)

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
        return True
