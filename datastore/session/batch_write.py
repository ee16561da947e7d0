"""BatchWriteItem: any number of puts and deletes, 25 per call. Unprocessed requests are retried.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.primitives.tasks import gather_all
from datastore.session.metering import Deadline

BATCH_WRITES = 25
CONCURRENT_BATCHES = 4
UNPROCESSED = Backoff(initial=0.05, maximum=1.0, attempts=10)

Call = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


async def write_batches(call: Call, deadline: Deadline, table: str, requests: Sequence[Mapping[str, Any]]) -> None:
    """Send the write requests of one table. No call is in flight when it returns or raises.

    Raises `Throttled` when some requests stay unprocessed. The others are written.
    """
    slots = asyncio.Semaphore(CONCURRENT_BATCHES)

    async def write(batch: Sequence[Mapping[str, Any]]) -> int:
        async with slots:
            return await _write(call, deadline, table, batch)

    batches = [requests[start : start + BATCH_WRITES] for start in range(0, len(requests), BATCH_WRITES)]
    unwritten = sum(await gather_all([write(batch) for batch in batches]))
    if unwritten:
        raise Throttled(
            f"The store is busy: {unwritten} of {len(requests)} items were not written; try again in a moment."
        )


async def _write(call: Call, deadline: Deadline, table: str, batch: Sequence[Mapping[str, Any]]) -> int:
    """Write a batch. Return the number of requests that stay unprocessed."""
    delays = UNPROCESSED.delays(random.random)
    while batch:
        answer = await call("BatchWriteItem", {"RequestItems": {table: batch}, "ReturnConsumedCapacity": "TOTAL"})
        batch = (answer.get("UnprocessedItems") or {}).get(table, ())
        delay = next(delays, None)
        if batch and (delay is None or delay >= deadline.remaining()):
            return len(batch)
        if batch:
            await asyncio.sleep(delay or 0)
    return 0
