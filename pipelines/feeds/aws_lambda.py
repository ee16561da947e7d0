"""The feed's pipeline as an AWS Lambda function: `pipelines.feeds.aws_lambda.handler`.

Its trigger is the stream of the table `feed`, with `ReportBatchItemFailures`. The environment configures it:
GATEWAY_STORE (aws), GATEWAY_TABLE_PREFIX, AWS_REGION and GATEWAY_FAN_OUT_BOUND.
"""

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from datastore.database import StoreOptions, open_database
from datastore.keyspace.feeds.table import FEED
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.consumer.aws_lambda import OUTAGE, LambdaHandler
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.metrics import StreamMetrics
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.feeds.handlers import feed_handlers

STORE_SECONDS = 60.0


def _now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def feed_batches() -> AsyncIterator[BatchProcessor]:
    """Open a batch processor with the feed's handlers, on the store that the environment names."""
    environment = os.environ
    options = StoreOptions(
        environment.get("GATEWAY_STORE", "aws"),
        prefix=environment.get("GATEWAY_TABLE_PREFIX", ""),
        region=environment.get("AWS_REGION"),
    )
    bound = int(environment.get("GATEWAY_FAN_OUT_BOUND", MAX_FOLLOWERS))
    async with open_database(options) as database:

        def open_store() -> Store:
            deadline = Deadline(STORE_SECONDS)
            return Store(
                database.client, prefix=options.prefix, deadline=deadline, token=lambda: str(uuid.uuid4()), now=_now
            )

        handlers = feed_handlers(open_store, _now, fan_out_bound=bound)
        yield BatchProcessor(handlers, open_store, _now, StreamMetrics(), outage=OUTAGE, forever=False)


handler = LambdaHandler(FEED.name, feed_batches)
