"""`serve --workers N`: the process that starts N others, each of which serves, and one for the work behind them.

It holds the sockets that they listen on, and runs the embedded engine. A worker is told on a line of its own (a pair of
sockets) that it is to leave, and tells there that it is ready; the end of the line means that its supervisor is gone.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from edge.draining import WORKER_SECONDS
from edge.server import end_process_in, listen
from runtime import Gateway, Part

# Set by a supervisor alone: no setting of users, whose names begin with GATEWAY_.
VARIABLE = "WORKER_OF_GATEWAY"
READY = b"ready\n"
# Workers have ended by then, or are killed; and what works behind them is given what is left.
LEAVE_SECONDS, ALL_SECONDS = WORKER_SECONDS + 0.5, 23.0
START_SECONDS = 60.0
# Before one that died is started again; a life of STEADY seconds makes it NONE again.
NONE, FIRST_DELAY, LONGEST_DELAY, STEADY = 0.0, 0.5, 30.0, 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is to do, on which descriptors. Workers that serve are numbered from 1; the other is 0."""

    part: Part
    number: int
    line: int
    listening: tuple[int, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """None for a process that is nobody's worker."""
        told = environment.get(VARIABLE)
        if told is None:
            return None
        given = json.loads(told)
        return cls(Part(given["part"]), given["number"], given["line"], tuple(given["listening"]))

    def sockets(self) -> list[socket.socket]:
        sockets = [socket.socket(fileno=descriptor) for descriptor in self.listening]
        for one in sockets:
            one.set_inheritable(False)  # an engine that this process starts would go on listening
        return sockets

    def open_line(self) -> socket.socket:
        line = socket.socket(fileno=self.line)
        line.set_inheritable(False)
        line.setblocking(False)
        return line


class Worker:
    """A process, as its supervisor sees it."""

    def __init__(self, part: Part, number: int, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self.part = part
        self.name = f"Worker {number}" if part is Part.SERVING else "The worker for jobs"
        self._process = process
        self._line = line
        self._ended = asyncio.create_task(process.wait())

    @classmethod
    async def start(
        cls, command: Sequence[str], part: Part, number: int, sockets: Sequence[socket.socket] = ()
    ) -> Self:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = tuple(one.fileno() for one in sockets)
        assignment = Assignment(part, number, theirs.fileno(), listening)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, VARIABLE: json.dumps(asdict(assignment))},
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *listening),
                # A terminal's signals are for the supervisor, which has the workers leave in good order.
                start_new_session=True,
            )
        return cls(part, number, process, ours)

    def when_ended(self, act: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: act())

    async def is_ready(self) -> bool:
        """Waits until it is; False if it ended before, or takes too long."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(START_SECONDS):
                return await asyncio.get_running_loop().sock_recv(self._line, len(READY)) == READY
        if self._process.returncode is None:
            logger.error("%s did not come to be ready in %.0f s", self.name, START_SECONDS)
        return False

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def end(self, seconds: float) -> None:
        """Have it leave; after so long it is killed."""
        self._line.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), seconds)
        self.kill()
        await self.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


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
        self._changing = asyncio.Lock()  # a worker that dies while its successor begins would get another one

    async def fill(self) -> bool:
        """Begin. False when the worker did not come to be ready: why has been told."""
        async with self._changing:
            try:
                worker = self.worker = await self._start()
            except OSError as problem:
                logger.error("No worker could be started (%s)", problem)
                return False
            return await worker.is_ready()

    async def keep(self) -> None:
        """Start another whenever one dies, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            began, ended = loop.time(), ""
            try:
                async with self._changing:
                    worker = self.worker = self.worker or await self._start()
            except OSError as problem:
                ended = f"No worker could be started ({problem})"
            else:
                ended = f"{worker.name} ended ({_told(await worker.wait())})"
                if self.worker is not worker:  # it was replaced
                    continue
            self.worker = None
            steady = loop.time() - began > STEADY
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
            new = await self._start()
        except OSError as problem:
            logger.error("%s was not replaced: no process could be started (%s)", name, problem)
            return None
        if await new.is_ready():
            return new
        await new.end(0)
        logger.error("%s was not replaced: the new process did not come to be ready", name)
        return None


def _told(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


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
        self._renewing: asyncio.Task[None] | None = None

    def _starter(self, number: int, address: Address) -> Callable[[], Awaitable[Worker]]:
        return lambda: self._start(Part.SERVING, number, address.sockets())

    def _start_jobs(self) -> Awaitable[Worker]:
        return self._start(Part.JOBS, 0, [])

    async def _start(self, part: Part, number: int, sockets: Sequence[socket.socket]) -> Worker:
        worker = await Worker.start(self._command, part, number, sockets)
        self._workers.add(worker)
        worker.when_ended(lambda: self._workers.discard(worker))
        return worker

    async def run(self, gateway: Gateway, on_started: Callable[[], Awaitable[None]]) -> bool:
        """Until SIGINT or SIGTERM, with the gateway's store open. False when a worker could not begin: it told why."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._renew)
        async with gateway.running(jobs=False):
            return await self._run(on_started)

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
            await over
            return True
        finally:
            await _cancelled(over, filling, self._renewing, *keeping)
            await self._end()

    def _stop(self, number: int) -> None:
        if self._over.is_set():
            for worker in self._workers:
                worker.kill()
            os._exit(128 + number)
        end_process_in()
        self._over.set()

    async def _end(self) -> None:
        """Those that serve first: they may have asked for work that is done behind them."""
        over = asyncio.get_running_loop().time() + ALL_SECONDS
        for part, seconds in ((Part.SERVING, LEAVE_SECONDS), (Part.JOBS, ALL_SECONDS)):
            left = min(seconds, over - asyncio.get_running_loop().time())
            await asyncio.gather(*[worker.end(left) for worker in self._workers if worker.part is part])

    def _renew(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_all())

    async def _renew_all(self) -> None:
        """One at a time, each once it is ready; where one is not, the others stay."""
        logger.info("All workers are replaced, one after another")
        for slot in self._slots:
            if not await slot.renew():
                return
        logger.info("All workers were replaced")


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
