"""Stream consumers for tests: handlers that record changes, and instances that can be killed."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from datastore.change_streams.change import Change
from datastore.change_streams.dead_letters import DeadLetter, every_letter
from datastore.change_streams.leases import Lease, lease_from
from datastore.change_streams.shards.shard_reader import Wire, stream_of
from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import encode_item
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Unavailable
from datastore.keyspace.feeds import pipeline as keys
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals
from tests.support.feed_changes import store_of
from tests.support.moments import utc_now

NO_MORE = "The process is no more."
AT_ONCE = Backoff(initial=0.0, maximum=0.0, attempts=6)
SOON = Backoff(initial=0.01, maximum=0.05, attempts=4)
# A machine may stand still for two seconds, and no lease expires meanwhile.
QUICK = ConsumerIntervals(
    poll_seconds=0.01, lease_seconds=3.0, renew_seconds=0.1, discover_seconds=0.1, stop_seconds=40, outage=SOON
)


class Noting:
    """A handler that records the changes. `before` is awaited first and may fail or wait."""

    def __init__(self, name: str = "noting", before: Callable[[Sequence[Change]], Any] | None = None) -> None:
        self.name = name
        self.seen: list[Change] = []
        self.calls = 0
        self._before = before

    async def handle(self, changes: Sequence[Change]) -> None:
        self.calls += 1
        if self._before is not None:
            await self._before(changes)
        self.seen += changes

    def numbers(self, partition: str | None = None) -> list[int]:
        """Return the attribute `n` of the new items, in the order of arrival."""
        new = [change.new for change in self.seen if change.new is not None]
        return [item["n"] for item in new if partition in (None, item["PK"])]


class HandlerGate:
    """Blocks handlers until it is opened. Counts the handlers inside, and the most at once."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.opened = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.left_early = 0
        if is_open:
            self.opened.set()

    async def __call__(self, _: Sequence[Change]) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.opened.wait()
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.left_early += 1
            raise
        finally:
            self.inside -= 1


class _Cuttable:
    """A wire that can be cut off from the store."""

    def __init__(self, wire: Wire, is_cut: Callable[[], bool]) -> None:
        self._wire = wire
        self._is_cut = is_cut

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        if self._is_cut():
            raise Unavailable(NO_MORE)
        return await self._wire.call(operation, payload, timeout=timeout)

    def now(self) -> datetime:
        return self._wire.now()


class ConsumerInstance:
    """One instance of a consumer, which runs while `running` is entered."""

    def __init__(
        self,
        database: Database,
        *handlers: Handler,
        wire: Wire | None = None,
        client: Client | None = None,
        pace: ConsumerIntervals = QUICK,
        name: str = "",
    ) -> None:
        self.name = name or uuid.uuid4().hex
        self.metrics = StreamMetrics()
        self._database = database
        self._client = client
        self._dead = False
        cuttable = _Cuttable(wire or client or database.client, lambda: self._dead)
        instance = Instance(cuttable, database.prefix, self._store, self.name, utc_now)
        self.consumer = Consumer(instance, FEED, handlers, self.metrics, pace=pace, retries=AT_ONCE)

    def _store(self) -> Store:
        if self._dead:
            raise Unavailable(NO_MORE)
        return store_of(self._database, self._client)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ConsumerInstance"]:
        task = asyncio.create_task(self.consumer.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    def kill(self) -> None:
        """Cut the instance off from the store, so that it does not release its leases."""
        self._dead = True

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric of the instance."""
        return self.metrics.registry.get_sample_value(name, labels)


def numbered(number: int, partition: str = "k", sort: str = "s") -> dict[str, Any]:
    return {"PK": partition, "SK": sort, "n": number}


def stream_record(number: int, partition: str = "k", **image: Any) -> dict[str, Any]:
    """Return a stream record in DynamoDB's JSON."""
    item = encode_item({**numbered(number, partition), **image})
    body = {
        "Keys": {name: item[name] for name in ("PK", "SK")},
        "NewImage": item,
        "SequenceNumber": str(number + 100),
        "ApproximateCreationDateTime": 1_782_000_000 + number,
    }
    return {"eventName": "INSERT", "dynamodb": body}


async def leases_of(database: Database, stream: str | None = None) -> dict[str, Lease]:
    """Return the leases by shard."""
    stream = stream or await stream_of(database.client, FEED.name, database.prefix)
    found = store_of(database).query_all(keys.LEASES, keys.lease.values_of(stream))
    return {lease.shard_id: lease for item in [item async for item in found] for lease in [lease_from(item)]}


async def letters_of(database: Database, at: datetime | None = None) -> list[DeadLetter]:
    """Return the dead letters of the feed's stream at a moment, by default now."""
    found = every_letter(lambda: store_of(database), CONSUMER_TABLE, FEED.name, at or utc_now())
    return [letter async for letter in found]


async def leased(database: Database, as_wanted: Callable[[dict[str, Lease]], bool], stream: str | None = None) -> None:
    """Wait until the leases satisfy the condition."""
    async with asyncio.timeout(50):
        while not as_wanted(await leases_of(database, stream)):  # noqa: ASYNC110 - the store tells no event
            await asyncio.sleep(0.01)
