"""A small disk, which tests fill."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MEGABYTE = 2**20
DISK_MEGABYTES = 16
MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2


class Disk:
    """A file system of some megabytes in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"
        self._library = ctypes.CDLL(None, use_errno=True)

    def mount(self, flags: int = 0) -> None:
        given = f"size={DISK_MEGABYTES}m".encode()
        if self._library.mount(b"tmpfs", os.fsencode(self.path), b"tmpfs", flags, given):
            raise OSError(ctypes.get_errno(), "mount")

    def make_read_only(self) -> None:
        self.mount(MS_REMOUNT | MS_RDONLY)

    def unmount(self) -> None:
        self._library.umount2(os.fsencode(self.path), MNT_DETACH)

    def fill(self, all_but: int = 0) -> None:
        """Leave at most this number of bytes free."""
        with self._filling.open("ab", buffering=0) as file:
            try:
                while left := os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize - all_but:
                    if left <= 0:
                        break
                    file.write(bytes(min(left, MEGABYTE)))
            except OSError:
                pass

    def make_room(self) -> None:
        self._filling.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if sys.platform != "linux":
        pytest.skip("Only Linux has a file system in memory to mount.")
    disk = Disk(tmp_path / "disk")
    disk.path.mkdir(mode=0o700)
    try:
        disk.mount()
    except OSError:
        pytest.skip("To mount a small file system takes the rights of root.")
    yield disk
    disk.unmount()
