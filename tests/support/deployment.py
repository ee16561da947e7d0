"""A deployment as processes of this machine, which can be killed, paused or given a wrong clock."""

import asyncio
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import aiohttp

from datastore.database import Database, StoreOptions, open_database
from datastore.engine.access_key import VARIABLE, authorization
from datastore.engine.directory import EngineDirectory
from datastore.objects.factory import LOCAL_FOLDER
from tests.support.command_line import surroundings
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.process_clock import ProcessClock
from tests.support.reverse_proxies import proxy_command
from tests.support.served import SECRET
from tests.support.store_engines import make_tables, new_prefix

READY_SECONDS = 40.0
ENGINE_KEY = "k" * 32
GATEWAYS = ("gateway-1", "gateway-2")
FEEDS = ("feed-1", "feed-2")
CRICKETS = ("cricket-1", "cricket-2")
STATISTICS = "earthquakes"
PROXY = "haproxy"
# HAProxy, which asks each second whether a gateway is ready, notices a shutdown within this time.
DRAIN_SECONDS = 4
# No load is refused, but each operation is charged.
BUDGET = {"GATEWAY_BUDGET_UNITS": "10000000", "GATEWAY_BUDGET_UNITS_PER_SECOND": "1000000"}
UNBOUND = {"GATEWAY_MAX_LAG_SECONDS": "0", "GATEWAY_MAX_CONCURRENT_PER_CALLER": "0"}
PROXIED = {"GATEWAY_TRUSTED_PROXIES": "127.0.0.1/32", "GATEWAY_DRAIN_SECONDS": str(DRAIN_SECONDS)}
MATCH = "m2"
METRICS_TOKEN = "of-the-figures-alone"


class ProcessHandle(Protocol):
    """The common interface of `Forked` and `Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class DeploymentPart:
    """One process of a deployment. `instance` names it in leases and locks and changes at each start."""

    def __init__(
        self,
        start: Callable[[str], ProcessHandle],
        ready: Callable[["DeploymentPart"], Awaitable[bool]],
        clock: ProcessClock,
    ) -> None:
        self._start = start
        self._ready = ready
        self._numbers = itertools.count()
        self.clock = clock
        self.instance = ""
        self.process: ProcessHandle | None = None

    async def begin(self) -> None:
        """Start the process and wait until it works."""
        self.begin_unheard()
        await wait_for(self.is_ready)

    async def is_ready(self) -> bool:
        return await self._ready(self)

    def begin_unheard(self) -> None:
        self.instance = f"{id(self)}-{next(self._numbers)}"
        self.process = self._start(self.instance)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def terminate(self) -> None:
        """Ask the process to end. It may go on for some seconds."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGTERM)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)


async def wait_for(holds: Callable[[], Awaitable[bool]], seconds: float = READY_SECONDS) -> float:
    """Wait until the condition holds, ignoring connection errors. Return the seconds it took."""
    began = time.monotonic()
    while not await holds():
        assert time.monotonic() - began < seconds, "It takes too long."
        await asyncio.sleep(0.02)
    return time.monotonic() - began


class Deployment:
    """A deployment. `lease_seconds` is the lifetime of leases and locks of the pipelines and the bus; the match is
    played in real time.

    With `keep_little` the caches of gateways have small bounds. With `upload_seconds` reservations of photos expire
    after this time, and the janitor runs three times a second. `as_operated`: clients reach the gateways through
    HAProxy with the configuration of `deploy/proxies`, and the pipelines of the feed and of earthquakes run as their
    commands, which needs leases and clocks as in production. `settings` are environment variables of the gateways.
    """

    def __init__(
        self,
        folder: Path,
        http: aiohttp.ClientSession,
        *,
        lease_seconds: float,
        match_speed: float,
        clock_times: float = 1.0,
        off: Mapping[str, float] | None = None,
        keep_little: bool = False,
        upload_seconds: float | None = None,
        as_operated: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.prefix = new_prefix()
        self.ports = {name: free_port() for name in ("engine", "redis", *GATEWAYS, PROXY)}
        self.clock = ProcessClock(time.time(), clock_times)
        self.store = f"http://127.0.0.1:{self.ports['engine']}"
        # The addresses for clients.
        self.urls = [f"http://127.0.0.1:{self.ports[name]}" for name in ((PROXY,) if as_operated else GATEWAYS)]
        self._http = http
        self._lease = str(lease_seconds)
        self._match_speed = str(match_speed)
        self._off = off or {}
        self._keeping = {"KEEPS_LITTLE": "1"} if keep_little else {}
        self._keeping |= {} if upload_seconds is None else {"UPLOAD_SECONDS": str(upload_seconds)}
        self._keeping |= PROXIED if as_operated else {}
        self._keeping |= settings or {}
        self._match_began = ""
        self.parts: dict[str, DeploymentPart] = {
            "redis": self._part("redis", self._start_redis, self._redis_answers),
            "engine": self._part("engine", self._start_engine, self._engine_answers),
        }
        for name in GATEWAYS:
            self.parts[name] = self._part(name, self._start_gateway, self._gateway_answers)
        for name in FEEDS:
            start = self._start_pipeline if as_operated else self._start_feed
            self.parts[name] = self._part(name, start, _is_there)
        for name in CRICKETS:
            self.parts[name] = self._part(name, self._start_cricket, self._says_ready)
        if as_operated:
            self.parts[PROXY] = self._part(PROXY, self._start_proxy, self._gateway_answers)
            self.parts[STATISTICS] = self._part(STATISTICS, self._start_pipeline, _is_there)

    def _part(
        self,
        name: str,
        start: Callable[[str, ProcessClock, str], ProcessHandle],
        ready: Callable[[str, DeploymentPart], Awaitable[bool]],
    ) -> DeploymentPart:
        # Locks of matches are measured by the process's clock, so that their lifetime must not be scaled.
        times = 1.0 if name in CRICKETS else self.clock.times
        clock = ProcessClock(self.clock.began, times, self._off.get(name, 0.0))
        return DeploymentPart(
            lambda instance: start(name, clock, instance),
            lambda part: ready(name, part),
            clock,
        )

    # How to start each process

    def _start_redis(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        binary = shutil.which("redis-server")
        assert binary is not None, "redis-server is needed."
        command = [binary, "--port", str(self.ports[name]), "--save", "", "--bind", "127.0.0.1"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def _start_engine(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        own = ["--port", str(self.ports[name]), "--data-dir", str(self.folder / "engine"), "--prefix", self.prefix]
        return self._forked("gateway.py", name, ["engine", *own], {})

    def _start_gateway(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        environment = {
            "GATEWAY_PORT": str(self.ports[name]),
            "GATEWAY_DATA_DIR": str(self.folder),
            "GATEWAY_SECRET": SECRET,
            "GATEWAY_STORE": self.store,
            "GATEWAY_TABLE_PREFIX": self.prefix,
            "GATEWAY_REDIS_URL": f"redis://127.0.0.1:{self.ports['redis']}",
            "GATEWAY_BUS": f"redis://127.0.0.1:{self.ports['redis']}",
            "GATEWAY_METRICS_TOKEN": METRICS_TOKEN,
            "GATEWAY_POLL_INTERVAL_SECONDS": "0.05",
            "BUS_LEASE_SECONDS": self._lease,
            "BLOCKS_FILE": str(self._blocks_file(name)),
        }
        arguments = [*clock.arguments, "serve", "--no-demo"]
        return self._forked(
            "tests/support/gateway_process.py", name, arguments, environment | BUDGET | UNBOUND | self._keeping
        )

    def _start_proxy(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        gateways = [self.ports[gateway] for gateway in GATEWAYS]
        with (self.folder / f"{name}.log").open("ab") as log:
            command = proxy_command(name, self.folder, self.ports[name], gateways)
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def _start_feed(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        arguments = [self.store, self.prefix, self._lease, *clock.arguments]
        return self._forked("tests/support/feed_process.py", name, arguments, {})

    def _start_pipeline(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        """Start the command of a pipeline: `feed` for `feed-1`."""
        environment = {
            "GATEWAY_DATA_DIR": str(self.folder),
            "GATEWAY_SECRET": SECRET,
            "GATEWAY_STORE": self.store,
            "GATEWAY_TABLE_PREFIX": self.prefix,
            "GATEWAY_POLL_INTERVAL_SECONDS": "0.05",
        }
        return self._forked("gateway.py", name, ["pipeline", name.partition("-")[0]], environment)

    def _start_cricket(self, name: str, clock: ProcessClock, instance: str) -> ProcessHandle:
        numbers = [self._match_began, self._match_speed, self._lease]
        arguments = [self.store, self.prefix, MATCH, instance, *numbers, *clock.arguments]
        return self._forked("tests/support/cricket_process.py", instance, arguments, {})

    def _forked(self, script: str, log: str, arguments: list[str], environment: dict[str, str]) -> Forked:
        received = self.folder / f"{log}.log"
        return Forked(
            script, arguments, surroundings(**{VARIABLE: ENGINE_KEY}, **environment), stdout=received, stderr=received
        )

    # Whether each process works

    async def _redis_answers(self, name: str, part: DeploymentPart) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.ports[name])
        except OSError:
            return False
        writer.close()
        return True

    async def _engine_answers(self, name: str, part: DeploymentPart) -> bool:
        try:
            bears = {"Authorization": authorization(ENGINE_KEY)}
            async with self._http.get(self.store, headers=bears, timeout=aiohttp.ClientTimeout(2)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _gateway_answers(self, name: str, part: DeploymentPart) -> bool:
        url = f"http://127.0.0.1:{self.ports[name]}/readyz"
        try:
            async with self._http.get(url, timeout=aiohttp.ClientTimeout(3)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _says_ready(self, name: str, part: DeploymentPart) -> bool:
        received = self.folder / f"{part.instance}.log"
        return received.exists() and "Ready" in received.read_text()

    # State of the processes

    def is_instance(self, owner: str, names: Sequence[str]) -> bool:
        """Return whether the owner of a lease is one of these, and runs: its name contains the id of its process."""
        running = [self.parts[name].process for name in names if self.parts[name].is_running]
        return any(f"-{process.pid}-" in f"{owner}-" for process in running if process is not None)

    def engine_child(self) -> int:
        """Return the id of the engine's own process, which `gateway.py engine` started."""
        return EngineDirectory(self.folder / "engine").read_record().pid

    async def figure(self, http: aiohttp.ClientSession, name: str, figure: str) -> float:
        """Return a metric of a gateway."""
        url = f"http://127.0.0.1:{self.ports[name]}/metrics"
        async with http.get(url, headers={"Authorization": f"Bearer {METRICS_TOKEN}"}) as response:
            text = await response.text()
        found = re.search(rf"^{figure} (\S+)$", text, re.M)
        assert found is not None, text
        return float(found[1])

    async def blocks(self, name: str) -> int:
        """Return the number of reachable memory blocks of a gateway."""
        file, process = self._blocks_file(name), self.parts[name].process
        assert process is not None
        file.unlink(missing_ok=True)
        os.kill(process.pid, signal.SIGUSR2)

        async def is_told() -> bool:
            return file.exists()

        await wait_for(is_told)
        return int(file.read_text())

    def _blocks_file(self, name: str) -> Path:
        return self.folder / f"{name}.blocks"

    @property
    def objects(self) -> Path:
        """Return the folder in which the gateways keep files of photos."""
        return self.folder / LOCAL_FOLDER

    async def begin_match(self, is_polled: Callable[[], Awaitable[bool]]) -> None:
        """Start the match: it is played by the clock from now on, and the first instance of the pipeline polls it."""
        self._match_began = str(time.time())
        first, *others = CRICKETS
        await self.parts[first].begin()
        # Else another instance, which starts faster, may poll it.
        await wait_for(is_polled)
        for name in others:
            await self.parts[name].begin()

    @asynccontextmanager
    async def running(self, prepare: Callable[[Database], Awaitable[None]]) -> AsyncIterator[Database]:
        """Run the deployment.

        `prepare` is awaited once the tables exist, before the gateways and the feed's pipeline start.
        """
        (self.folder / "engine").mkdir(mode=0o700)
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = ENGINE_KEY
        try:
            await asyncio.gather(*[self.parts[name].begin() for name in ("redis", "engine")])
            async with open_database(StoreOptions(store=self.store, prefix=self.prefix)) as database:
                await make_tables(database)
                await prepare(database)
                await asyncio.gather(*[self.parts[name].begin() for name in (*GATEWAYS, *FEEDS)])
                await asyncio.gather(*[self.parts[name].begin() for name in (PROXY, STATISTICS) if name in self.parts])
                yield database
        finally:
            for part in self.parts.values():
                part.kill()
            os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})


async def _is_there(name: str, part: DeploymentPart) -> bool:
    return part.is_running
