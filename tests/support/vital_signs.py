"""Samples the resources of a deployment's processes: memory, descriptors, threads, tasks."""

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median

import aiohttp

from tests.support.deployment import GATEWAYS, Deployment, ProcessHandle

MB = 2**20
MEMORY = re.compile(rb"used_memory:(\d+)")


@dataclass(frozen=True)
class Trend:
    """A figure of a process: the medians of the first and the last fifth of the samples, and its growth per minute.

    `least` and `most` are those of all samples. The trend begins after the first tenth, because caches fill first.
    """

    first: float
    last: float
    least: float
    most: float
    per_minute: float


class VitalSigns:
    """Samples by process and figure, each with its second."""

    def __init__(self, deployment: Deployment, http: aiohttp.ClientSession) -> None:
        self._deployment = deployment
        self._http = http
        self._began = time.monotonic()
        self.samples: dict[tuple[str, str], list[tuple[float, float]]] = {}

    async def watch(self, every: float) -> None:
        """Take samples until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(every)

    async def look(self) -> None:
        parts = self._deployment.parts
        for name, part in parts.items():
            if name not in ("redis", "engine") and part.process is not None:
                self._of_process(name, part.process)
        child = self._deployment.engine_child()
        if child:
            self._note("engine", "RSS MB", resident_megabytes(child))
            self._note("engine", "descriptors", len(os.listdir(f"/proc/{child}/fd")))
        files = (self._deployment.folder / "engine").glob("engine.sqlite*")
        self._note("engine", "database MB", sum(file.stat().st_size for file in files) / MB)
        self._note("redis", "memory MB", await self._redis())
        for name in GATEWAYS:
            self._note(name, "tasks", await self._deployment.figure(self._http, name, "gateway_tasks"))

    def _of_process(self, name: str, process: ProcessHandle) -> None:
        links = []
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(descriptor))
        self._note(name, "RSS MB", resident_megabytes(process.pid))
        self._note(name, "descriptors", len(links))
        self._note(name, "sockets", sum(link.startswith("socket:") for link in links))
        self._note(name, "threads", len(os.listdir(f"/proc/{process.pid}/task")))

    async def _redis(self) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._deployment.ports["redis"])
        writer.write(b"INFO memory\r\n")
        found = MEMORY.search(await reader.readuntil(b"used_memory_human"))
        writer.close()
        assert found is not None
        return int(found[1]) / MB

    def _note(self, name: str, figure: str, value: float) -> None:
        self.samples.setdefault((name, figure), []).append((time.monotonic() - self._began, value))

    def trend(self, name: str, figure: str) -> Trend:
        samples = self.samples[name, figure]
        samples = samples[len(samples) // 10 :]
        fifth = max(1, len(samples) // 5)
        seconds, values = zip(*samples, strict=True)
        slope = linear_regression(seconds, values).slope if len(samples) > 1 else 0.0
        return Trend(median(values[:fifth]), median(values[-fifth:]), min(values), max(values), 60 * slope)

    def report(self) -> str:
        lines = ["| process | | first fifth | last fifth | least | most | a minute |", "|---|---|--:|--:|--:|--:|--:|"]
        for name, figure in self.samples:
            trend = self.trend(name, figure)
            numbers = [f"{value:,.1f}" for value in (trend.first, trend.last, trend.least, trend.most)]
            lines.append(f"| {name} | {figure} | {' | '.join(numbers)} | {trend.per_minute:+.2f} |")
        return "\n".join(lines)


def resident_megabytes(process_id: int) -> float:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / MB
