"""The DynamoDB engines that the suite runs on, chosen by the environment variable `ENGINE` (dynoxide)."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import RequestRefused
from datastore.engine.process import index_stream
from datastore.engine.programs import SERVER, Dynoxide, EngineMissing, find_binary, find_program
from datastore.infrastructure import tables
from datastore.keyspace import TABLES
from datastore.model.access_patterns import Table
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DYNAMODB_LOCAL = ROOT / "build" / "dynamodb-local"
MINISTACK = ROOT / ".venv-ministack" / "bin" / "python"
TESTS_PER_ENGINE = 10
READY = [f"ready{number}__" for number in range(TESTS_PER_ENGINE)]  # see `Engines.prefix`


@dataclass(frozen=True)
class StoreEngine:
    """An engine that speaks DynamoDB's API over HTTP.

    `command` returns the program and its arguments for a port and a file. With `has_file` the engine keeps its tables
    in that file alone. `tests` is how many tests share a process. With `expires` it deletes expired items
    by the machine's clock, which is far ahead of that of tests: then their tables have no TTL.
    """

    name: str
    command: Callable[[int, Path], list[str | Path]]
    has_file: bool = False
    tests: int = 60
    expires: bool = False


def _dynoxide(port: int, database: Path) -> list[str | Path]:
    return [find_binary(ROOT), "serve", "--host", "127.0.0.1", "--port", str(port), "--db-path", database]


def _dynamodb_local(port: int, _: Path) -> list[str | Path]:
    library = f"-Djava.library.path={DYNAMODB_LOCAL / 'DynamoDBLocal_lib'}"
    jar = DYNAMODB_LOCAL / "DynamoDBLocal.jar"
    # The process runs for seconds only: the simplest compiler and garbage collector halve its CPU time.
    short_lived = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *short_lived, library, "-jar", jar, "-inMemory", "-sharedDb", "-port", str(port)]


def _ministack(port: int, _: Path) -> list[str | Path]:
    return [MINISTACK, "-I", SERVER, str(port)]


def _default() -> str:
    """Return dynoxide, or MiniStack where dynoxide is not installed, as the gateway chooses."""
    try:
        return "dynoxide" if isinstance(find_program(ROOT), Dynoxide) else "ministack"
    except EngineMissing:
        return "dynoxide"  # the first test that needs it fails with instructions


ENGINES = {
    engine.name: engine
    for engine in (
        StoreEngine("dynoxide", _dynoxide, has_file=True, tests=TESTS_PER_ENGINE),
        StoreEngine("dynamodb-local", _dynamodb_local, expires=True),
        StoreEngine("ministack", _ministack, expires=True),
    )
}
ENGINE = ENGINES[os.environ.get("ENGINE") or _default()]


class Engines:
    """Starts engines one after another, each for some tests: creating a table takes longer the more tables there are.

    With a template each engine begins as a copy of that file, and `prefix` names tables in it that no other test used.
    """

    def __init__(self, template: Path | None = None) -> None:
        self._template = template
        self._tests = 0
        self._url = ""
        self._prefix = ""
        self._running = ExitStack()

    def next(self) -> str:
        """Return the URL of an engine for the next test."""
        if self._tests % ENGINE.tests == 0:
            self.close()
            path = Path(self._running.enter_context(in_memory())) / "engine.sqlite"
            if self._template:
                shutil.copyfile(self._template, path)
            self._url = self._running.enter_context(running_engine(path))
        self._prefix = READY[self._tests % TESTS_PER_ENGINE] if self._template else new_prefix()
        self._tests += 1
        return self._url

    @property
    def prefix(self) -> str:
        """The prefix of the tables for the current test."""
        return self._prefix

    def close(self) -> None:
        self._running.close()


@contextmanager
def engines_for_tests() -> Iterator[Engines]:
    """Yield engines with prepared tables where copying their file is faster than creating them."""
    with in_memory() as folder:
        engines = Engines(_with_tables(Path(folder)) if ENGINE.has_file else None)
        try:
            yield engines
        finally:
            engines.close()


def in_memory() -> TemporaryDirectory[str]:
    """Return a folder in memory if the system has one: an engine waits for a slow disk with each table."""
    shared = Path("/dev/shm")
    return TemporaryDirectory(dir=shared if shared.is_dir() else None)


def _with_tables(folder: Path) -> Path:
    """Create an engine's file with the tables for all tests of an engine: copying it is faster than creating them."""

    async def make(url: str) -> None:
        for prefix in READY:
            async with open_database(StoreOptions(store=url, prefix=prefix)) as database:
                await create_tables(database)

    made, template = folder / "made.sqlite", folder / "template.sqlite"
    with running_engine(made) as url:
        asyncio.run(make(url))
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("VACUUM INTO ?", [str(template)])
    return template


@contextmanager
def running_engine(database: Path) -> Iterator[str]:
    """Run an engine of the chosen kind. Yield its URL."""
    port = free_port()
    try:
        command = ENGINE.command(port, database)
    except EngineMissing as missing:
        pytest.fail(str(missing))
    process = subprocess.Popen(
        command,
        cwd=database.parent,  # DynamoDB Local leaves a file there
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(process, url)
        if ENGINE.has_file:
            index_stream(database)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(3000):
        try:
            with urlopen(url, timeout=30):
                return
        except HTTPError:
            return  # it responds, with an error
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.01)
    raise RuntimeError(f"The engine {ENGINE.name} does not start.")


def new_prefix() -> str:
    """Return a prefix for tables that do not exist."""
    return f"t{uuid.uuid4().hex[:12]}__"


async def make_tables(database: Database) -> None:
    """Create the declared tables that are missing."""
    if database.prefix not in READY:
        await create_tables(database)


async def create_tables(database: Database) -> None:
    """Create the tables with our own client: boto3 takes ten times as long."""

    async def make(table: Table) -> None:
        name = database.prefix + table.name
        try:
            await database.client.call("CreateTable", tables.create_table_request(table, database.prefix), timeout=60.0)
        except RequestRefused as refusal:
            if refusal.code != "ResourceInUseException":
                raise
            return
        if table.ttl and not ENGINE.expires:
            expiry = {"Enabled": True, "AttributeName": table.ttl}
            await database.client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": expiry})

    await asyncio.gather(*[make(table) for table in TABLES])
