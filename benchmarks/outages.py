"""The behaviour for clients while the engine is killed or suspended, and after: `python -m benchmarks.outages`."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import ENGINE_KEY
from benchmarks.measuring import run
from benchmarks.server import Server, free_port, serving
from benchmarks.text_table import table
from datastore.database import StoreOptions, open_database
from datastore.engine.process import Child
from datastore.engine.programs import find_program

QUERY = '{ earthquake(eventId: "none") { eventId } }'
OUTAGE_SECONDS = 8.0
ROUNDS = 5
PAUSE_SECONDS = 0.02
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Outage:
    """The latencies of one outage in milliseconds."""

    #: Of the first request.
    first: float
    #: Of the slowest request.
    slowest: float
    #: The median of all but the first.
    later: float
    #: Until `/readyz` reported the outage.
    ready: float
    #: From the engine's return until requests succeed and `/readyz` returns 200.
    recovery: float
    #: The codes of all errors.
    codes: tuple[str, ...]


async def _request(server: Server) -> tuple[float, str]:
    """Send a request. Return its milliseconds, and the code of its error or an empty text."""
    began = time.perf_counter()
    async with server.http.post(f"{server.url}/graphql", json={"query": QUERY}) as response:
        errors = (await response.json()).get("errors") or ()
    return (time.perf_counter() - began) * 1000, errors[0]["extensions"]["code"] if errors else ""


async def _readiness(server: Server) -> tuple[float, int]:
    began = time.perf_counter()
    async with server.http.get(f"{server.url}/readyz") as response:
        return (time.perf_counter() - began) * 1000, response.status


async def _during_outage(server: Server) -> tuple[list[float], float, set[str]]:
    """Send requests during the outage. Return their latencies, that of `/readyz`, and the codes of the errors.

    Raises `RuntimeError` if a request succeeds or the gateway reports that it is ready.
    """
    ends = time.perf_counter() + OUTAGE_SECONDS
    probe = asyncio.create_task(_readiness(server))
    latencies, codes = [], set()
    while time.perf_counter() < ends:
        milliseconds, code = await _request(server)
        latencies.append(milliseconds)
        codes.add(code)
        await asyncio.sleep(PAUSE_SECONDS)
    ready, status = await probe
    if status != 503 or "" in codes:
        raise RuntimeError(f"During the outage /readyz returned {status}, and requests had the codes {codes}.")
    return latencies, ready, codes


async def _recovery_ms(server: Server) -> float:
    """Return the milliseconds until a request succeeds and the gateway is ready."""
    began = time.perf_counter()
    while (await _request(server))[1] or (await _readiness(server))[1] != 200:  # noqa: ASYNC110 - another process
        await asyncio.sleep(PAUSE_SECONDS)
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _gateway_and_engine(folder: Path) -> AsyncIterator[tuple[Server, "_Engine"]]:
    port = free_port()
    engine = _Engine(folder / "engine.sqlite", port)
    await engine.start()
    try:
        url = f"http://127.0.0.1:{port}"
        async with open_database(StoreOptions(store=url)) as database:
            await database.create_tables()
        async with serving(url) as server:
            yield server, engine
    finally:
        await engine.stop()


class _Engine:
    """An engine that can be restarted on the same port and file."""

    def __init__(self, database: Path, port: int) -> None:
        self._database = database
        self._port = port
        self._child: Child | None = None

    async def start(self) -> None:
        self._child = await Child.start(find_program(ROOT), self._port, self._database, ENGINE_KEY)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._child is not None
        await self._child.wait()

    def signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()


async def measure() -> dict[str, list[Outage]]:
    """Kill and restart the engine, then suspend and continue it, in each round. Return the outages by kind."""
    found: dict[str, list[Outage]] = {"killed": [], "suspended": []}
    with TemporaryDirectory() as folder:
        async with _gateway_and_engine(Path(folder)) as (server, engine):
            for _ in range(ROUNDS):
                await engine.kill()
                latencies, ready, codes = await _during_outage(server)
                await engine.start()
                found["killed"].append(_outage(latencies, ready, await _recovery_ms(server), codes))
                engine.signal(signal.SIGSTOP)
                latencies, ready, codes = await _during_outage(server)
                engine.signal(signal.SIGCONT)
                found["suspended"].append(_outage(latencies, ready, await _recovery_ms(server), codes))
    return found


def _outage(latencies: list[float], ready: float, recovery: float, codes: set[str]) -> Outage:
    return Outage(latencies[0], max(latencies), median(latencies[1:]), ready, recovery, tuple(sorted(codes)))


def main() -> int:
    found = run(measure())
    head = ("engine", "first ms", "slowest ms", "median of the others ms", "/readyz ms", "recovery ms", "codes")
    rows = []
    for name, outages in found.items():
        figures = [(outage.first, outage.slowest, outage.later, outage.ready, outage.recovery) for outage in outages]
        worst = [f"{max(column):.1f}" for column in zip(*figures, strict=True)]
        rows.append((name, *worst, ",".join(sorted({code for outage in outages for code in outage.codes}))))
    print(f"The worst of {ROUNDS} outages of {OUTAGE_SECONDS:.0f} s each:")
    print("\n".join(table(head, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
