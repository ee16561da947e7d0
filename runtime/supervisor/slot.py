"""The places of workers: in each there is one, whatever happens to those before."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from runtime.supervisor.worker import Worker
from server.shutdown import WORKER_SECONDS
from server.uvicorn import listen

# Workers have ended by then, or are killed.
LEAVE_SECONDS = WORKER_SECONDS + 0.5
# Before one that died is started again; a life of STEADY seconds makes it NONE again.
NONE, FIRST_DELAY, LONGEST_DELAY, STEADY = 0.0, 0.5, 30.0, 10.0

logger = logging.getLogger(__name__)


class Address:
    """Where a worker listens. The sockets stay when it ends: who waits there waits for the next.

    Linux spreads connections evenly over `shared` sockets of one address; of several processes on one socket whoever
    is first takes most. Elsewhere there are the `only` ones, for all workers.
    """

    def __init__(self, host: str, port: int, only: list[socket.socket] | None) -> None:
        self._host, self._port = host, port
        self._only = only
        self._sockets: list[socket.socket] = []

    def sockets(self) -> list[socket.socket]:
        """Raises `OSError`."""
        if self._only is not None:
            return self._only
        if not self._sockets:
            self._sockets = listen(self._host, self._port, shared=True)
        return self._sockets

    def close(self) -> None:
        """Nobody is to wait here: connections go to the others."""
        for listening in self._sockets:
            listening.close()
        self._sockets = []


class Slot:
    """The place of a worker: there is one in it, whatever happens to those before.

    `start` makes one, `address` is where it listens: without one it is the only one of its kind at any time.
    """

    def __init__(self, start: Callable[[], Awaitable[Worker]], address: Address | None) -> None:
        self.worker: Worker | None = None
        self._start = start
        self._address = address
        self._delay = NONE
        self._news = asyncio.Event()  # one of those who were here has ended
        self._changing = asyncio.Lock()  # a worker that dies while its successor begins would get another one

    async def fill(self) -> bool:
        """Begin. False when the worker did not come to be ready: why has been told."""
        async with self._changing:
            try:
                worker = self.worker = await self._begin()
            except OSError as problem:
                logger.error("No worker could be started (%s)", problem)
                return False
            return await worker.is_ready()

    async def _begin(self) -> Worker:
        worker = await self._start()
        worker.when_ended(self._news.set)
        return worker

    async def keep(self) -> None:
        """Start another whenever one dies, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                worker = await self._whoever()
            except OSError as problem:
                await self._pause(f"No worker could be started ({problem})", steady=False)
                continue
            began = loop.time()
            while self.worker is worker and worker.status is None:
                self._news.clear()
                await self._news.wait()
            if self.worker is worker and worker.status is not None:  # it was not replaced
                await self._pause(f"{worker.name} ended ({worker.end_reason})", steady=loop.time() - began > STEADY)

    async def _whoever(self) -> Worker:
        """Who is there, or a new one; one that hangs as it starts is killed. Raises `OSError`."""
        async with self._changing:
            if self.worker is None:
                self.worker = await self._begin()
                if not await self.worker.is_ready():
                    self.worker.kill()
            return self.worker

    async def _pause(self, ended: str, *, steady: bool) -> None:
        """There is nobody, for a while that grows where they do not live long."""
        self.worker = None
        self._delay = NONE if steady else min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)
        logger.warning("%s; another begins in %.1f s", ended, self._delay)
        if self._delay > FIRST_DELAY and self._address is not None:
            self._address.close()
        await asyncio.sleep(self._delay)

    async def renew(self) -> bool:
        """Put another in the worker's place. False when it did not come to be ready: then the old one stays."""
        async with self._changing:
            if self.worker is None:  # it has died, and another is about to begin
                return True
            if self._address is None:
                # Of its kind there is never more than one: `keep` starts the next once this one has ended.
                old, self.worker = self.worker, None
                await old.end(LEAVE_SECONDS)
                return True
            new = await self._successor(self.worker.name)
            if new is None:
                return False
            # The one before may have died meanwhile.
            before, self.worker = self.worker, new
        if before is not None:
            await before.end(LEAVE_SECONDS)
        return True

    async def _successor(self, name: str) -> Worker | None:
        """One that is ready; None when it did not come to be: why has been told."""
        try:
            new = await self._begin()
        except OSError as problem:
            logger.error("%s was not replaced: no process could be started (%s)", name, problem)
            return None
        if await new.is_ready():
            return new
        await new.end(0)
        logger.error("%s was not replaced: the new process did not come to be ready", name)
        return None
