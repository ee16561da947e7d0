"""A file that arrives in the folder of the local object store: it takes its place whole, or not at all."""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datastore.errors import Unavailable
from datastore.objects import STALE, UPLOAD_LIFETIME

logger = logging.getLogger(__name__)


class UploadGone(Exception):
    """The files of an upload were removed while one of them was on its way: it is not waited for any more."""


class Receiving:
    """A file that is on its way. It takes its place only when it is `kept`, and is gone otherwise."""

    def __init__(self, file: BinaryIO, partial: Path, place: Path) -> None:
        self._file = file
        self._partial = partial
        self._place = place

    def write(self, content: bytes) -> None:
        """Raises `Unavailable` when the disk is full or broken."""
        with told():
            self._file.write(content)

    def keep(self) -> None:
        """Raises `UploadGone` and `Unavailable`. What is kept outlives a loss of power, as what the tables say of it
        does.
        """
        with told():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            try:
                self._partial.replace(self._place)
            except FileNotFoundError:
                raise UploadGone from None
            _settle(self._place.parent)


class Arriving:
    """An incoming file that is on its way, entered in the ledger. `rename` enters it as what it becomes."""

    def __init__(self, receiving: Receiving, rename: Callable[[int, float], None], seconds: float) -> None:
        self.write = receiving.write
        self.is_kept = False
        self._receiving = receiving
        self._rename = rename
        self._seconds = seconds

    def keep(self, size: int) -> None:
        """Have it take its place, with so many bytes. Raises as `Receiving.keep` does."""
        self._receiving.keep()
        self.is_kept = True
        self._rename(size, time.time() + self._seconds + (STALE - UPLOAD_LIFETIME).total_seconds())


def _settle(folder: Path) -> None:
    """Have the names of a folder's files written to the disk, where the system lets one. Raises `OSError`."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders
    try:
        os.fsync(opened)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system that does not know how
            raise
    finally:
        os.close(opened)


@contextmanager
def told() -> Iterator[None]:
    """A full or broken disk is told as an outage of S3 would be."""
    try:
        yield
    except OSError as problem:
        logger.error("A file cannot be kept or read: %s.", problem)
        raise Unavailable("Files cannot be kept or read at the moment; try again.") from problem
