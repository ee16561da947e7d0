"""QUAKE-3: request logs are written behind the request: they neither delay nor fail it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes, RequestLog
from datastore.errors import DomainError
from datastore.session.metering import Deadline
from datastore.session.store import Store

QUEUE_SIZE = 1000
WRITERS = 4
WRITE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class RequestLogs:
    """A bounded queue with a few writers. Logs that the store is too slow for are dropped and counted."""

    def __init__(self, client: Client, *, prefix: str, now: Callable[[], datetime], token: Callable[[], str]) -> None:
        self._client = client
        self._prefix = prefix
        self._now = now
        self._token = token
        self._queue: asyncio.Queue[RequestLog] = asyncio.Queue(QUEUE_SIZE)
        self._writers: list[asyncio.Task[None]] = []
        self.dropped = 0

    def start(self) -> None:
        self._writers = [asyncio.create_task(self._write()) for _ in range(WRITERS)]

    async def stop(self) -> None:
        """Write what is queued, for a moment, then stop."""
        try:
            await asyncio.wait_for(self.drained(), WRITE_SECONDS / 2)
        except TimeoutError:
            logger.warning("%d request logs were not written before the stop", self._queue.qsize())
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)

    async def drained(self) -> None:
        """Return when all that was added has been written (or given up)."""
        await self._queue.join()

    def add(self, log: RequestLog) -> bool:
        """Whether it will be written."""
        try:
            self._queue.put_nowait(log)
            return True
        except asyncio.QueueFull:
            self.dropped += 1
            if self.dropped == 1 or self.dropped % 1000 == 0:
                logger.warning("The store is too slow for request logs: %d dropped so far", self.dropped)
            return False

    async def _write(self) -> None:
        while True:
            log = await self._queue.get()
            try:
                store = Store(self._client, prefix=self._prefix, deadline=Deadline(WRITE_SECONDS), token=self._token)
                await Earthquakes(store, self._now()).write_log(log)
            except DomainError as problem:
                logger.warning("A request log was not written: %s", problem)
            except Exception:
                logger.exception("A request log could not be written")
            finally:
                self._queue.task_done()
