"""A worker process as its supervisor sees it: start, readiness, heartbeats, end.

A worker whose heartbeats stop is killed here (`Worker._listen`). Its slot then starts another.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Self

from runtime.container import ProcessPart
from runtime.supervisor import heartbeats
from runtime.supervisor.worker_env import READY, VARIABLE, Assignment

# A worker that is not ready by then has failed to start.
START_SECONDS = 60.0
# The time that a hung worker has to write its stacks to standard error. A process stopped by SIGSTOP writes none.
STACKS_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Worker:
    """A worker process, with the supervisor's end of the channel to it."""

    def __init__(
        self, part: ProcessPart, number: int, process: asyncio.subprocess.Process, channel: socket.socket
    ) -> None:
        self.part = part
        self.name = f"Worker {number}" if part is ProcessPart.SERVING else "The worker for jobs"
        self._process = process
        self._channel = channel
        self._ended = asyncio.create_task(process.wait())
        self._listening: asyncio.Task[None] | None = None
        self._was_silent = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        part: ProcessPart,
        number: int,
        sockets: Sequence[socket.socket] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """Start `command` as a worker that listens on `sockets`. Raise `OSError` if it cannot be started.

        `options` are those of `serve`, for JSON.
        """
        channel, workers_end = socket.socketpair()
        channel.setblocking(False)
        listening = tuple(listener.fileno() for listener in sockets)
        assignment = Assignment(part, number, workers_end.fileno(), listening, dict(options))
        try:
            with workers_end:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env={**os.environ, VARIABLE: assignment.as_text()},
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(workers_end.fileno(), *listening),
                    # Only the supervisor receives the terminal's signals. It then stops the workers in order.
                    start_new_session=True,
                )
        except BaseException:
            channel.close()
            raise
        return cls(part, number, process, channel)

    @property
    def end_reason(self) -> str:
        """The reason why the process has ended, for the log."""
        if self._was_silent:
            return "killed by the supervisor because its event loop did not run"
        status = self.status or 0
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs, and -N if signal N killed it."""
        return self._ended.result() if self._ended.done() else None

    def when_ended(self, act: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: act())

    async def is_ready(self) -> bool:
        """Wait until the worker is ready, and expect heartbeats from then on.

        Return False if it ends before, or is not ready within `START_SECONDS`.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(self._channel, len(READY)) != READY:
                    return False
        except TimeoutError:
            logger.error("%s was not ready within %.0f s", self.name, START_SECONDS)
            return False
        except OSError:
            return False  # it has ended
        self._listening = asyncio.create_task(self._listen())
        self._ended.add_done_callback(lambda _: self._stop_listening())
        return True

    async def _listen(self) -> None:
        """Kill the process once its heartbeats stop."""
        await heartbeats.silence(self._channel)
        self._was_silent = True
        logger.error(
            "%s (process %d) sent no heartbeat for %g s: the supervisor makes it write its stacks, and kills it",
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
        self._channel.close()

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit status."""
        return await asyncio.shield(self._ended)

    async def end(self, seconds: float) -> None:
        """Stop the worker. Kill it if it runs after `seconds`, or earlier if its heartbeats stop."""
        with suppress(OSError):  # it may have ended
            self._channel.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), seconds)
        self.kill()
        await self.wait()
        self._channel.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
