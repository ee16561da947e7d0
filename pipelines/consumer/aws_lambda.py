"""A stream's records as AWS Lambda delivers them, for whoever runs no consumer of their own.

What was not handled is told, and comes again. How the function and its event source mapping have to be set up:

- `ReportBatchItemFailures`. https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
- A time-out of at least 30 seconds (the default is 3). With less, what fails is buried after fewer tries.
- A batch size of 100 to 1000; no splitting of batches on errors (`BisectBatchOnFunctionError`): they are split here.
- Retries and the age of records unlimited (-1, the default): what is given up by Lambda has no dead letter.
- An event filter that leaves out what the handlers write themselves and pass over: for the feed, keys that begin with
  `FEED#`, by `{"dynamodb": {"Keys": {"PK": {"S": [{"anything-but": {"prefix": "FEED#"}}]}}}}`.
- Rights to read the stream, and to do what the handlers do: `gateway.py tables export --iam --role lambda-feed`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.failures import is_outage

# The most records that are handled together: when time runs out, as many may come again though some were handled.
PIECE = 100
MARGIN_SECONDS = 2.0
# The time that is left is for so many pieces that wait for something as long as they may.
SHARES = 3
# With less time no further piece is begun, lest what fails in it is buried early.
LEAST_SECONDS = 1.0
# Lambda brings the records again by itself: a long wait would only cost.
OUTAGE = Backoff(initial=0.1, maximum=1.0, attempts=4)

logger = logging.getLogger(__name__)

Answer = dict[str, list[dict[str, str]]]


class LambdaContext(Protocol):
    """What is needed of the context that Lambda gives."""

    def get_remaining_time_in_millis(self) -> int: ...


class LambdaHandler:
    """Lambda's handler for the stream of a table. What `open_batches` opens is kept between invocations."""

    def __init__(self, table: str, open_batches: Callable[[], AbstractAsyncContextManager[BatchProcessor]]) -> None:
        self._table = table
        self._open_batches = open_batches
        self._runner: asyncio.Runner | None = None
        self._opened: AsyncExitStack | None = None
        self._batches: BatchProcessor | None = None

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> Answer:
        """Handle the event's records; the answer names the first that shall come again, with all after it."""
        if self._runner is None:
            self._runner = asyncio.Runner()  # connections belong to it
        seconds = context.get_remaining_time_in_millis() / 1000
        seconds -= min(MARGIN_SECONDS, seconds / SHARES)
        left = self._runner.run(self._first_left(event["Records"], seconds))
        failures = [] if left is None else [{"itemIdentifier": left["dynamodb"]["SequenceNumber"]}]
        return {"batchItemFailures": failures}

    def close(self) -> None:
        """Close what is kept. Lambda never tells when a process ends; whoever else calls the handler can."""
        if self._runner is not None:
            if self._opened is not None:
                self._runner.run(self._opened.aclose())
            self._runner.close()
        self._runner = self._opened = self._batches = None

    async def _first_left(self, records: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
        """Handle the records; the first that is not known to be handled, if there is one.

        Nothing is remembered until the next invocation but what is done, or buried, before the first that is left. So
        the first piece has as many records as seconds are left, and the next ones more.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        done, piece = 0, min(PIECE, max(1, int(seconds)))
        try:
            async with asyncio.timeout_at(until):
                batches = await self._open()
                while done < len(records):
                    left = until - loop.time()
                    if done and left < LEAST_SECONDS:
                        raise TimeoutError
                    patience = min(batches.patience, left / SHARES)
                    await batches.handle(self._table, records[done : done + piece], patience)
                    done, piece = done + piece, min(PIECE, 2 * piece)
        except TimeoutError:
            logger.warning("The time is up after %d of %d records; the others come again", done, len(records))
        except Exception as problem:
            if not is_outage(problem):
                raise
            logger.warning("The store is out of order after %d of %d records: %s", done, len(records), problem)
        return records[done] if done < len(records) else None

    async def _open(self) -> BatchProcessor:
        if self._batches is None:
            self._opened = AsyncExitStack()
            self._batches = await self._opened.enter_async_context(self._open_batches())
        return self._batches
