"""The supervisor process: it starts the workers, replaces them at SIGHUP, and stops them."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from datastore.primitives.tasks import cancel
from runtime.container import Gateway, ProcessPart
from runtime.supervisor.slot import LEAVE_SECONDS, Address, Slot
from runtime.supervisor.worker import Worker
from server.uvicorn import end_process_in, listen

# From the signal to the end of all workers. The worker for jobs gets what the serving workers have left of it.
ALL_SECONDS = 23.0

logger = logging.getLogger(__name__)


class Supervisor:
    """A runner of `command` in `workers` serving processes on one address, and in one process for background jobs."""

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        host: str,
        port: int,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Raise `OSError` if the address is taken. `options` are those of `serve` for the workers, for JSON."""
        self._command = command
        self._options = options
        self._workers: set[Worker] = set()
        addresses = _addresses(host, port, workers)
        serving = [partial(self._start, ProcessPart.SERVING, number) for number in range(1, workers + 1)]
        self._slots = [Slot(start, address) for start, address in zip(serving, addresses, strict=True)]
        self._slots.append(Slot(partial(self._start, ProcessPart.JOBS, 0), None))
        self._stopped = asyncio.Event()
        self._opening: asyncio.Task[Any] | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._is_to_replace = self._is_leaving = False
        # `nohup` ignores SIGHUP for its command, which is to outlive the terminal.
        self._needs_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    async def _start(self, part: ProcessPart, number: int, sockets: Sequence[socket.socket]) -> Worker:
        worker = await Worker.start(self._command, part, number, sockets, self._options)
        self._workers.add(worker)
        worker.when_ended(lambda: self._workers.discard(worker))
        return worker

    async def run(self, gateway: Gateway, on_started: Callable[[], Awaitable[None]]) -> bool:
        """Open the gateway's store, and supervise the workers until SIGINT or SIGTERM.

        Call `on_started` when all workers are ready. Return False if one does not become ready at the start; the
        reason has been logged.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._opening = asyncio.current_task()
        with suppress(asyncio.CancelledError):
            async with gateway.running(jobs=False):
                self._opening = None
                return await self._run(on_started)
        return True

    async def _run(self, on_started: Callable[[], Awaitable[None]]) -> bool:
        stopped = asyncio.create_task(self._stopped.wait())
        filling = asyncio.gather(*[slot.fill() for slot in self._slots])
        keeping: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait((filling, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not filling.done():
                return True
            if not all(filling.result()):
                return False
            keeping = [asyncio.create_task(slot.keep()) for slot in self._slots]
            await on_started()
            done, _ = await asyncio.wait((stopped, *keeping), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises the error of a slot, whose worker would no longer be restarted
            return True
        finally:
            self._is_leaving = True
            await cancel(stopped, filling, self._replacing, *keeping)
            await self._end_workers()

    def _stop(self, number: int) -> None:
        """Begin to stop; at a second signal, kill the workers and exit at once."""
        if self._stopped.is_set():
            for worker in self._workers:
                worker.kill()
            os._exit(128 + number)
        end_process_in()
        self._is_leaving = True
        self._stopped.set()
        if self._opening is not None:
            self._opening.cancel()

    async def _end_workers(self) -> None:
        """End the serving workers before the worker for jobs, which may still do work for them."""
        loop = asyncio.get_running_loop()
        end = loop.time() + ALL_SECONDS
        for part, seconds in ((ProcessPart.SERVING, LEAVE_SECONDS), (ProcessPart.JOBS, ALL_SECONDS)):
            left = min(seconds, end - loop.time())
            await asyncio.gather(*[worker.end(left) for worker in self._workers if worker.part is part])

    def _hang_up(self) -> None:
        """Handle SIGHUP: stop if the terminal has been closed, else replace all workers.

        A shell whose terminal closes often sends SIGHUP twice. The second is ignored.
        """
        if self._is_leaving:
            return
        if self._needs_terminal and not has_terminal():
            self._stop(signal.SIGHUP)
            return
        self._is_to_replace = True
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._replace_workers())
            self._replacing.add_done_callback(_log_failure)

    async def _replace_workers(self) -> None:
        """Replace all workers. Repeat after a SIGHUP in the meantime: workers started before it may run older code."""
        while self._is_to_replace:
            self._is_to_replace = False
            logger.info("All workers are replaced, one after another")
            if await self._replace_each():
                logger.info("All workers were replaced")

    async def _replace_each(self) -> bool:
        """Replace one worker after another. Stop and return False if a successor does not become ready."""
        for slot in self._slots:
            if not await slot.replace():
                return False
        return True


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal. It has none after the terminal was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("Not all workers were replaced", exc_info=task.exception())


def _addresses(host: str, port: int, workers: int) -> list[Address]:
    """Return an address for each worker. Raise `OSError` if it is taken.

    The check opens sockets without SO_REUSEPORT. With it, another gateway of the same user would go unnoticed.
    """
    first = listen(host, port)
    if not sys.platform.startswith("linux"):
        return [Address(host, port, first)] * workers
    for listening in first:
        listening.close()
    addresses = [Address(host, port, None) for _ in range(workers)]
    for address in addresses:
        address.sockets()
    return addresses
