"""The feed's pipeline: the consumer of the feed's stream with all its handlers."""

from collections.abc import Callable, Sequence
from datetime import datetime

from datastore.change_streams.shards.shard_reader import Wire
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.feeds.table import FEED
from datastore.session.store import Store
from pipelines.consumer.batches import RETRIES, BatchProcessor
from pipelines.consumer.consumer import Consumer
from pipelines.consumer.handlers import Handler
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.feeds.handlers import feed_handlers


class FeedPipeline:
    """One instance of the consumer. Any number may run on the same tables, each with a unique `instance_id`.

    `open_store` opens a store for each piece of work. `handlers` replaces the handlers of the feed.
    """

    def __init__(
        self,
        wire: Wire,
        prefix: str,
        open_store: Callable[[], Store],
        *,
        instance_id: str,
        now: Callable[[], datetime],
        fan_out_bound: int = MAX_FOLLOWERS,
        handlers: Sequence[Handler] | None = None,
        pace: ConsumerIntervals = ConsumerIntervals(),  # noqa: B008 - frozen
        retries: Backoff = RETRIES,
        metrics: StreamMetrics | None = None,
    ) -> None:
        self.metrics = metrics or StreamMetrics()
        if handlers is None:
            handlers = feed_handlers(open_store, now, fan_out_bound=fan_out_bound)
        batches = BatchProcessor(handlers, open_store, now, self.metrics, retries=retries, outage=pace.outage)
        self.consumer = Consumer(wire, FEED, prefix, batches, open_store, instance_id, now, self.metrics, pace=pace)

    async def run(self) -> None:
        """Run until cancelled, then finish the current batches and release the leases."""
        await self.consumer.run()
