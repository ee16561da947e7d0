"""A process that serves, or does what is behind it, as its supervisor sees it."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Self

from runtime import Part
from workers.assignment import READY, VARIABLE, Assignment

START_SECONDS = 60.0

logger = logging.getLogger(__name__)


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
    def status(self) -> int | None:
        """None while it runs; negative is the signal that killed it."""
        return self._ended.result() if self._ended.done() else None

    def when_ended(self, act: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: act())

    async def is_ready(self) -> bool:
        """Waits until it is; False if it ended before, or takes too long."""
        try:
            async with asyncio.timeout(START_SECONDS):
                return await asyncio.get_running_loop().sock_recv(self._line, len(READY)) == READY
        except TimeoutError:
            logger.error("%s did not come to be ready in %.0f s", self.name, START_SECONDS)
        except OSError:
            pass  # it has ended
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
