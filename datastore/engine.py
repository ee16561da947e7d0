"""The embedded DynamoDB engine (dynoxide) as a child process: one per data folder, however many commands use it.

Whoever holds `engine.lock` owns the engine and tells its endpoint and process id in `engine.json`. Others attach to
that endpoint, and one of them takes over when the owner goes.
"""

import asyncio
import ctypes
import json
import logging
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


logger = logging.getLogger(__name__)

PATIENCE = 20.0  # seconds for an engine to get ready
GRACE = 3.0  # seconds from SIGTERM to SIGKILL: with a half-sent request open, SIGTERM alone never ends the engine
POLL = 0.1
FIRST_DELAY, LONGEST_DELAY, STEADY = 0.1, 2.0, 5.0  # before a restart; a life of STEADY seconds makes it FIRST again
PORTS = range(20_000, 32_000)  # below those that systems hand to outgoing connections, so a port stays ours
PR_SET_PDEATHSIG = 1

HOW_TO_GET_IT = (
    "get it with `npm ci` in the project folder, or install it from https://github.com/nubo-db/dynoxide and put it "
    "on PATH, or use another store: --store aws or --store URL"
)


class EngineMissing(Exception):
    """The engine's program is not on this machine; the message says how to get it."""


class EngineFailed(Exception):
    """The engine did not start, or its owner's does not answer; the message is one line for people."""


def find_binary(root: Path) -> Path:
    """The engine's program: $DYNOXIDE_BINARY, else the npm package under `root`, else PATH. Raises EngineMissing."""
    if named := os.environ.get("DYNOXIDE_BINARY"):
        if Path(named).is_file():
            return Path(named)
        raise EngineMissing(f"DYNOXIDE_BINARY names {named}, which is not a file: correct it, or {HOW_TO_GET_IT}.")
    packaged = root / "node_modules" / "@dynoxide" / _npm_platform() / _program()
    found = packaged if packaged.is_file() else shutil.which("dynoxide")
    if found is None:
        raise EngineMissing(f"The embedded engine, dynoxide, is not installed: {HOW_TO_GET_IT}.")
    return Path(found)


def _program() -> str:
    return "dynoxide.exe" if sys.platform == "win32" else "dynoxide"


def _npm_platform() -> str:
    machine = platform.machine().lower()
    arch = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return f"{sys.platform}-{arch}"


class Engine:
    """A running engine: `async with Engine(binary, data_dir) as engine`, in memory when `data_dir` is None.

    Read `endpoint` at every call: it moves when its port is lost to somebody else. `on_restart` runs each time this
    process started the engine again or took it over (its memory is empty without `data_dir`); `restarts` counts that.
    Entering raises EngineFailed. Enter in a thread that outlives the engine: on Linux it is killed with that thread.
    """

    def __init__(
        self, binary: Path, data_dir: Path | None = None, on_restart: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.endpoint = ""
        self.restarts = 0
        self._binary = binary
        self._folder = None if data_dir is None else _Folder(data_dir.resolve())
        self._on_restart = on_restart
        self._running: _Child | _Adopted | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = 0.0
        self._delay = FIRST_DELAY / 2

    async def __aenter__(self) -> Self:
        try:
            await self._join()
        except OSError as error:
            await self._leave()
            raise EngineFailed(f"The embedded engine's data folder cannot be used: {error}.") from error
        except BaseException:
            await self._leave()
            raise
        self._tasks["watch"] = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        try:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        finally:
            await self._leave()

    @property
    def attached(self) -> bool:
        """Whether the engine is another process's."""
        return self._folder is not None and not self._folder.owned

    async def _join(self) -> None:
        """Own the engine, or attach to its owner's."""
        if self._folder is not None:
            self._folder.open()
            deadline = time.monotonic() + PATIENCE
            while not self._folder.take():
                if await self._attach(self._folder):
                    return
                if time.monotonic() > deadline:
                    raise EngineFailed(f"{self._folder.lock} is held, but its owner's engine does not answer.")
                await asyncio.sleep(POLL)
        await self._start()

    async def _attach(self, folder: "_Folder") -> bool:
        endpoint, _ = folder.told()
        if not await _answers(endpoint):
            return False
        self.endpoint = endpoint
        return True

    async def _leave(self) -> None:
        try:
            if self._running is not None:
                await self._running.stop()
        finally:
            if self._folder is not None:
                self._folder.close()

    async def _watch(self) -> None:
        """Take the engine over when its owner goes, and start it again whenever it dies."""
        if self._folder is not None and not self._folder.owned:
            await self._outlive_owner(self._folder)
            await self._renew("the command that ran it has ended")
        while self._running is not None:
            await self._renew(await self._running.wait())

    async def _outlive_owner(self, folder: "_Folder") -> None:
        """Returns with the lock held; until then follows the owner's engine to where it moves."""
        while not folder.take():
            self.endpoint = folder.told()[0] or self.endpoint
            await asyncio.sleep(POLL)

    async def _renew(self, reason: str) -> None:
        """Start the engine again, as often as it takes."""
        while True:
            steady = time.monotonic() - self._started > STEADY
            self._delay = FIRST_DELAY if steady else min(2 * self._delay, LONGEST_DELAY)
            logger.warning("The embedded engine is gone (%s); starting it in %.1f s.", reason, self._delay)
            await asyncio.sleep(self._delay)
            try:
                await self._start()
            except (EngineFailed, OSError) as error:
                reason = str(error)
            else:
                break
        self.restarts += 1
        self._tell_restart()

    def _tell_restart(self) -> None:
        # Not awaited by the watch: it talks to the engine, which may die again meanwhile.
        if earlier := self._tasks.get("told"):
            earlier.cancel()
        self._tasks["told"] = asyncio.create_task(self._restarted())

    async def _restarted(self) -> None:
        try:
            if self._on_restart is not None:
                await self._on_restart()
        except Exception:
            logger.exception("Preparing the restarted engine failed.")

    async def _start(self) -> None:
        if self._running is not None:
            await self._running.stop()  # an adopted one that no longer answers may still have the file open
        self._started = time.monotonic()
        self._running = await self._adopt() or await self._launch()
        if self._folder is not None:
            self._folder.tell(self.endpoint, self._running.pid)

    async def _adopt(self) -> "_Adopted | None":
        """The engine that a killed owner left behind, where the system does not end it with its owner."""
        if self._folder is None or not await _answers((told := self._folder.told())[0]):
            return None
        await asyncio.sleep(POLL)  # where the system does, it may be about to
        adopted = _Adopted(*told, self._folder.database)
        if not await _answers(adopted.endpoint) or not await adopted.runs():
            return None
        self.endpoint = adopted.endpoint
        return adopted

    async def _launch(self) -> "_Child":
        """A child on the port there was before, or on another when somebody has it."""
        port = urlsplit(self.endpoint).port
        database = None if self._folder is None else self._folder.database
        for _ in range(5):
            if port is None or not _is_free(port):
                port = next(filter(_is_free, random.sample(PORTS, 200)))
            try:
                child = await _Child.start(self._binary, port, database)
            except EngineFailed:
                if _is_free(port):
                    raise
            else:
                self.endpoint = f"http://127.0.0.1:{port}"
                return child
        raise EngineFailed("The embedded engine found no free port.")


class _Folder:
    """The data folder: the database, the owner's lock, and what the owner tells the others."""

    def __init__(self, path: Path) -> None:
        self.database = path / "engine.sqlite"
        self.lock = path / "engine.lock"
        self.owned = False
        self._told = path / "engine.json"
        self._descriptor: int | None = None

    def open(self) -> None:
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self) -> bool:
        """Whether the lock is now ours. The system gives it back even when the owner is killed."""
        if self._descriptor is not None and not self.owned:
            with suppress(BlockingIOError, PermissionError):
                _lock(self._descriptor)
                self.owned = True
        return self.owned

    def tell(self, endpoint: str, pid: int) -> None:
        draft = self._told.with_suffix(".tmp")
        draft.write_text(json.dumps({"endpoint": endpoint, "pid": pid}))
        draft.replace(self._told)

    def told(self) -> tuple[str, int]:
        """The endpoint and process id of the owner's engine; ("", 0) when it has told none."""
        try:
            told = json.loads(self._told.read_text())
            return str(told["endpoint"]), int(told["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", 0

    def close(self) -> None:
        if self.owned:
            self._told.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self.owned, self._descriptor = False, None


class _Child:
    """One life of the engine, as our child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._output = b""

    @classmethod
    async def start(cls, binary: Path, port: int, database: Path | None) -> Self:
        """Returns once it answers. Raises EngineFailed with what it said."""
        arguments = ["serve", "--host", "127.0.0.1", "--port", str(port)]
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


class _Adopted:
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
        while await _answers(self.endpoint):  # noqa: ASYNC110 - another process's engine tells no event
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


async def _answers(endpoint: str) -> bool:
    """Whether a dynoxide answers there."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(endpoint).port or 0)
            try:
                writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b"server: dynoxide" in (await reader.readuntil(b"\r\n\r\n")).lower()
            finally:
                writer.close()
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
