"""Partial files in the folder of the local object store: a file appears under its name complete, or not at all."""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datastore.errors import Unavailable
from datastore.objects import STALE_AGE, UPLOAD_LIFETIME

logger = logging.getLogger(__name__)


class UploadGone(Exception):
    """The files of an upload were deleted while one of them was being received."""


class PartialFile:
    """A file under a temporary name. `keep` moves it to its place; otherwise it is removed."""

    def __init__(self, file: BinaryIO, partial: Path, target: Path) -> None:
        self._file = file
        self._partial = partial
        self._target = target

    def write(self, content: bytes) -> None:
        """Append to the file. Raises `Unavailable` if the disk is full or fails."""
        with translate_disk_errors():
            self._file.write(content)

    def keep(self) -> None:
        """Move the file to its place, so that it survives a power loss like the items of the tables.

        Raises `UploadGone` and `Unavailable`.
        """
        with translate_disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            try:
                self._partial.replace(self._target)
            except FileNotFoundError:
                raise UploadGone from None
            _sync_folder(self._target.parent)


class IncomingFile:
    """A partial file of an upload, which the ledger counts.

    `rename` updates the entry in the ledger when the file takes its place.
    """

    def __init__(self, file: PartialFile, rename: Callable[[int, float], None], seconds: float) -> None:
        self.write = file.write
        self.is_kept = False
        self._file = file
        self._rename = rename
        self._seconds = seconds

    def keep(self, size: int) -> None:
        """Move the file, of `size` bytes, to its place. Raises as `PartialFile.keep` does."""
        self._file.keep()
        self.is_kept = True
        self._rename(size, time.time() + self._seconds + (STALE_AGE - UPLOAD_LIFETIME).total_seconds())


def _sync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk, where the system allows it. Raises `OSError`."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders
    try:
        os.fsync(opened)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # the file system does not support it
            raise
    finally:
        os.close(opened)


@contextmanager
def translate_disk_errors() -> Iterator[None]:
    """Raise `Unavailable` for an `OSError`, as an outage of S3 does, and log what the system reports."""
    try:
        yield
    except OSError as problem:
        logger.error("A file cannot be stored or read: %s.", problem)
        raise Unavailable("Files cannot be stored or read at the moment; try again.") from problem
