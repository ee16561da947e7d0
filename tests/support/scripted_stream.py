"""A scripted stream: the protocol of DynamoDB Streams with shards that the test opens, fills, closes and trims."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from datastore.dynamodb.client import RequestRefused


@dataclass
class Shard:
    parent: str | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False
    trimmed: int = 0
    empty: int = 0  # the number of empty pages before each record


class Script:
    """`width` is the number of digits of sequence numbers, with leading zeros, as DynamoDB Local writes them.

    `ahead` is how far the store's clock is ahead of this machine's.
    """

    page = 2
    width = 0
    ahead = timedelta()

    def __init__(self, **shards: Shard) -> None:
        self.shards = shards
        self.arn = "arn:1"
        self.generation = 0
        self.faults: dict[str, list[Exception]] = {}
        self.calls: list[str] = []
        self.read: list[str] = []
        # The DescribeStream calls: the pages of the whole stream, and the shards whose children were requested.
        self.listed = 0
        self.asked_children: list[str] = []
        self.refuses_filter = False
        self._sequence = 98  # soon one more digit: sequences are numbers, not text

    def write(self, shard: str, key: str, *, age: timedelta = timedelta(), **extra: Any) -> int:
        self._sequence += 1
        body = {
            "Keys": {"pk": {"S": key}},
            "NewImage": {"pk": {"S": key}, "n": {"N": str(self._sequence)}},
            "SequenceNumber": str(self._sequence).zfill(self.width),
            "ApproximateCreationDateTime": (self.now() - age).timestamp(),
        }
        self.shards[shard].records.append({"eventName": "INSERT", "dynamodb": body, **extra})
        return self._sequence

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def fail(self, operation: str, *problems: Exception) -> None:
        self.faults.setdefault(operation, []).extend(problems)

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        await asyncio.sleep(0)
        self.calls.append(operation)
        if faults := self.faults.get(operation):
            raise faults.pop(0)
        answer: dict[str, Any] = getattr(self, operation)(payload)
        return answer

    def DescribeTable(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {"Table": {"TableName": payload["TableName"], "LatestStreamArn": self.arn}}

    def DescribeStream(self, payload: dict[str, Any]) -> dict[str, Any]:
        names = list(self.shards)
        if "ShardFilter" in payload:
            self.asked_children.append(payload["ShardFilter"]["ShardId"])
            if self.refuses_filter:
                raise RequestRefused("ValidationException", "Unknown parameter: ShardFilter")
            names = [name for name in names if self.shards[name].parent == payload["ShardFilter"]["ShardId"]]
        start = names.index(payload["ExclusiveStartShardId"]) + 1 if "ExclusiveStartShardId" in payload else 0
        page = names[start : start + self.page]
        shards = [
            {"ShardId": name, **({"ParentShardId": parent} if (parent := self.shards[name].parent) else {})}
            for name in page
        ]
        more = {"LastEvaluatedShardId": page[-1]} if start + self.page < len(names) else {}
        self.listed += "ShardFilter" not in payload
        return {"StreamDescription": {"Shards": shards, **more}}

    def GetShardIterator(self, payload: dict[str, Any]) -> dict[str, Any]:
        shard = self.shards[payload["ShardId"]]
        match payload["ShardIteratorType"]:
            case "LATEST":
                place = len(shard.records)
            case "TRIM_HORIZON":
                place = shard.trimmed
            case "AFTER_SEQUENCE_NUMBER":
                sequences = [record["dynamodb"]["SequenceNumber"] for record in shard.records]
                if payload["SequenceNumber"] not in sequences:
                    raise RequestRefused("ValidationException", f"Invalid SequenceNumber {payload['SequenceNumber']}")
                place = sequences.index(payload["SequenceNumber"]) + 1
        return {"ShardIterator": f"{payload['ShardId']} {place} {self.generation}"}

    def GetRecords(self, payload: dict[str, Any]) -> dict[str, Any]:
        name, place, generation, *rest = payload["ShardIterator"].split()
        shard, start = self.shards[name], int(place)
        if int(generation) < self.generation:
            raise RequestRefused("ExpiredIteratorException", "expired")
        if start < shard.trimmed:
            raise RequestRefused("TrimmedDataAccessException", "trimmed")
        self.read.append(name)
        empty_pages = int(rest[0]) if rest else 0
        if empty_pages < shard.empty and start < len(shard.records):
            return {"Records": [], "NextShardIterator": f"{name} {start} {self.generation} {empty_pages + 1}"}
        end = min(start + (1 if shard.empty else payload["Limit"]), len(shard.records))
        done = shard.closed and end == len(shard.records)
        more = {} if done else {"NextShardIterator": f"{name} {end} {self.generation}"}
        return {"Records": shard.records[start:end], **more}
