"""One life of the embedded engine as a child process, and the end of one that outlived its owner."""

import asyncio
import ctypes
import logging
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from datastore.engine.access_key import bearing
from datastore.engine.byte_relay import ByteRelay
from datastore.engine.listener import EngineListener
from datastore.engine.programs import EngineProgram
from datastore.engine.seccomp import Filter
from datastore.private_files import OTHERS

PATIENCE = 20.0  # seconds for an engine to get ready
GRACE = 3.0  # seconds from SIGTERM to SIGKILL: with a half-sent request open, SIGTERM alone never ends the engine
POLL = 0.1
UNCONFINED = (
    "This system cannot close the embedded engine's own port. Requests to %s need the access key, but another user of "
    "this machine who finds the engine's port can read and change all tables."
)
LEAST_ROOM = 2**20  # bytes that the engine needs on its disk to start, and some
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
    """One life of the engine as a child process, and the listener that clients connect to.

    `confined` is whether to try a seccomp filter, which leaves the engine no port of its own.
    """

    confined: ClassVar[bool] = True

    def __init__(
        self, process: asyncio.subprocess.Process, listener: EngineListener, own: tuple[str, int] | Path
    ) -> None:
        self._own = own
        self.pid = process.pid
        self._process = process
        self._listener = listener
        self._output = b""

    @classmethod
    async def start(cls, program: EngineProgram, port: int, database: Path | None, key: str, host: str = LOCAL) -> Self:
        """Start an engine behind a listener at this port, which demands the key. It answers when this returns.

        Raises `EngineFailed` with the last lines of its output.
        """
        child = await cls._spawn_behind_listener(program, bound(host, port), database, key)
        try:
            await child._prepare(port, database)
        except EngineFailed:
            if child._listener.problem is None:
                raise
        else:
            return child
        cls._warn_unconfined()
        return await cls.start(program, port, database, key, host)

    @classmethod
    async def _spawn_behind_listener(
        cls, program: EngineProgram, listener: socket.socket, database: Path | None, key: str
    ) -> Self:
        calls = Filter.of_system() if cls.confined and not program.sockets else None
        own = _own_socket() if program.sockets else _own_address()
        try:
            process = await _spawned(program, own, database, calls)
        except BaseException:
            _forget(own)
            listener.close()
            if calls is not None:
                calls.close()
            raise
        handover = None if calls is None else calls.handover()
        if handover is None and not program.sockets:
            cls._warn_unconfined()
        try:
            behind = EngineListener(listener, key, handover or ByteRelay(own), hands_over=handover is not None)
            return cls(process, behind, own)
        except OSError as problem:
            _forget(own)
            process.kill()
            await process.wait()
            raise EngineFailed(f"The embedded engine cannot be reached: {problem.strerror}.") from problem

    async def _prepare(self, port: int, database: Path | None) -> None:
        try:
            await self._ready(database)
            if database is not None and not isinstance(self._own, Path):
                await asyncio.to_thread(index_stream, database)
            self._open(port)
        except BaseException:
            await self.stop()
            raise

    @classmethod
    def _warn_unconfined(cls) -> None:
        if cls.confined:
            cls.confined = False
            logger.warning(UNCONFINED, LOCAL)

    def _open(self, port: int) -> None:
        try:
            self._listener.open()
        except OSError as problem:
            raise EngineFailed(f"The embedded engine cannot listen on port {port}: {problem.strerror}.") from problem

    async def _ready(self, database: Path | None) -> None:
        where = "in memory" if database is None else f"on {database}"
        try:
            # It says so once it listens. A probe could be answered by somebody else on that port.
            async with asyncio.timeout(PATIENCE):
                while b"listening on" not in self._output:
                    if not await self._read():
                        said = await self.wait()
                        raise EngineFailed(f"The embedded engine did not start {where}: {said}{_hint(database)}")
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
        self._listener.close()
        _forget(self._own)
        lines = [line.strip() for line in self._output.decode(errors="replace").splitlines()]
        said = "; ".join(line.removeprefix("error: ") for line in lines if line and "listening on" not in line)
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return said[-400:] or ended

    async def stop(self) -> None:
        self._listener.close()
        try:
            with suppress(ProcessLookupError, TimeoutError):
                self._process.terminate()
                await asyncio.wait_for(self.wait(), GRACE)
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self.wait()


def _hint(database: Path | None) -> str:
    """The likely cause of a failed start: the engine reports only that SQLite failed."""
    if database is None:
        return ""
    with suppress(OSError):
        if shutil.disk_usage(database.parent).free < LEAST_ROOM:
            return ". The disk is full: make room on it."
        if not os.access(database.parent, os.W_OK):
            return ". The directory cannot be written to: change that, or choose another one with --data-dir."
    return ""


def index_stream(database: Path) -> None:
    """Give the engine's database the index that keeps its writes quick. Without it all works, only slower."""
    try:
        with closing(sqlite3.connect(database, timeout=GRACE)) as connection:
            connection.execute(STREAM_INDEX)
            connection.commit()
    except sqlite3.Error as problem:
        logger.warning("The embedded engine's stream stays without its index; writes slow down with time: %s", problem)


class Orphan:
    """An engine that outlived its owner, where the system does not end it with the owner. The record names it."""

    def __init__(self, pid: int, database: Path) -> None:
        self._pid = pid
        self._database = database

    async def runs(self) -> bool:
        """Whether the process is an engine on our database: by now the id may be another process's."""
        command = ("ps", "-ww", "-o", "command=", "-p", str(self._pid))
        with suppress(OSError):
            os.kill(self._pid, 0)
            ps = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            return os.fsencode(self._database) in (await ps.communicate())[0]
        return False

    async def end(self) -> None:
        """End it if it runs: no client can reach it any more, but it has the database open."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 2 * GRACE and await self.runs():
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM if passed < GRACE else signal.SIGKILL)
            await asyncio.sleep(POLL)


def _own_address() -> tuple[str, int]:
    """The address for an engine that has a port of its own: on Linux one that a web page cannot guess."""
    host = LOCAL
    if sys.platform.startswith("linux"):
        host = ".".join(["127", *(str(secrets.randbelow(254) + 1) for _ in range(3))])
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, int(probe.getsockname()[1])


def bound(host: str, port: int, *, listens: bool = True) -> socket.socket:
    """Return a bound socket: one for the listener, which refuses connections until it listens, or a reservation.

    A reservation never listens. As long as it is open no other user of the machine can bind the port. Clients that do
    not know yet that the engine has ended would send their key to that user. Raises `EngineFailed`.
    """
    found = socket.socket()
    try:
        if os.name == "posix":
            # Sockets of one user share a port where all have SO_REUSEPORT.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if listens:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as problem:
        found.close()
        why = f"The embedded engine cannot be reached at {host}:{port}: {problem.strerror}."
        raise EngineFailed(why) from problem
    return found


def _own_socket() -> Path:
    """The path of a Unix socket in a directory that no other user of the machine can enter."""
    return Path(tempfile.mkdtemp(prefix="engine-")) / "socket"


def _forget(own: tuple[str, int] | Path) -> None:
    if isinstance(own, Path):
        shutil.rmtree(own.parent, ignore_errors=True)


async def _spawned(
    program: EngineProgram, own: tuple[str, int] | Path, database: Path | None, calls: Filter | None
) -> asyncio.subprocess.Process:
    command = program.command(own, database)
    try:
        # Its own session: Ctrl-C at the terminal must not end the engine before the gateway has drained.
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_before_engine(calls, program.orphaned),
        )
    except OSError as error:
        raise EngineFailed(f"The embedded engine, {command[0]}, cannot be run: {error.strerror}.") from error


def _before_engine(calls: Filter | None, orphaned: signal.Signals) -> Callable[[], None] | None:
    """Return what a child runs before it becomes the engine.

    Its files are its owner's alone, whatever the umask was. On Linux the kernel ends it with the thread that started
    it, and the filter is set, if there is one. The libraries are loaded before, so that little is left to do here.
    """
    if os.name != "posix":
        return None
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None
    parent = os.getpid()

    def prepare() -> None:
        os.umask(OTHERS)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, orphaned)
            if os.getppid() != parent:
                os._exit(1)
        if calls is not None:
            calls.set()

    return prepare


async def answers(endpoint: str, key: str) -> bool:
    """Whether an engine at this endpoint takes the key."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(LOCAL, urlsplit(endpoint).port or 0)
            try:
                head = f"GET / HTTP/1.1\r\nHost: {LOCAL}\r\nAuthorization: {bearing(key)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                return b"server: dynoxide" in answer or b"server: ministack" in answer
            finally:
                writer.close()
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        return False


def is_free(port: int, host: str = LOCAL) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
