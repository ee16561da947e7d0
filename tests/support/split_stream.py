"""Streams with several shards, which the embedded engine never has: its records are split by their keys."""

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from aiohttp import web

from datastore.change_streams.shards.shard_reader import Wire
from datastore.dynamodb.client import RequestRefused
from tests.support.fault_proxy import Proxy, Seen

SLOTS = 8
MOST_OPEN = 4
PAGE = 2  # shards per page of a listing, so that listings have several pages


@dataclass
class ShardPart:
    """A shard: the records of its slots after a sequence number, and up to another once it has ended."""

    id: str
    parent: str | None
    slots: frozenset[int]
    after: int
    until: int | None = None

    def has(self, record: Mapping[str, Any]) -> bool:
        sequence = _sequence(record)
        is_in_time = self.after < sequence and (self.until is None or sequence <= self.until)
        return is_in_time and _slot(record) in self.slots


@dataclass
class Parts:
    """The shards of one stream: `real` is the engine's shard. `given` is the last record that a reader received.

    It is the text of the sequence number, as engines want it back; empty before there is one.
    """

    arn: str
    real: str
    all: list[ShardPart]
    given: str = ""

    def named(self, id: str) -> ShardPart:
        return next(part for part in self.all if part.id == id)

    def open(self) -> list[ShardPart]:
        return [part for part in self.all if part.until is None]

    def end(self, part: ShardPart, at: int, rng: random.Random) -> None:
        """End a shard. Its slots go to two children, or to one if it has one slot or too many shards are open."""
        slots = sorted(part.slots)
        rng.shuffle(slots)
        middle = len(slots) // 2 if len(self.open()) < MOST_OPEN else 0
        part.until = at
        for some in filter(None, (slots[:middle], slots[middle:])):
            self.all.append(ShardPart(f"{self.real}-{len(self.all)}", part.id, frozenset(some), at))


class SplitStream:
    """A `Wire` over another one. Each stream begins with one shard and has more after `split`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._parts: dict[str, Parts] = {}

    async def answer(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        """Answer a request of a proxy: for `Proxy.always`."""
        if seen.operation in ("DescribeStream", "GetShardIterator", "GetRecords"):
            try:
                return web.Response(body=orjson.dumps(await self.call(seen.operation, seen.body, timeout=10)))
            except RequestRefused as refused:
                body = {"__type": f"com.amazonaws.dynamodb.v20120810#{refused.code}", "message": str(refused)}
                return web.Response(status=400, body=orjson.dumps(body))
        status, headers, content = await proxy.ask(seen)
        return web.Response(status=status, headers=headers, body=content)

    async def split(self, table: str, rng: random.Random) -> None:
        """End an open shard of the stream of a table, given by its full name, after its current records."""
        arn = (await self._wire.call("DescribeTable", {"TableName": table}, timeout=10))["Table"]["LatestStreamArn"]
        parts = await self._of(arn)
        last = await self._last(parts)
        # Since that response a reader may have received more records of the shard.
        parts.end(rng.choice(parts.open()), max(_number(last), _number(parts.given)), rng)

    def shards(self, table: str) -> list[str]:
        """Return the ids of all shards of the table's stream so far."""
        (parts,) = [parts for arn, parts in self._parts.items() if f"table/{table}/" in arn]
        return [part.id for part in parts.all]

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        match operation:
            case "DescribeStream":
                return self._list(await self._of(payload["StreamArn"]), payload.get("ExclusiveStartShardId"))
            case "GetShardIterator":
                return await self._iterator(payload)
            case "GetRecords":
                return await self._records(payload)
        return await self._wire.call(operation, payload, timeout=timeout)

    def now(self) -> datetime:
        return self._wire.now()

    async def _of(self, arn: str) -> Parts:
        if arn not in self._parts:
            received = await self._wire.call("DescribeStream", {"StreamArn": arn}, timeout=10)
            (shard,) = received["StreamDescription"]["Shards"]
            whole = ShardPart(f"{shard['ShardId']}-0", None, frozenset(range(SLOTS)), 0)
            self._parts.setdefault(arn, Parts(arn, shard["ShardId"], [whole]))
        return self._parts[arn]

    def _list(self, parts: Parts, after: str | None) -> dict[str, Any]:
        begin = 0 if after is None else parts.all.index(parts.named(after)) + 1
        page = parts.all[begin : begin + PAGE]
        shards = [{"ShardId": one.id} | ({"ParentShardId": one.parent} if one.parent else {}) for one in page]
        more = {"LastEvaluatedShardId": page[-1].id} if begin + PAGE < len(parts.all) else {}
        return {"StreamDescription": {"Shards": shards, **more}}

    async def _iterator(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        parts = await self._of(payload["StreamArn"])
        real = await self._wire.call("GetShardIterator", {**payload, "ShardId": parts.real}, timeout=10)
        return {"ShardIterator": _joined(parts, payload["ShardId"], real["ShardIterator"])}

    async def _records(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        arn, id, iterator = orjson.loads(payload["ShardIterator"])
        parts = await self._of(arn)
        part = parts.named(id)
        had_ended = part.until is not None
        received = await self._wire.call("GetRecords", {**payload, "ShardIterator": iterator}, timeout=10)
        records = received["Records"]
        given = [record for record in records if part.has(record)]
        parts.given = max([parts.given, *map(_text, given)], key=_number)
        if had_ended and (not records or _sequence(records[-1]) >= (part.until or 0)):
            return {"Records": given}
        return {"Records": given, "NextShardIterator": _joined(parts, id, received["NextShardIterator"])}

    async def _last(self, parts: Parts) -> str:
        """Return the sequence number of the engine's last record, empty if there is none."""
        last, start = parts.given, {"ShardIteratorType": "TRIM_HORIZON"}
        if last:
            start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": last}
        asked = {"StreamArn": parts.arn, "ShardId": parts.real, **start}
        iterator = (await self._wire.call("GetShardIterator", asked, timeout=10))["ShardIterator"]
        while True:
            received = await self._wire.call("GetRecords", {"ShardIterator": iterator}, timeout=10)
            if not received["Records"]:
                return last
            last, iterator = _text(received["Records"][-1]), received["NextShardIterator"]


def _joined(parts: Parts, id: str, iterator: str) -> str:
    return orjson.dumps([parts.arn, id, iterator]).decode()


def _text(record: Mapping[str, Any]) -> str:
    text: str = record["dynamodb"]["SequenceNumber"]
    return text


def _number(sequence: str) -> int:
    return int(sequence or 0)


def _sequence(record: Mapping[str, Any]) -> int:
    return _number(_text(record))


def _slot(record: Mapping[str, Any]) -> int:
    return zlib.crc32(orjson.dumps(record["dynamodb"]["Keys"], option=orjson.OPT_SORT_KEYS)) % SLOTS
