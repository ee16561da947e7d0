"""The feed's pipeline in a separate process that reports its usage."""

import asyncio
import gc
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from benchmarks.child import Child, serve_commands, started
from benchmarks.data import NOON, open_store
from benchmarks.measuring import run
from benchmarks.server import READS
from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import Client
from datastore.keyspace.feeds import pipeline as keys
from datastore.keyspace.feeds.table import FEED
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.feeds.pipeline import FeedPipeline

SETTLE_SECONDS = 240.0
# On the pipeline's own table only leases use these operations. Operations outside of `ITEM_OPERATIONS` read the stream.
LEASE_OPERATIONS = {"UpdateItem", "Query"}
ITEM_OPERATIONS = READS | {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}


class PipelineMeter:
    """The usage since `begin`. Calls that read the stream or hold its leases are counted separately."""

    def __init__(self, pipeline: FeedPipeline) -> None:
        self._pipeline = pipeline
        self._records_before = 0.0
        self.begin()

    def begin(self) -> None:
        gc.collect()
        self._calls: Counter[str] = Counter()
        self._units: defaultdict[str, float] = defaultdict(float)
        self._other_calls = 0
        self._last_batch: float | None = None
        self._records_before = self._records()
        self._cpu = time.process_time()

    def called(self, call: Call) -> None:
        if call.operation not in ITEM_OPERATIONS or (
            call.tables == (keys.FEED_PIPELINE.name,) and call.operation in LEASE_OPERATIONS
        ):
            self._other_calls += 1
            return
        self._calls[call.operation] += 1
        self._units[call.operation] += call.units
        if call.operation == "BatchWriteItem":
            self._last_batch = time.monotonic()

    def usage(self) -> Mapping[str, Any]:
        return {
            "cpu": time.process_time() - self._cpu,
            "calls": self._calls,
            "units": self._units,
            "other_calls": self._other_calls,
            "last_batch": self._last_batch,
            "records": self._records() - self._records_before,
        }

    def _records(self) -> float:
        """Return the number of handled records. Every handler gets each of them, so one handler's count suffices."""
        labels = {"table": FEED.name, "handler": "counters", "outcome": "handled"}
        return self._pipeline.metrics.registry.get_sample_value("stream_records_total", labels) or 0.0


async def main(engine: str, bound: str) -> None:
    """Handle records after the command `run`, until the input ends."""
    async with open_database(StoreOptions(store=engine)) as database:

        def open_store() -> Store:
            return Store(database.client, prefix="", deadline=Deadline(120), token=lambda: str(uuid.uuid4()))

        pipeline = FeedPipeline(
            database.client, "", open_store, instance_id="measured", now=noon, fan_out_bound=int(bound)
        )
        meter = PipelineMeter(pipeline)
        database.client.add_call_listener(meter.called)
        running: list[asyncio.Task[None]] = []

        async def handle(command: str) -> object:
            match command:
                case "run":
                    running.append(asyncio.create_task(pipeline.run()))
                    return None
                case "begin":
                    meter.begin()
                    return None
                case "report":
                    return meter.usage()
            raise ValueError(command)

        await serve_commands(handle)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def noon() -> datetime:
    """Return the constant time of the measured gateway and pipeline."""
    return NOON


@dataclass(slots=True)
class Cost:
    """The usage of the pipeline or of the gateway."""

    #: CPU seconds.
    cpu: float = 0.0
    #: DynamoDB calls by operation.
    calls: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    write_units: float = 0.0
    #: Further calls, which read the stream and hold its leases. Their units are not counted.
    other_calls: int = 0
    #: The handled records.
    records: float = 0.0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> "Cost":
        units = usage["units"]
        reads = sum(number for operation, number in units.items() if operation in READS)
        writes = sum(units.values()) - reads
        return cls(usage["cpu"], Counter(usage["calls"]), reads, writes, usage["other_calls"], usage["records"])


def mean(costs: Iterable[Cost]) -> Mapping[str, Any]:
    """Return the means: CPU in milliseconds, calls by operation, units and records."""
    some = list(costs)
    calls = sum((cost.calls for cost in some), Counter[str]())
    return {
        "cpu_ms": sum(cost.cpu for cost in some) * 1000 / len(some),
        "calls": {operation: number / len(some) for operation, number in calls.items()},
        "read_units": sum(cost.read_units for cost in some) / len(some),
        "write_units": sum(cost.write_units for cost in some) / len(some),
        "records": sum(cost.records for cost in some) / len(some),
    }


class Pipeline:
    """The parent's handle of the process. `client` reads its progress."""

    def __init__(self, child: Child, client: Client) -> None:
        self._child = child
        self._client = client

    async def run(self) -> None:
        await self._child.ask("run")

    async def begin(self) -> None:
        await self._child.ask("begin")

    async def report(self) -> Mapping[str, Any]:
        """Return the usage since `begin`."""
        usage: Mapping[str, Any] = await self._child.ask("report")
        return usage

    async def wait_until_handled(self) -> None:
        """Wait until the process has handled every record of the stream, including those of its own writes."""
        stream = (await self._client.call("DescribeTable", {"TableName": FEED.name}))["Table"]["LatestStreamArn"]
        async with asyncio.timeout(SETTLE_SECONDS):
            while not await self._is_at_end(stream):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)

    async def _is_at_end(self, stream: str) -> bool:
        """Return whether the engine's single shard has no record after the checkpoint."""
        leases = await open_store(self._client).query(keys.LEASES, {"partition": keys.leases(stream)})
        checkpoint = leases.items[0].get("checkpoint") if leases.items else None
        if checkpoint is None:
            return False
        start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": checkpoint}
        shard = {"StreamArn": stream, "ShardId": leases.items[0]["SK"]}
        begin = (await self._client.call("GetShardIterator", {**shard, **start}))["ShardIterator"]
        return not (await self._client.call("GetRecords", {"ShardIterator": begin, "Limit": 1}))["Records"]


@asynccontextmanager
async def consuming(engine: str, client: Client, bound: int = MAX_FOLLOWERS) -> AsyncIterator[Pipeline]:
    """Start a pipeline process. It handles the stream from `Pipeline.run` until the context exits."""
    async with started("benchmarks.feed_pipeline", engine, str(bound)) as child:
        yield Pipeline(child, client)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
