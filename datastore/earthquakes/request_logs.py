"""The background writer of request logs (QUAKE-3). A log neither delays nor fails its request."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes, RequestLog
from datastore.errors import DomainError
from datastore.primitives.tasks import cancel
from datastore.session.metering import Deadline
from datastore.session.store import Store

QUEUE_SIZE = 1000
WRITERS = 4
WRITE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class RequestLogs:
    """A bounded queue of logs with a few writers. While the queue is full, logs are dropped and counted."""

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
        """Write the queued logs for up to `WRITE_SECONDS` / 2, then stop."""
        try:
            await asyncio.wait_for(self.drained(), WRITE_SECONDS / 2)
        except TimeoutError:
            logger.warning("%d request logs were not written before the stop", self._queue.qsize())
        await cancel(*self._writers)

    async def drained(self) -> None:
        """Wait until each queued log has been written or has failed."""
        await self._queue.join()

    def add(self, log: RequestLog) -> bool:
        """Enqueue a log. Return False if the queue is full."""
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
                deadline = Deadline(WRITE_SECONDS)
                store = Store(self._client, prefix=self._prefix, deadline=deadline, token=self._token, now=self._now)
                await Earthquakes(store, self._now()).write_log(log)
            except DomainError as problem:
                logger.warning("A request log was not written: %s", problem)
            except Exception:
                logger.exception("A request log could not be written")
            finally:
                self._queue.task_done()
