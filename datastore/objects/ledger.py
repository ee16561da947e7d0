"""The ledger of the files in `incoming/`: sizes and owners, in a SQLite database that all processes of a host share.

A file is entered with its maximum size before its first byte is written, and its entry is removed after the file. So
the sums are never below the bytes on the disk, even if a process is killed. An entry has an expiry time, after which
the file is swept.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from datastore.errors import Throttled, Unavailable
from datastore.private_files import make_private_folder

# The minimum size that a file counts as. It bounds the number of files, too.
MIN_BYTES = 65_536
BUSY_SECONDS = 5.0
RETRY_SECONDS = 60

_TABLES = """
CREATE TABLE IF NOT EXISTS incoming (
    name TEXT PRIMARY KEY, whose TEXT NOT NULL, bytes INTEGER NOT NULL, until REAL NOT NULL
) WITHOUT ROWID;
-- The sum of each user, and that of all users under an empty name, so that no transaction adds them up.
CREATE TABLE IF NOT EXISTS totals (whose TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS entered AFTER INSERT ON incoming BEGIN
    INSERT INTO totals VALUES (new.whose, new.bytes), ('', new.bytes)
        ON CONFLICT (whose) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF bytes ON incoming BEGIN
    UPDATE totals SET bytes = bytes + new.bytes - old.bytes WHERE whose IN (old.whose, '');
END;
CREATE TRIGGER IF NOT EXISTS struck AFTER DELETE ON incoming BEGIN
    UPDATE totals SET bytes = bytes - old.bytes WHERE whose IN (old.whose, '');
    DELETE FROM totals WHERE whose = old.whose AND bytes <= 0;
END;
"""


@dataclass(frozen=True, slots=True)
class IncomingLimits:
    """The maximum bytes of uploads in `incoming/`: in total, and of one user. 0 means no limit."""

    total: int = 0
    per_user: int = 0


class Ledger:
    """The entries of files by their names, in the database at `path`.

    All methods block, and may be called in any thread. They raise `Unavailable` if the database cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, owner: str, size: int, expires_at: float, limits: IncomingLimits) -> None:
        """Enter a file of at most `size` bytes that will be written. `expires_at` is in epoch seconds.

        Raises `Throttled` if the limit of the user, and `Unavailable` if that of all users would be exceeded.
        """
        size = max(size, MIN_BYTES)
        with self._transaction() as database:
            totals = dict(database.execute("SELECT whose, bytes FROM totals WHERE whose IN (?, '')", (owner,)))
            if limits.per_user and totals.get(owner, 0) + size > limits.per_user:
                most = f"at most {limits.per_user:,} bytes together"
                message = f"Your unfinished uploads may have {most}: complete or cancel some."
                raise Throttled(message, retryAfter=RETRY_SECONDS)
            if limits.total and totals.get("", 0) + size > limits.total:
                message = "There is no room for more uploads at the moment; try again."
                raise Unavailable(message, retryAfter=RETRY_SECONDS)
            database.execute("INSERT INTO incoming VALUES (?, ?, ?, ?)", (name, owner, size, expires_at))

    def rename(self, name: str, to: str, size: int, expires_at: float) -> None:
        """Record that a file was renamed, and may have replaced another one. `size` is in bytes."""
        with self._transaction() as database:
            database.execute("DELETE FROM incoming WHERE name = ?", (to,))
            changed = (to, max(size, MIN_BYTES), expires_at, name)
            database.execute("UPDATE incoming SET name = ?, bytes = ?, until = ? WHERE name = ?", changed)

    def remove(self, names: Iterable[str]) -> None:
        """Remove the entries of deleted files, if they have any."""
        deleted = [(name,) for name in names]
        if not deleted or not self._path.exists():
            return
        with self._transaction() as database:
            database.executemany("DELETE FROM incoming WHERE name = ?", deleted)

    def expirations(self) -> dict[str, float]:
        """Return the expiry of each file, in epoch seconds."""
        if not self._path.exists():
            return {}
        with self._transaction() as database:
            return dict(database.execute("SELECT name, until FROM incoming"))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that excludes those of other processes."""
        try:
            with closing(self._open()) as database:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
        except sqlite3.DatabaseError as problem:
            self._drop_if_damaged(problem)
            raise Unavailable("Files cannot be kept at the moment; try again.") from problem
        except OSError as problem:
            raise Unavailable("Files cannot be kept at the moment; try again.") from problem

    def _open(self) -> sqlite3.Connection:
        """Open a connection for one transaction, so that it outlives no fork and never uses a replaced database."""
        is_new = not self._path.exists()
        if is_new:
            make_private_folder(self._path.parent)
            # SQLite creates the journal with the same permissions.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            # Killed processes do not damage the database. A power loss may; a new database then replaces it.
            database.execute("PRAGMA synchronous = OFF")
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'struck'").fetchone():
                database.executescript(_TABLES)
        except BaseException:
            database.close()
            raise
        return database

    def _drop_if_damaged(self, problem: sqlite3.DatabaseError) -> None:
        """Delete a damaged database. Its files are then swept by their age, like all files without an entry."""
        if problem.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            for path in (self._path, self._path.with_name(f"{self._path.name}-journal")):
                with suppress(OSError):
                    path.unlink()
