"""The embedded DynamoDB engine as a child process: one per data directory, shared by all commands that use it.

The process that holds `engine.lock` owns the engine and writes its endpoint, process id and access key to
`engine.json`. Other processes attach to that endpoint, and one of them takes over when the owner ends.
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from datastore.engine import process as engine_process
from datastore.engine.access_key import KeyUnusable, key_in_environment, new_key
from datastore.engine.directory import EngineDirectory, EngineRecord
from datastore.engine.process import LOCAL, POLL, Child, EngineFailed, Orphan, answers, bound, is_free
from datastore.engine.programs import FILES, EngineProgram
from datastore.primitives.tasks import cancel
from datastore.private_files import FolderUnusable, unusable_folder

logger = logging.getLogger(__name__)

# Delays before a restart, in seconds. They begin again after an engine that ran for STABLE_SECONDS.
FIRST_DELAY, MAX_DELAY, STABLE_SECONDS = 0.1, 1.0, 1.0
PORTS = range(20_000, 32_000)  # below the ports that systems assign to outgoing connections


class Engine:
    """A running engine: `async with Engine(program, data_dir) as engine`.

    All commands that name the same `data_dir` share its engine; with `memory` they share one that stores nothing there.
    Without a `data_dir` the engine is in memory and private.

    The access key is the one that GATEWAY_ENGINE_KEY sets, or else the one stored in `data_dir`. `on_restart` is
    awaited each time this process has restarted the engine or taken it over; an engine in memory is empty then. With
    `listen`, a host and a port, other hosts reach the engine too, and its port never changes. The host must include
    127.0.0.1, where this process connects. Enter in a thread that outlives the engine: on Linux the engine is killed
    with it.

    Raises:
        EngineFailed: On entry, if the engine cannot be started or does not answer.
    """

    def __init__(
        self,
        program: EngineProgram,
        data_dir: Path | None = None,
        on_restart: Callable[[], Awaitable[None]] | None = None,
        *,
        memory: bool = False,
        listen: tuple[str, int] | None = None,
    ) -> None:
        #: Read the endpoint and the access key at every call: the port changes when another process binds it.
        self.endpoint = ""
        self.key = ""
        #: The number of restarts and takeovers by this process.
        self.restarts = 0
        self._listen = listen
        self._program = program
        self._folder = None if data_dir is None else EngineDirectory(data_dir.resolve(), program.file, memory)
        self._on_restart = on_restart
        self._running: Child | None = None
        self._reservation: socket.socket | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answers_since = 0.0
        self._delay = FIRST_DELAY / 2

    async def __aenter__(self) -> Self:
        try:
            await self._join()
        except (OSError, FolderUnusable, KeyUnusable) as error:
            await self._close()
            raise EngineFailed(self._unusable(error)) from error
        except BaseException:
            await self._close()
            raise
        self._tasks["watch"] = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await cancel(*self._tasks.values())
        finally:
            await self._close()

    def _unusable(self, problem: Exception) -> str:
        if isinstance(problem, OSError) and self._folder is not None:
            problem = unusable_folder(self._folder.lock.parent, problem)
        return str(problem)

    @property
    def program(self) -> str:
        """The name of the engine's program."""
        return self._program.name

    @property
    def attached(self) -> bool:
        """Whether another process owns the engine."""
        return self._folder is not None and not self._folder.owned

    async def _join(self) -> None:
        """Start the engine as its owner, or attach to the owner's engine."""
        if self._folder is not None:
            self._folder.open()
            deadline = time.monotonic() + engine_process.START_SECONDS
            while not self._folder.acquire():
                if await self._attach(self._folder):
                    return
                if time.monotonic() > deadline:
                    raise EngineFailed(
                        f"{self._folder.lock} is held, but the engine of its owner does not answer: end that process."
                    )
                await asyncio.sleep(POLL)
        await self._start()

    async def _attach(self, folder: EngineDirectory) -> bool:
        record = folder.read_record()
        if not await answers(record.endpoint, record.key):
            return False
        self.endpoint, self.key = record.endpoint, record.key
        return True

    async def _close(self) -> None:
        try:
            if self._running is not None:
                await self._running.stop()
        finally:
            self._release_port()
            if self._folder is not None:
                self._folder.close()

    async def _watch(self) -> None:
        """Take the engine over when its owner ends, and restart it whenever it dies."""
        if self._folder is not None and not self._folder.owned:
            await self._wait_for_ownership(self._folder)
            await self._restart("the command that ran it has ended")
        while self._running is not None:
            await self._restart(await self._running.wait())

    async def _wait_for_ownership(self, folder: EngineDirectory) -> None:
        """Return when this process has acquired the lock. Until then follow the endpoint of the owner's engine."""
        while not folder.acquire():
            if (record := folder.read_record()).endpoint:
                self.endpoint, self.key = record.endpoint, record.key
            await asyncio.sleep(POLL)

    async def _restart(self, reason: str) -> None:
        """Start the engine again, and retry until it runs."""
        if time.monotonic() - self._answers_since > STABLE_SECONDS:
            self._delay = FIRST_DELAY / 2
        while True:
            self._delay = min(2 * self._delay, MAX_DELAY)
            logger.warning("The embedded engine is gone (%s); starting it in %.1f s.", reason, self._delay)
            await asyncio.sleep(self._delay)
            try:
                await self._start()
            except (EngineFailed, OSError) as error:
                reason = str(error)
            else:
                break
        self.restarts += 1
        self._schedule_on_restart()

    def _schedule_on_restart(self) -> None:
        # The watch does not await the callback, since the engine may die again before it has ended.
        if earlier := self._tasks.get("on_restart"):
            earlier.cancel()
        self._tasks["on_restart"] = asyncio.create_task(self._run_on_restart())

    async def _run_on_restart(self) -> None:
        try:
            if self._on_restart is not None:
                await self._on_restart()
        except Exception:
            logger.exception("Preparing the restarted engine failed.")

    def _check_data_format(self, database: Path) -> None:
        """Raise `EngineFailed` for a directory with the tables of another engine, which this one cannot read."""
        for file, name in FILES.items():
            if file != database.name and (database.parent / file).exists():
                raise EngineFailed(
                    f"{database.parent} holds the tables of {name}, but the engine here is {self._program.name}: "
                    "choose another directory with --data-dir."
                )

    async def _start(self) -> None:
        if self._folder is not None and self._folder.database is not None:
            self._check_data_format(self._folder.database)
        if self._folder is not None and self._folder.database is not None and self._running is None:
            await self._end_orphan(self._folder, self._folder.database)
        if self._running is not None:
            await self._running.stop()  # the engine may run although the record could not be written
        if not self.key:
            self.key = key_in_environment() or (new_key() if self._folder is None else self._folder.key())
        self._running = await self._launch()
        if self._folder is not None:
            self._write_record(self._folder, self._running)
        self._answers_since = time.monotonic()

    def _write_record(self, folder: EngineDirectory, running: Child) -> None:
        try:
            folder.write_record(EngineRecord(self.endpoint, running.pid, self.key))
        except OSError as problem:
            if "watch" not in self._tasks:  # `__aenter__` reports it
                raise
            # The record has the endpoint of the previous engine, which is usually the same.
            logger.warning(
                "The record of the embedded engine cannot be written: %s. Other commands may not find it.", problem
            )

    async def _end_orphan(self, folder: EngineDirectory, database: Path) -> None:
        """End the engine of a killed owner, if the system has not done so, and use its port."""
        record = folder.read_record()
        if record.pid and await (orphan := Orphan(record.pid, database)).runs():
            self.endpoint = record.endpoint
            await orphan.end()

    async def _launch(self) -> Child:
        """Start a child on the previous port, or on another one if that is in use."""
        database = None if self._folder is None else self._folder.database
        if self._listen is None:
            return await self._launch_anywhere(database)
        host, port = self._listen
        if not self._is_reserved(port) and not is_free(port, host):
            raise EngineFailed(f"The embedded engine cannot be reached at {host}:{port}: Address already in use.")
        return await self._launch_at(host, port, database)

    async def _launch_anywhere(self, database: Path | None) -> Child:
        port = urlsplit(self.endpoint).port
        for _ in range(5):
            if port is None or not (self._is_reserved(port) or is_free(port)):
                port = next(filter(is_free, random.sample(PORTS, 200)))
            try:
                return await self._launch_at(LOCAL, port, database)
            except EngineFailed:
                if self._is_reserved(port) or is_free(port):
                    raise
        raise EngineFailed("The embedded engine found no free port.")

    async def _launch_at(self, host: str, port: int, database: Path | None) -> Child:
        child = await Child.start(self._program, port, database, self.key, host)
        self.endpoint = f"http://{LOCAL}:{port}"
        if not self._is_reserved(port):
            self._release_port()
            with suppress(EngineFailed):  # this system does not support reservations
                self._reservation = bound(host, port, listens=False)
        return child

    def _is_reserved(self, port: int) -> bool:
        """Return whether the port is reserved, also while no engine runs."""
        return self._reservation is not None and self._reservation.getsockname()[1] == port

    def _release_port(self) -> None:
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
