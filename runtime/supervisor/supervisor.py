"""The process that starts the workers, replaces them, and has them leave."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from runtime.container import Gateway, ProcessPart
from runtime.supervisor.slot import LEAVE_SECONDS, Address, Slot
from runtime.supervisor.worker import Worker
from server.uvicorn import end_process_in, listen

# From the signal: what works behind those who serve is given what they have left of it.
ALL_SECONDS = 23.0

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs `command` so many times, on the address that is to be served, and once for the work behind it."""

    def __init__(self, command: Sequence[str], workers: int, host: str, port: int) -> None:
        """Raises `OSError` when the address is taken."""
        self._command = command
        self._workers: set[Worker] = set()
        addresses = _addresses(host, port, workers)
        self._slots = [Slot(self._starter(number, one), one) for number, one in enumerate(addresses, 1)]
        self._slots.append(Slot(self._start_jobs, None))
        self._over = asyncio.Event()
        self._opening: asyncio.Task[Any] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_to_renew = self._is_leaving = False
        # Who is started with `nohup` has SIGHUP ignored, and is to outlive the terminal.
        self._needs_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def _starter(self, number: int, address: Address) -> Callable[[], Awaitable[Worker]]:
        return lambda: self._start(ProcessPart.SERVING, number, address.sockets())

    def _start_jobs(self) -> Awaitable[Worker]:
        return self._start(ProcessPart.JOBS, 0, [])

    async def _start(self, part: ProcessPart, number: int, sockets: Sequence[socket.socket]) -> Worker:
        worker = await Worker.start(self._command, part, number, sockets)
        self._workers.add(worker)
        worker.when_ended(lambda: self._workers.discard(worker))
        return worker

    async def run(self, gateway: Gateway, on_started: Callable[[], Awaitable[None]]) -> bool:
        """Until SIGINT or SIGTERM, with the gateway's store open. False when a worker could not begin: it told why."""
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
        over = asyncio.create_task(self._over.wait())
        filling = asyncio.gather(*[slot.fill() for slot in self._slots])
        keeping: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait((filling, over), return_when=asyncio.FIRST_COMPLETED)
            if not filling.done():
                return True
            if not all(filling.result()):
                return False
            keeping = [asyncio.create_task(slot.keep()) for slot in self._slots]
            await on_started()
            failed, _ = await asyncio.wait((over, *keeping), return_when=asyncio.FIRST_COMPLETED)
            for task in failed:
                task.result()  # nobody would be kept any more, in silence
            return True
        finally:
            self._is_leaving = True
            await _cancelled(over, filling, self._renewing, *keeping)
            await self._end()

    def _stop(self, number: int) -> None:
        if self._over.is_set():
            for worker in self._workers:
                worker.kill()
            os._exit(128 + number)
        end_process_in()
        self._is_leaving = True
        self._over.set()
        if self._opening is not None:
            self._opening.cancel()

    async def _end(self) -> None:
        """Those that serve first: they may have asked for work that is done behind them."""
        over = asyncio.get_running_loop().time() + ALL_SECONDS
        for part, seconds in ((ProcessPart.SERVING, LEAVE_SECONDS), (ProcessPart.JOBS, ALL_SECONDS)):
            left = min(seconds, over - asyncio.get_running_loop().time())
            await asyncio.gather(*[worker.end(left) for worker in self._workers if worker.part is part])

    def _hang_up(self) -> None:
        """SIGHUP: others are to take the workers' places, or the terminal has gone. Then a shell often sends two."""
        if self._is_leaving:
            return
        if self._needs_terminal and not has_terminal():
            self._stop(signal.SIGHUP)
            return
        self._is_to_renew = True
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
            self._renewing.add_done_callback(_tell_failure)

    async def _renew(self) -> None:
        """Once more where it is asked for meanwhile: those who began before may have older code."""
        while self._is_to_renew:
            self._is_to_renew = False
            logger.info("All workers are replaced, one after another")
            if await self._renew_all():
                logger.info("All workers were replaced")

    async def _renew_all(self) -> bool:
        """One at a time, each once it is ready; where one is not, the others stay."""
        for slot in self._slots:
            if not await slot.renew():
                return False
        return True


def has_terminal() -> bool:
    """Whether there is a terminal whose signals this process is sent; none once it has been closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("Not all workers were replaced", exc_info=task.exception())


async def _cancelled(*tasks: asyncio.Future[Any] | None) -> None:
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    await asyncio.gather(*there, return_exceptions=True)


def _addresses(host: str, port: int, workers: int) -> list[Address]:
    """One for each worker. Raises `OSError` for what is taken: sockets that are shared would not tell."""
    first = listen(host, port)
    if not sys.platform.startswith("linux"):
        return [Address(host, port, first)] * workers
    for listening in first:
        listening.close()
    addresses = [Address(host, port, None) for _ in range(workers)]
    for address in addresses:
        address.sockets()
    return addresses
