"""The child process of the embedded engine, and the termination of one that outlived its owner."""

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

from datastore.engine.access_key import authorization
from datastore.engine.byte_relay import ByteRelay
from datastore.engine.listener import EngineListener
from datastore.engine.programs import EngineProgram
from datastore.engine.seccomp import Filter
from datastore.private_files import OTHERS_PERMISSIONS

START_SECONDS = 20.0  # for an engine to become ready
# From SIGTERM to SIGKILL: with a half-sent request open, SIGTERM alone never ends the engine.
STOP_SECONDS = 3.0
POLL = 0.1
UNCONFINED = (
    "This system cannot close the embedded engine's own port. Requests to %s need the access key, but another user of "
    "this machine that finds the engine's port can read and change all tables."
)
MIN_FREE_BYTES = 2**20  # disk space for the engine to start
PR_SET_PDEATHSIG = 1
LOCAL = "127.0.0.1"
# At each write to a table with a stream the engine selects the table's greatest sequence number with this expression.
# Without an index it reads all records: 5,000 puts after 15,000 records take 14 s instead of 1 s.
STREAM_INDEX = (
    "CREATE INDEX IF NOT EXISTS gateway_stream_records"
    " ON _stream_records (table_name, CAST(sequence_number AS INTEGER))"
)

logger = logging.getLogger(__name__)


class EngineFailed(Exception):
    """The engine did not start, or its owner's does not answer. The message is one line for users."""


class Child:
    """The engine as a child process, and the listener that clients connect to."""

    #: Whether to try a seccomp filter, with which the engine has no separate port.
    confined: ClassVar[bool] = True

    def __init__(
        self, process: asyncio.subprocess.Process, listener: EngineListener, address: tuple[str, int] | Path
    ) -> None:
        self._address = address
        self.pid = process.pid
        self._process = process
        self._listener = listener
        self._output = b""

    @classmethod
    async def start(cls, program: EngineProgram, port: int, database: Path | None, key: str, host: str = LOCAL) -> Self:
        """Start an engine behind a listener at this port that demands the key, and wait until it answers.

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
        seccomp = Filter.of_system() if cls.confined and not program.sockets else None
        address = _private_socket() if program.sockets else _loopback_address()
        try:
            process = await _spawn(program, address, database, seccomp)
        except BaseException:
            _remove_socket(address)
            listener.close()
            if seccomp is not None:
                seccomp.close()
            raise
        handover = None if seccomp is None else seccomp.handover()
        if handover is None and not program.sockets:
            cls._warn_unconfined()
        try:
            front = EngineListener(listener, key, handover or ByteRelay(address), hands_over=handover is not None)
            return cls(process, front, address)
        except OSError as problem:
            _remove_socket(address)
            process.kill()
            await process.wait()
            raise EngineFailed(f"The embedded engine cannot be reached: {problem.strerror}.") from problem

    async def _prepare(self, port: int, database: Path | None) -> None:
        try:
            await self._ready(database)
            if database is not None and not isinstance(self._address, Path):
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
            # The engine prints this once it listens. Another process on that port could answer a probe.
            async with asyncio.timeout(START_SECONDS):
                while b"listening on" not in self._output:
                    if not await self._read():
                        reason = await self.wait()
                        raise EngineFailed(f"The embedded engine did not start {where}: {reason}{_hint(database)}")
        except TimeoutError:
            raise EngineFailed(
                f"The embedded engine did not start {where}: not ready in {START_SECONDS:.0f} s."
            ) from None

    async def _read(self) -> bool:
        """Read output, and return False at its end. The last part is kept as the reason of a failure."""
        assert self._process.stdout is not None
        chunk = await self._process.stdout.read(4096)
        self._output = (self._output + chunk)[-2000:]
        return bool(chunk)

    async def wait(self) -> str:
        """Wait until the engine has ended, and return the reason in one line."""
        while await self._read():
            pass
        status = await self._process.wait()
        self._listener.close()
        _remove_socket(self._address)
        lines = [line.strip() for line in self._output.decode(errors="replace").splitlines()]
        messages = "; ".join(line.removeprefix("error: ") for line in lines if line and "listening on" not in line)
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return messages[-400:] or ended

    async def stop(self) -> None:
        self._listener.close()
        try:
            with suppress(ProcessLookupError, TimeoutError):
                self._process.terminate()
                await asyncio.wait_for(self.wait(), STOP_SECONDS)
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self.wait()


def _hint(database: Path | None) -> str:
    """Return the likely cause of a failed start: the engine reports only that SQLite failed."""
    if database is None:
        return ""
    with suppress(OSError):
        if shutil.disk_usage(database.parent).free < MIN_FREE_BYTES:
            return ". The disk is full: free some space."
        if not os.access(database.parent, os.W_OK):
            return ". The directory cannot be written to: change that, or choose another one with --data-dir."
    return ""


def index_stream(database: Path) -> None:
    """Add the index that keeps writes fast to the engine's database. Without it the engine works, but slower."""
    try:
        with closing(sqlite3.connect(database, timeout=STOP_SECONDS)) as connection:
            connection.execute(STREAM_INDEX)
            connection.commit()
    except sqlite3.Error as problem:
        logger.warning(
            "The index of the embedded engine's streams could not be created; writes slow down with time: %s", problem
        )


class Orphan:
    """An engine that outlived its owner, on systems that do not end it with the owner."""

    def __init__(self, pid: int, database: Path) -> None:
        self._pid = pid
        self._database = database

    async def runs(self) -> bool:
        """Return whether the process is an engine on this database. The id may belong to another process by now."""
        command = ("ps", "-ww", "-o", "command=", "-p", str(self._pid))
        with suppress(OSError):
            os.kill(self._pid, 0)
            ps = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            return os.fsencode(self._database) in (await ps.communicate())[0]
        return False

    async def end(self) -> None:
        """End the engine if it runs. No client can reach it any more, but it has the database open."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 2 * STOP_SECONDS and await self.runs():
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM if passed < STOP_SECONDS else signal.SIGKILL)
            await asyncio.sleep(POLL)


def _loopback_address() -> tuple[str, int]:
    """Return the address for an engine with a separate port, on Linux one that a web page cannot guess."""
    host = LOCAL
    if sys.platform.startswith("linux"):
        host = ".".join(["127", *(str(secrets.randbelow(254) + 1) for _ in range(3))])
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, int(probe.getsockname()[1])


def bound(host: str, port: int, *, listens: bool = True) -> socket.socket:
    """Return a bound socket: one for the listener, which refuses connections until it listens, or a reservation.

    A reservation never listens. While it is open no other user of the machine can bind the port, and so receive the
    keys of clients that have not noticed the end of the engine. Raises `EngineFailed`.
    """
    bound_socket = socket.socket()
    try:
        if os.name == "posix":
            # Sockets of one user share a port if all have SO_REUSEPORT.
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if listens:
                bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind((host, port))
    except OSError as problem:
        bound_socket.close()
        why = f"The embedded engine cannot be reached at {host}:{port}: {problem.strerror}."
        raise EngineFailed(why) from problem
    return bound_socket


def _private_socket() -> Path:
    """Return the path of a Unix socket in a new directory that only this user can enter."""
    return Path(tempfile.mkdtemp(prefix="engine-")) / "socket"


def _remove_socket(address: tuple[str, int] | Path) -> None:
    if isinstance(address, Path):
        shutil.rmtree(address.parent, ignore_errors=True)


async def _spawn(
    program: EngineProgram, address: tuple[str, int] | Path, database: Path | None, seccomp: Filter | None
) -> asyncio.subprocess.Process:
    command = program.command(address, database)
    try:
        # In a separate session: Ctrl-C at the terminal must not end the engine before the gateway has drained.
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_before_engine(seccomp, program.orphaned),
        )
    except OSError as error:
        raise EngineFailed(f"The embedded engine, {command[0]}, cannot be run: {error.strerror}.") from error


def _before_engine(seccomp: Filter | None, orphaned: signal.Signals) -> Callable[[], None] | None:
    """Return the function that a child calls before it executes the engine.

    It sets a umask with which only the owner can use the files. On Linux it has the kernel end the child with the
    thread that started it, and installs the filter. Libraries are loaded before the fork.
    """
    if os.name != "posix":
        return None
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None
    parent = os.getpid()

    def prepare() -> None:
        os.umask(OTHERS_PERMISSIONS)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, orphaned)
            if os.getppid() != parent:
                os._exit(1)
        if seccomp is not None:
            seccomp.install()

    return prepare


async def answers(endpoint: str, key: str) -> bool:
    """Return whether an engine at this endpoint accepts the key, within a second."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(LOCAL, urlsplit(endpoint).port or 0)
            try:
                fields = f"Host: {LOCAL}\r\nAuthorization: {authorization(key)}\r\nConnection: close"
                writer.write(f"GET / HTTP/1.1\r\n{fields}\r\n\r\n".encode())
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
