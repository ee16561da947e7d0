"""The embedded search index: one SQLite file in the data directory, with FTS5.

All processes of the machine read the file. The consumers of the stream write it; SQLite allows one writer at a time.
Each kind has a table of entries and a table of their words with the same row ids. A row id is the entry's order, so
FTS5 yields the newest first and stops when a page is full. https://www.sqlite.org/fts5.html
"""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import orjson

from datastore.errors import Unavailable
from datastore.model.timestamps import from_iso, iso
from datastore.private_files import FILE_MODE, OTHERS_PERMISSIONS, make_private_folder
from datastore.search import Audience, BuildReplaced, Kind, Position, SearchEntry, SearchHit, Status
from datastore.search.fts_queries import tiers
from datastore.search.queries import Query

T = TypeVar("T")

SCHEMA_VERSION = 1
READERS = 2
BUSY_SECONDS = 10.0
BUSY_POLL_SECONDS = 0.01
SEARCH_SECONDS = 1.0
STEPS_BETWEEN_CHECKS = 10_000  # instructions of SQLite's virtual machine: about a millisecond
# The two files of the write-ahead log are deleted with the file.
SUFFIXES = ("", "-wal", "-shm")

logger = logging.getLogger(__name__)


class SqliteIndex:
    """The index in a file. Only their owner can use the file and its directory, which are created on first use.

    All SQLite calls run in threads: one for writes and two for searches. A `temporary` file is deleted when the index
    is closed.
    """

    def __init__(self, path: Path, *, temporary: bool = False) -> None:
        self.path = path
        self._temporary = temporary
        self._writer = ThreadPoolExecutor(1, "search-write")
        self._readers = ThreadPoolExecutor(READERS, "search-read")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._opening = threading.Lock()

    async def write(self, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        await self._run(self._writer, partial(self._write, kind, entries, None))

    async def search(
        self, kind: Kind, query: Query, limit: int, after: Position | None = None, audience: Audience | None = None
    ) -> list[SearchHit]:
        return await self._run(self._readers, partial(self._search, kind, query, limit, after, audience))

    async def begin_rebuild(self) -> str:
        return await self._run(self._writer, self._begin)

    async def fill(self, build: str, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        await self._run(self._writer, partial(self._write, kind, entries, build))

    async def finish_rebuild(self, build: str, source: str, now: datetime) -> None:
        await self._run(self._writer, partial(self._finish, build, source, now))

    async def status(self) -> Status:
        return await self._run(self._readers, self._status)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def discard(self) -> None:
        """Delete the file when the index is closed."""
        self._temporary = True

    # In worker threads

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, self._with_connection, work)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connection())
        except sqlite3.Error as problem:
            logger.warning("The search index %s is not available: %s", self.path, problem)
            self._forget_connection()
            raise Unavailable("Search is not available at the moment; try again.") from problem
        except OSError as problem:
            logger.warning("The search index %s is not available: %s", self.path, problem)
            raise Unavailable("Search is not available at the moment; try again.") from problem

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._opening:
                connection = self._open()
                self._connections.append(connection)
            self._local.connection = connection
        return connection

    def _forget_connection(self) -> None:
        """Close the connection: opening the next one checks whether the file can be read."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            self._connections.remove(connection)
            connection.close()

    def _open(self) -> sqlite3.Connection:
        make_private_folder(self.path.parent)
        _check_owner(self.path.parent)
        try:
            return self._prepare()
        except sqlite3.OperationalError:
            raise  # the file is busy, or the disk is full
        except sqlite3.DatabaseError as problem:
            logger.error("The search index %s is damaged (%s); replacing it with an empty one.", self.path, problem)
            self._delete_files()
            return self._prepare()

    def _prepare(self) -> sqlite3.Connection:
        # For a new file only: closing a file that this process's SQLite has open would drop SQLite's locks.
        # https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _enter_wal_mode(connection)
            # A power failure may lose the last writes. That is acceptable, since a rebuild restores them.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -16000")
            with _transaction(connection):
                _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._readers.shutdown(wait=True, cancel_futures=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if self._temporary:
            self._delete_files()
            with suppress(OSError):
                self.path.parent.rmdir()

    def _delete_files(self) -> None:
        for suffix in SUFFIXES:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _write(
        self, kind: Kind, entries: Sequence[SearchEntry], build: str | None, connection: sqlite3.Connection
    ) -> None:
        with _transaction(connection):
            numbers = _numbers(connection) if build is None else [_number_of(connection, build)]
            for number in numbers:
                for entry in entries:
                    _put(connection, f"{kind}_{number}", entry)

    def _search(
        self,
        kind: Kind,
        query: Query,
        limit: int,
        after: Position | None,
        audience: Audience | None,
        connection: sqlite3.Connection,
    ) -> list[SearchHit]:
        deadline = time.monotonic() + SEARCH_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
        try:
            with _snapshot(connection):
                table = f"{kind}_{_state(connection)['current']}"
                return _search_tiers(connection, table, query, limit, after, audience)
        finally:
            connection.set_progress_handler(None, 0)

    def _begin(self, connection: sqlite3.Connection) -> str:
        build = uuid4().hex
        with _transaction(connection):
            state = _state(connection)
            number = int(state["last"]) + 1
            if "building" in state:
                _drop(connection, state["building_number"])
            _make_index(connection, number)
            _save(connection, last=str(number), building=build, building_number=str(number))
        return build

    def _finish(self, build: str, source: str, now: datetime, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            number = _number_of(connection, build)
            _drop(connection, _state(connection)["current"])
            _save(connection, current=number, source=source, built_at=iso(now), building=None, building_number=None)

    def _status(self, connection: sqlite3.Connection) -> Status:
        with _snapshot(connection):
            state = _state(connection)
            entries = {kind: _count(connection, f"{kind}_{state['current']}") for kind in Kind}
        built_at = state.get("built_at")
        return Status(entries, state.get("source"), from_iso(built_at) if built_at else None, state.get("building"))


def _enter_wal_mode(connection: sqlite3.Connection) -> None:
    """Set the journal mode. Wait while another connection writes: SQLite's own timeout does not cover this change."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_POLL_SECONDS)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read from a single snapshot of the file, unaffected by concurrent writes."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _check_owner(folder: Path) -> None:
    """Raise `PermissionError` for a folder that other users can access: any user can create one in shared memory."""
    found = folder.lstat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & OTHERS_PERMISSIONS):
        raise PermissionError(f"{folder} can be used by other users: remove it, or run `chmod 700` on it")


def _make_tables(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found == SCHEMA_VERSION:
        return
    if found:
        raise sqlite3.DatabaseError(f"another version of the gateway created it ({found})")
    connection.execute("CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    _make_index(connection, 1)
    _save(connection, current="1", last="1")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _make_index(connection: sqlite3.Connection, number: int) -> None:
    """Create the tables of an index. Removed entries have negative row ids, and no words."""
    for kind in Kind:
        connection.execute(
            f"CREATE TABLE {kind}_{number} (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, version TEXT NOT NULL,"
            " author TEXT NOT NULL, visibility TEXT NOT NULL)"
        )
        # The words are already folded and split: this tokenizer changes ASCII letters only.
        connection.execute(
            f"CREATE VIRTUAL TABLE {kind}_{number}_words USING fts5(words, tags, columnsize = 0, prefix = '1 2 3',"
            " tokenize = \"ascii tokenchars '_'\")"
        )


def _drop(connection: sqlite3.Connection, number: str) -> None:
    for kind in Kind:
        connection.execute(f"DROP TABLE {kind}_{number}_words")
        connection.execute(f"DROP TABLE {kind}_{number}")


def _state(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM state").fetchall())


def _save(connection: sqlite3.Connection, **values: str | None) -> None:
    for name, value in values.items():
        if value is None:
            connection.execute("DELETE FROM state WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _numbers(connection: sqlite3.Connection) -> list[str]:
    """Return the numbers of the current index and of the index that a rebuild fills."""
    state = _state(connection)
    return [state[name] for name in ("current", "building_number") if name in state]


def _number_of(connection: sqlite3.Connection, build: str) -> str:
    state = _state(connection)
    if state.get("building") != build:
        raise BuildReplaced
    return state["building_number"]


def _put(connection: sqlite3.Connection, table: str, entry: SearchEntry) -> None:
    found = connection.execute(f"SELECT place, version FROM {table} WHERE id = ?", (entry.id,)).fetchone()
    if found is not None and found[1] >= entry.version:
        return
    if found is not None:
        connection.execute(f"DELETE FROM {table} WHERE place = ?", found[:1])
        if found[0] >= 0:
            connection.execute(f"DELETE FROM {table}_words WHERE rowid = ?", found[:1])
    place = _free_row_id(connection, table, entry)
    connection.execute(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", (place, entry.id, entry.version, entry.author, entry.visibility)
    )
    if not entry.removed:
        connection.execute(
            f"INSERT INTO {table}_words (rowid, words, tags) VALUES (?, ?, ?)", (place, entry.words, entry.tags)
        )


def _free_row_id(connection: sqlite3.Connection, table: str, entry: SearchEntry) -> int:
    """Return the row id: the entry's order or the next free id; for a removed entry an id below all others."""
    if entry.removed:
        lowest: int | None = connection.execute(f"SELECT min(place) FROM {table}").fetchone()[0]
        return min(lowest or 0, 0) - 1
    place = entry.order
    while connection.execute(f"SELECT 1 FROM {table} WHERE place = ?", (place,)).fetchone():
        place += 1
    return place


def _search_tiers(
    connection: sqlite3.Connection,
    table: str,
    query: Query,
    limit: int,
    after: Position | None,
    audience: Audience | None,
) -> list[SearchHit]:
    hits: list[SearchHit] = []
    for score, expression in tiers(query):
        if after is not None and score > after.score:
            continue
        below = after.order if after is not None and score == after.score else None
        statement, values = _statement(table, expression, below, audience)
        rows = connection.execute(statement, (*values, limit - len(hits))).fetchall()
        hits += [SearchHit(Position(score, place, id), author, visibility) for place, id, author, visibility in rows]
        if len(hits) >= limit:
            break
    return hits


def _statement(
    table: str, expression: str, below: int | None, audience: Audience | None
) -> tuple[str, tuple[str | int, ...]]:
    clauses, parameters = [f"{table}_words MATCH ?"], list[str | int]([expression])
    if below is not None:
        clauses.append("words.rowid < ?")
        parameters.append(below)
    if audience is not None and audience.user_id is None:
        clauses.append("entries.visibility NOT IN ('private', 'followers')")
    elif audience is not None:
        clauses.append("(entries.visibility <> 'private' OR entries.author = ?)")
        parameters.append(audience.user_id or "")
        if audience.followees is not None:
            # Pass the list as one JSON value: SQLite limits the number of parameters.
            listed = "SELECT value FROM json_each(?)"
            clauses.append(f"(entries.visibility <> 'followers' OR entries.author IN ({listed}))")
            parameters.append(orjson.dumps([audience.user_id, *audience.followees]).decode())
    # CROSS JOIN fixes the join order: SQLite starts with the matching words, the newest first.
    return (
        f"SELECT words.rowid, entries.id, entries.author, entries.visibility FROM {table}_words AS words"
        f" CROSS JOIN {table} AS entries ON entries.place = words.rowid WHERE {' AND '.join(clauses)}"
        " ORDER BY words.rowid DESC LIMIT ?",
        tuple(parameters),
    )


def _count(connection: sqlite3.Connection, table: str) -> int:
    count: int = connection.execute(f"SELECT count(*) FROM {table} WHERE place >= 0").fetchone()[0]
    return count
