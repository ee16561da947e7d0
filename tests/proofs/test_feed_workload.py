"""A random workload on the feed leads to the state of a model, whatever happens to the pipeline.

FEED_OPERATIONS, FEED_USERS, FEED_KILLS and FEED_SEED change it: see `make workload`.
"""

import asyncio
import multiprocessing
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from datastore.change_streams.change import Change
from datastore.change_streams.leases import Leases
from datastore.change_streams.shards.shard_reader import ShardCursor, shards_of, stream_of
from datastore.database import StoreOptions
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.redrive import Redrive
from tests.support import feed_process
from tests.support.consumers import AT_ONCE, SOON
from tests.support.feed_changes import items_of
from tests.support.feed_workload import STEP, FeedWorkload, before, compare_with_feed_model, pipeline_settled
from tests.support.feed_workload_steps import OPERATIONS, PATIENCE, buried, handlers_of, pipeline
from tests.support.forking import CONTEXT
from tests.support.moments import utc_now
from tests.support.served import Clock, Served

USERS = int(os.environ.get("FEED_USERS", "20"))
KILLS = int(os.environ.get("FEED_KILLS", "4"))
BETWEEN_KILLS = OPERATIONS / KILLS / 100  # seconds: some hundred operations take one
FAN_OUT_BOUND = 1 if OPERATIONS < 5000 else 4  # small, so that authors are promoted in time
SEED = int(os.environ.get("FEED_SEED", "4"))
pytestmark = pytest.mark.timeout(2 * PATIENCE)
FAILURES = 0.2  # the share of calls of a handler that fail
BAD_EACH = 150  # one of this many changes fails nearly always


@pytest.fixture
def clock() -> Clock:
    """The clock starts in the past, so that the workload, which takes hours or days by it, ends before now."""
    clock = Clock()
    clock.now = before(OPERATIONS * STEP)
    return clock


@pytest.fixture
async def workload(served: Served, clock: Clock) -> FeedWorkload:
    workload = FeedWorkload(served, clock, users=USERS, seed=SEED)
    await workload.enter()
    return workload


async def test_counts_lists_and_notifications_equal_the_model(served: Served, workload: FeedWorkload) -> None:
    async with pipeline(served):
        await workload.run(OPERATIONS)
        await wait(served)

    await compare_with_feed_model(workload)
    assert await buried(served) == []


async def test_a_pipeline_that_is_killed_again_and_again_loses_and_doubles_nothing(
    served: Served, workload: FeedWorkload, store_options: StoreOptions
) -> None:
    killing = asyncio.create_task(_killed_at_random(served, store_options, random.Random(SEED)))

    await workload.run(OPERATIONS)
    last, killed_at_work = await killing
    try:
        await wait(served)
    finally:
        last.kill()

    assert killed_at_work == KILLS
    await compare_with_feed_model(workload)
    assert await buried(served) == []


async def test_handlers_that_fail_at_random_lose_and_double_nothing(served: Served, workload: FeedWorkload) -> None:
    rng = random.Random(SEED)
    handlers = [Failing(handler, rng) for handler in handlers_of(served)]

    async with pipeline(served, handlers):
        await workload.run(OPERATIONS)
        await wait(served)
    replay = Redrive(handlers_of(served), served.store, utc_now)
    letters = await buried(served)
    for letter in letters:
        assert await replay.replay(letter) is None
    # The effects of the letters come over the stream, too.
    async with pipeline(served):
        await wait(served)

    assert letters
    assert min(handler.failed for handler in handlers) > 5
    await compare_with_feed_model(workload)
    assert await buried(served) == []


async def test_two_concurrent_pipelines_and_authors_with_many_followers_reach_the_same_state(
    served: Served, workload: FeedWorkload
) -> None:
    """As if the consumer and a Lambda function read the same stream."""
    async with pipeline(served, handlers_of(served, FAN_OUT_BOUND)):
        async with second_reader(served, handlers_of(served, FAN_OUT_BOUND)):
            await workload.run(OPERATIONS)
        await wait(served)

    assert served.gateway.database is not None
    items = await items_of(served.gateway.database, FEED)
    assert [item for item in items if "merged_since" in item]
    await compare_with_feed_model(workload)
    assert await buried(served) == []


async def test_a_workload_may_have_few_users(served: Served, clock: Clock) -> None:
    for users in (1, 2):
        workload = FeedWorkload(served, clock, users=users, seed=SEED)
        await workload.enter()
        await workload.run(12)

        assert sum(workload.done.values()) == 12


class Failing:
    """A handler that fails at random, before or after its work, and always with some changes."""

    def __init__(self, handler: Handler, rng: random.Random) -> None:
        self.name = handler.name
        self.failed = 0
        self._handler = handler
        self._rng = rng

    async def handle(self, changes: Sequence[Change]) -> None:
        self._fail_at_random(changes)
        await self._handler.handle(changes)
        self._fail_at_random(changes)

    def _fail_at_random(self, changes: Sequence[Change]) -> None:
        is_bad = any(int(change.sequence) % BAD_EACH == 0 for change in changes) and self._rng.random() < 0.9
        if is_bad or self._rng.random() < FAILURES:
            self.failed += 1
            raise RuntimeError("by chance")


@asynccontextmanager
async def second_reader(served: Served, handlers: Sequence[Handler]) -> AsyncIterator[None]:
    """Read the whole stream a second time, without a lease, sometimes ahead and sometimes behind."""
    assert served.gateway.database is not None
    client, prefix = served.gateway.database.client, served.gateway.database.prefix
    batches = BatchProcessor(handlers, served.store, utc_now, StreamMetrics(), retries=AT_ONCE, outage=SOON)
    stream = await stream_of(client, FEED.name, prefix)
    (shard,) = await shards_of(client, stream)
    cursor = ShardCursor(client, stream, shard.id, None)
    rng = random.Random(SEED)
    ending = asyncio.Event()

    async def read() -> None:
        while True:
            page = await cursor.read(rng.randint(1, 100))
            if page.records:
                await batches.handle(FEED.name, page.records)
            elif ending.is_set():
                return
            await asyncio.sleep(0 if ending.is_set() else rng.choice((0, 0.02, 0.3)))

    reading = asyncio.create_task(read())
    try:
        yield
        ending.set()
        await reading
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def wait(served: Served) -> None:
    assert served.gateway.database is not None
    await pipeline_settled(served.gateway.database.client, served.store, served.gateway.database.prefix, PATIENCE)


async def _killed_at_random(
    served: Served, options: StoreOptions, rng: random.Random
) -> tuple[multiprocessing.process.BaseProcess, int]:
    """Kill one instance after another with SIGKILL once it reads the stream.

    Return the last one, and how many held the lease.
    """
    process = await _started(options)
    killed_at_work = 0
    for _ in range(KILLS):
        async with asyncio.timeout(50):
            while not await _holds_the_lease(served, process):  # noqa: ASYNC110 - it is over the wire
                await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0, BETWEEN_KILLS))
        killed_at_work += await _holds_the_lease(served, process)
        process.kill()
        process = await _started(options)
    return process, killed_at_work


async def _holds_the_lease(served: Served, process: multiprocessing.process.BaseProcess) -> bool:
    """Return whether the process holds the lease of the engine's only shard."""
    assert served.gateway.database is not None
    stream = await stream_of(served.gateway.database.client, FEED.name, served.gateway.database.prefix)
    owner = feed_process.instance_of(process.pid)
    return [
        lease.owner for lease in await Leases(served.store(), CONSUMER_TABLE, stream, "nobody", utc_now()).all()
    ] == [owner]


async def _started(options: StoreOptions) -> multiprocessing.process.BaseProcess:
    process = CONTEXT.Process(target=feed_process.run_feed_pipeline, args=(options.store, options.prefix), daemon=True)
    await asyncio.to_thread(process.start)
    return process
