"""One life of the embedded engine: a child process of ours, or one that was left behind and adopted."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

PATIENCE = 20.0  # seconds for an engine to get ready
GRACE = 3.0  # seconds from SIGTERM to SIGKILL: with a half-sent request open, SIGTERM alone never ends the engine
POLL = 0.1
PR_SET_PDEATHSIG = 1
LOCAL = "127.0.0.1"
# Each write to a table with a stream asks for the table's greatest sequence number, in just these words. Without an
# index the engine reads all records there have ever been: 5,000 puts behind 15,000 records take 14 s instead of 1 s.
STREAM_INDEX = (
    "CREATE INDEX IF NOT EXISTS gateway_stream_records"
    " ON _stream_records (table_name, CAST(sequence_number AS INTEGER))"
)

logger = logging.getLogger(__name__)


class EngineFailed(Exception):
    """The engine did not start, or its owner's does not answer; the message is one line for people."""


class Child:
    """One life of the engine, as our child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._output = b""

    @classmethod
    async def start(cls, binary: Path, port: int, database: Path | None, host: str = LOCAL) -> Self:
        """Returns once it answers. Raises EngineFailed with what it said."""
        arguments = ["serve", "--host", host, "--port", str(port)]
        arguments += [] if database is None else ["--db-path", str(database)]
        try:
            # Its own session: Ctrl-C at the terminal must not end the engine before the gateway has drained.
            process = await asyncio.create_subprocess_exec(
                binary,
                *arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_dying_with_parent(),
            )
        except OSError as error:
            raise EngineFailed(f"The embedded engine, {binary}, cannot be run: {error.strerror}.") from error
        child = cls(process)
        try:
            await child._ready(database)
            if database is not None:
                await asyncio.to_thread(index_stream, database)
        except BaseException:
            await child.stop()
            raise
        return child

    async def _ready(self, database: Path | None) -> None:
        where = "in memory" if database is None else f"on {database}"
        try:
            # It says so once it listens. A probe could be answered by somebody else on that port.
            async with asyncio.timeout(PATIENCE):
                while b"listening on" not in self._output:
                    if not await self._read():
                        raise EngineFailed(f"The embedded engine did not start {where}: {await self.wait()}")
        except TimeoutError:
            raise EngineFailed(f"The embedded engine did not start {where}: not ready in {PATIENCE:.0f} s.") from None

    async def _read(self) -> bool:
        """False at the end of the output. Its last part is kept: the reason, should the engine fail."""
        assert self._process.stdout is not None
        chunk = await self._process.stdout.read(4096)
        self._output = (self._output + chunk)[-2000:]
        return bool(chunk)

    async def wait(self) -> str:
        """Returns when the engine has ended: why, in one line."""
        while await self._read():
            pass
        status = await self._process.wait()
        lines = [line.strip() for line in self._output.decode(errors="replace").splitlines()]
        said = "; ".join(line.removeprefix("error: ") for line in lines if line and "listening on" not in line)
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return said[-400:] or ended

    async def stop(self) -> None:
        try:
            with suppress(ProcessLookupError, TimeoutError):
                self._process.terminate()
                await asyncio.wait_for(self.wait(), GRACE)
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self.wait()


def index_stream(database: Path) -> None:
    """Give the engine's database the index that keeps its writes quick. Without it all works, only slower."""
    try:
        with closing(sqlite3.connect(database, timeout=GRACE)) as connection:
            connection.execute(STREAM_INDEX)
            connection.commit()
    except sqlite3.Error as problem:
        logger.warning("The embedded engine's stream stays without its index; writes slow down with time: %s", problem)


class Adopted:
    """An engine that outlived its owner, known by what that had told."""

    def __init__(self, endpoint: str, pid: int, database: Path) -> None:
        self.endpoint = endpoint
        self.pid = pid
        self._database = database

    async def runs(self) -> bool:
        """Whether the process is an engine on our database: by now the id may be another process's."""
        command = ("ps", "-ww", "-o", "command=", "-p", str(self.pid))
        with suppress(OSError):
            ps = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            return os.fsencode(self._database) in (await ps.communicate())[0]
        return False

    async def wait(self) -> str:
        while await answers(self.endpoint):  # noqa: ASYNC110 - another process's engine tells no event
            await asyncio.sleep(POLL)
        return "it no longer answers"

    async def stop(self) -> None:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 2 * GRACE and await self.runs():
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM if passed < GRACE else signal.SIGKILL)
            await asyncio.sleep(POLL)


def _dying_with_parent() -> Callable[[], None] | None:
    """What a child runs on Linux before it becomes the engine: the kernel then kills it with the thread that began it.

    The library is loaded here, so that little is left to do between fork and exec.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel


async def answers(endpoint: str) -> bool:
    """Whether a dynoxide answers there."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(LOCAL, urlsplit(endpoint).port or 0)
            try:
                writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b"server: dynoxide" in (await reader.readuntil(b"\r\n\r\n")).lower()
            finally:
                writer.close()
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCAL, port))
        except OSError:
            return False
    return True
