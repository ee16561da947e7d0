"""Slots of workers: each keeps one worker running, with backoff between restarts."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from runtime.supervisor.worker import Worker
from server.shutdown import WORKER_SECONDS
from server.uvicorn import listen

# A worker that has not ended by then is killed.
LEAVE_SECONDS = WORKER_SECONDS + 0.5
# Seconds before a worker that ended is started again: none at first, then FIRST_DELAY, doubled up to LONGEST_DELAY. A
# worker that ran for longer than STEADY_SECONDS resets the delay.
FIRST_DELAY, LONGEST_DELAY, STEADY_SECONDS = 0.5, 30.0, 10.0

logger = logging.getLogger(__name__)


class Address:
    """The address of a slot's workers. Its sockets outlive a worker: connections in the backlog wait for the next.

    On Linux each slot has its own sockets with SO_REUSEPORT, over which the kernel spreads connections evenly. Of
    several processes on one socket, the first to accept would take most connections. Elsewhere all slots share the
    sockets `only`.
    """

    def __init__(self, host: str, port: int, only: list[socket.socket] | None) -> None:
        self._host, self._port = host, port
        self._only = only
        self._sockets: list[socket.socket] = []

    def sockets(self) -> list[socket.socket]:
        """Return the listening sockets, opened if necessary. Raise `OSError` if the address is taken."""
        if self._only is not None:
            return self._only
        if not self._sockets:
            self._sockets = listen(self._host, self._port, shared=True)
        return self._sockets

    def close(self) -> None:
        """Close the slot's own sockets, so that the kernel gives new connections to the other slots."""
        for listening in self._sockets:
            listening.close()
        self._sockets = []


class Slot:
    """One worker and its successors. `start` starts a worker on listening sockets.

    A worker for background jobs has no `address`. At most one such worker runs at any time.
    """

    def __init__(self, start: Callable[[list[socket.socket]], Awaitable[Worker]], address: Address | None) -> None:
        self.worker: Worker | None = None
        self._start = start
        self._address = address
        self._delay = 0.0
        self._has_ended = asyncio.Event()  # set when any worker of this slot ends
        # Without the lock, a worker that dies while its successor starts would get a second successor.
        self._changing = asyncio.Lock()

    async def fill(self) -> bool:
        """Start the first worker. Return whether it became ready; the reason of a failure has been logged."""
        async with self._changing:
            try:
                worker = self.worker = await self._start_worker()
            except OSError as problem:
                logger.error("No worker could be started (%s)", problem)
                return False
            return await worker.is_ready()

    async def _start_worker(self) -> Worker:
        worker = await self._start([] if self._address is None else self._address.sockets())
        worker.when_ended(self._has_ended.set)
        return worker

    async def keep(self) -> None:
        """Start a new worker whenever the current one has died. Never return."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                worker = await self._current_worker()
            except OSError as problem:
                await self._back_off(f"No worker could be started ({problem})", steady=False)
                continue
            began = loop.time()
            while self.worker is worker and worker.status is None:
                self._has_ended.clear()
                await self._has_ended.wait()
            if self.worker is worker and worker.status is not None:  # it was not replaced
                steady = loop.time() - began > STEADY_SECONDS
                await self._back_off(f"{worker.name} ended ({worker.end_reason})", steady=steady)

    async def _current_worker(self) -> Worker:
        """Return the current worker, or a new one. Kill a new worker that does not become ready.

        Raise `OSError` if no process can be started.
        """
        async with self._changing:
            if self.worker is None:
                self.worker = await self._start_worker()
                if not await self.worker.is_ready():
                    self.worker.kill()
            return self.worker

    async def _back_off(self, ended: str, *, steady: bool) -> None:
        """Empty the slot, and wait before the next start. The delay grows unless the worker was `steady`."""
        self.worker = None
        self._delay = 0.0 if steady else min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)
        logger.warning("%s; a replacement starts in %.1f s", ended, self._delay)
        if self._delay > FIRST_DELAY and self._address is not None:
            self._address.close()
        await asyncio.sleep(self._delay)

    async def replace(self) -> bool:
        """Start a successor, and end the current worker once the successor is ready.

        Return False, and keep the current worker, if the successor does not become ready.
        """
        async with self._changing:
            if self.worker is None:  # it has died, and `keep` is about to start the next
                return True
            if self._address is None:
                # At most one worker for jobs may run: `keep` starts the next once this one has ended.
                old, self.worker = self.worker, None
                await old.end(LEAVE_SECONDS)
                return True
            successor = await self._start_successor(self.worker.name)
            if successor is None:
                return False
            # `keep` may have emptied the slot while the successor started.
            previous, self.worker = self.worker, successor
        if previous is not None:
            await previous.end(LEAVE_SECONDS)
        return True

    async def _start_successor(self, name: str) -> Worker | None:
        """Return a new worker that is ready. Return None, and log the reason, if it does not become ready."""
        try:
            successor = await self._start_worker()
        except OSError as problem:
            logger.error("%s was not replaced: no process could be started (%s)", name, problem)
            return None
        if await successor.is_ready():
            return successor
        await successor.end(0)
        logger.error("%s was not replaced: the new process did not become ready", name)
        return None
