"""The data directory of an embedded engine: its database, the owner's lock and the owner's record.

Other commands find the engine by the record.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from datastore.engine.access_key import stored_key
from datastore.private_files import open_private_folder, write_private_file

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class EngineRecord(NamedTuple):
    """The owner's record: the endpoint, process id and access key of the engine."""

    endpoint: str
    pid: int
    key: str


class EngineDirectory:
    """The database, the owner's lock and the owner's record.

    An engine in memory has a separate lock and record there, and no database.
    """

    def __init__(self, path: Path, file: str = "engine.sqlite", memory: bool = False) -> None:
        name = "memory" if memory else "engine"
        self.database = None if memory else path / file
        self.lock = path / f"{name}.lock"
        self.owned = False
        self._record = path / f"{name}.json"
        self._descriptor: int | None = None

    def open(self) -> None:
        open_private_folder(self.lock.parent)
        self._descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self) -> bool:
        """Return whether this process owns the lock, after trying to acquire it. It is released when the owner ends."""
        if self._descriptor is not None and not self.owned:
            with suppress(BlockingIOError, PermissionError):
                _lock(self._descriptor)
                self.owned = True
        return self.owned

    def write_record(self, record: EngineRecord) -> None:
        """Replace the record atomically. Raises `OSError`."""
        write_private_file(self._record, json.dumps(record._asdict()))

    def read_record(self) -> EngineRecord:
        """Return the owner's record, an empty one if it is missing or cannot be read."""
        try:
            record = json.loads(self._record.read_text())
            return EngineRecord(str(record["endpoint"]), int(record["pid"]), str(record["key"]))
        except (OSError, ValueError, KeyError, TypeError):
            return EngineRecord("", 0, "")

    def key(self) -> str:
        """Return the access key of engines on this directory, for the owner. Raises `OSError` and `KeyUnusable`."""
        return stored_key(self.lock.parent)

    def close(self) -> None:
        if self.owned:
            with suppress(OSError):  # on a read-only disk a stale record does no harm
                self._record.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self.owned, self._descriptor = False, None
