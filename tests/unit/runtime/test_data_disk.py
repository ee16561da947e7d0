"""The disk of the data directory: what is logged as it fills, and its metrics."""

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from runtime.data_disk import FULL_BYTES, DataDisk

GIGABYTE = 2**30


def test_each_change_of_the_space_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runtime.data_disk")
    usage = SimpleNamespace(total=10 * GIGABYTE, free=5 * GIGABYTE)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    disk = DataDisk(tmp_path)
    for free in (5 * GIGABYTE, GIGABYTE - 1, 2**28, FULL_BYTES - 1, 0, 2**28, 5 * GIGABYTE):
        usage.free = free
        disk.check()

    assert caplog.messages == [
        f"The disk of {tmp_path} has only 1023 MB left: free some space.",
        f"The disk of {tmp_path} is full: free some space. Writes are refused until then.",
        f"The disk of {tmp_path} has only 256 MB left: free some space.",
        f"The disk of {tmp_path} has enough space again.",
    ]


def test_the_metrics_have_values_once_the_directory_exists(tmp_path: Path) -> None:
    folder, registry = tmp_path / "data", CollectorRegistry()
    disk = DataDisk(folder)
    registry.register(disk)
    assert registry.get_sample_value("gateway_disk_free_bytes") is None
    disk.check()
    folder.mkdir()
    free, size = (registry.get_sample_value(f"gateway_disk_{name}_bytes") for name in ("free", "size"))
    assert free is not None
    assert size is not None
    assert 0 < free <= size
