"""The disk of a data directory: its free space, as metrics and in the log."""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

CHECK_SECONDS = 10.0
# The free space below which the disk is reported: first as a share of its size, then as full.
LEAST_SHARE = 0.1
FULL_BYTES = 2**20

logger = logging.getLogger(__name__)


class DataDisk(Collector):
    """The disk with a data directory, as a collector of metrics. Before the directory exists, it has no values."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported = ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        free = GaugeMetricFamily("gateway_disk_free_bytes", "Bytes left on the disk of the data directory.")
        size = GaugeMetricFamily("gateway_disk_size_bytes", "The size of the disk of the data directory.")
        if (space := free_space(self._folder)) is not None:
            free.add_metric([], space[0])
            size.add_metric([], space[1])
        yield from (free, size)

    async def watch(self) -> None:
        """Check the space every ten seconds, and log each change between enough, little and none."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Log the free space if it has become too little, or enough again."""
        if (space := free_space(self._folder)) is None:
            return
        free, size = space
        state = "full" if free < FULL_BYTES else "filling" if free < LEAST_SHARE * size else ""
        if state == self._reported:
            return
        self._reported = state
        if state == "full":
            logger.error("The disk of %s is full: free some space. Writes are refused until then.", self._folder)
        elif state == "filling":
            logger.warning("The disk of %s has only %d MB left: free some space.", self._folder, free // 2**20)
        else:
            logger.info("The disk of %s has enough space again.", self._folder)


def free_space(folder: Path) -> tuple[int, int] | None:
    """Return the bytes that this user may still write, and the size of the disk; None if the folder cannot be read."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free, usage.total
