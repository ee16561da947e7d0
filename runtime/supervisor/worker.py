"""A process that serves, or does what is behind it, as its supervisor sees it."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Self

from runtime.container import ProcessPart
from runtime.supervisor import heartbeats
from runtime.supervisor.worker_env import READY, VARIABLE, Assignment

START_SECONDS = 60.0
# What a worker has to write its stacks to standard error. One that is stopped writes none.
STACKS_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Worker:
    """A process, as its supervisor sees it."""

    def __init__(
        self, part: ProcessPart, number: int, process: asyncio.subprocess.Process, line: socket.socket
    ) -> None:
        self.part = part
        self.name = f"Worker {number}" if part is ProcessPart.SERVING else "The worker for jobs"
        self._process = process
        self._line = line
        self._ended = asyncio.create_task(process.wait())
        self._listening: asyncio.Task[None] | None = None
        self._was_silent = False

    @classmethod
    async def start(
        cls, command: Sequence[str], part: ProcessPart, number: int, sockets: Sequence[socket.socket] = ()
    ) -> Self:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = tuple(one.fileno() for one in sockets)
        assignment = Assignment(part, number, theirs.fileno(), listening)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env={**os.environ, VARIABLE: json.dumps(asdict(assignment))},
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *listening),
                    # A terminal's signals are for the supervisor, which has the workers leave in good order.
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return cls(part, number, process, ours)

    @property
    def end_reason(self) -> str:
        """Why it has ended, as a log line says it."""
        if self._was_silent:
            return "killed by the supervisor because its event loop did not run"
        status = self.status or 0
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    @property
    def status(self) -> int | None:
        """None while it runs; negative is the signal that killed it."""
        return self._ended.result() if self._ended.done() else None

    def when_ended(self, act: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: act())

    async def is_ready(self) -> bool:
        """Wait until it is; False if it ended before, or takes too long. From then on it must send heartbeats."""
        try:
            async with asyncio.timeout(START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(self._line, len(READY)) != READY:
                    return False
        except TimeoutError:
            logger.error("%s did not come to be ready in %.0f s", self.name, START_SECONDS)
            return False
        except OSError:
            return False  # it has ended
        self._listening = asyncio.create_task(self._listen())
        self._ended.add_done_callback(lambda _: self._stop_listening())
        return True

    async def _listen(self) -> None:
        """Kill the process once its heartbeats stop."""
        await heartbeats.silence(self._line)
        self._was_silent = True
        logger.error(
            "%s (process %d) sent no heartbeat for %g s: the supervisor has it write its stacks, and kills it",
            self.name,
            self._process.pid,
            heartbeats.SILENT_SECONDS,
        )
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        await asyncio.sleep(STACKS_SECONDS)
        self.kill()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._line.close()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def end(self, seconds: float) -> None:
        """Have it leave; after so long it is killed, and before if its heartbeats stop."""
        with suppress(OSError):  # it may have ended
            self._line.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), seconds)
        self.kill()
        await self.wait()
        self._line.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
