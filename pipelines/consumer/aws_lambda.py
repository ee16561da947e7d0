"""A handler of a stream's records in AWS Lambda, for installations that run no consumer process.

The response names the first record that was not handled. Lambda delivers it again, with all later records. Configure
the function and its event source mapping as follows:

- `ReportBatchItemFailures`. https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
- A timeout of at least 30 seconds (the default is 3). With less, records become dead letters after fewer attempts.
- A batch size of 100 to 1000, without splitting on errors (`BisectBatchOnFunctionError`): the handler splits batches.
- Retries and the age of records unlimited (-1, the default): a record that Lambda drops has no dead letter.
- An event filter that drops the changes that the handlers write and skip: for the feed, keys that begin with
  `FEED#`, by `{"dynamodb": {"Keys": {"PK": {"S": [{"anything-but": {"prefix": "FEED#"}}]}}}}`.
- Permissions to read the stream and for the handlers: `gateway.py tables export --iam --role lambda-feed`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.failures import is_outage

# The maximum number of records in a batch. After a timeout Lambda delivers all records of the batch again.
BATCH_RECORDS = 100
MARGIN_SECONDS = 2.0
# The number of batches with the longest delays that must fit into the remaining time.
TIME_SHARES = 3
# The remaining time below which no further batch begins, since its retries would be too few.
MIN_BATCH_SECONDS = 1.0
# Lambda delivers the records again, so a long wait would only add cost.
OUTAGE = Backoff(initial=0.1, maximum=1.0, attempts=4)

logger = logging.getLogger(__name__)

LambdaResponse = dict[str, list[dict[str, str]]]


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


class LambdaHandler:
    """The Lambda handler for the stream of a table. It keeps the batch processor open between invocations."""

    def __init__(self, table: str, open_batches: Callable[[], AbstractAsyncContextManager[BatchProcessor]]) -> None:
        self._table = table
        self._open_batches = open_batches
        self._runner: asyncio.Runner | None = None
        self._opened: AsyncExitStack | None = None
        self._batches: BatchProcessor | None = None

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> LambdaResponse:
        """Handle the event's records. The response names the first record to deliver again, if any."""
        if self._runner is None:
            self._runner = asyncio.Runner()  # kept, since connections belong to its event loop
        seconds = context.get_remaining_time_in_millis() / 1000
        seconds -= min(MARGIN_SECONDS, seconds / TIME_SHARES)
        unhandled = self._runner.run(self._first_unhandled(event["Records"], seconds))
        failures = [] if unhandled is None else [{"itemIdentifier": unhandled["dynamodb"]["SequenceNumber"]}]
        return {"batchItemFailures": failures}

    def close(self) -> None:
        """Close the batch processor. Lambda ends a process without calling this; other callers call it."""
        if self._runner is not None:
            if self._opened is not None:
                self._runner.run(self._opened.aclose())
            self._runner.close()
        self._runner = self._opened = self._batches = None

    async def _first_unhandled(self, records: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
        """Handle the records. Return the first record that may be unhandled, or None.

        The next invocation begins with that record. The first batch therefore has as many records as seconds remain,
        and each further batch twice as many.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        done, size = 0, min(BATCH_RECORDS, max(1, int(seconds)))
        try:
            async with asyncio.timeout_at(until):
                batches = await self._open()
                while done < len(records):
                    remaining = until - loop.time()
                    if done and remaining < MIN_BATCH_SECONDS:
                        raise TimeoutError
                    max_delay_seconds = min(batches.max_delay_seconds, remaining / TIME_SHARES)
                    await batches.handle(self._table, records[done : done + size], max_delay_seconds)
                    done, size = done + size, min(BATCH_RECORDS, 2 * size)
        except TimeoutError:
            logger.warning("Time ran out after %d of %d records; the others are delivered again", done, len(records))
        except Exception as problem:
            if not is_outage(problem):
                raise
            logger.warning(
                "The store failed after %d of %d records; the others are delivered again: %s",
                done,
                len(records),
                problem,
            )
        return records[done] if done < len(records) else None

    async def _open(self) -> BatchProcessor:
        if self._batches is None:
            self._opened = AsyncExitStack()
            self._batches = await self._opened.enter_async_context(self._open_batches())
        return self._batches
