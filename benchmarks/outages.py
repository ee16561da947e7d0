"""What clients see when the engine is killed, or stands still, and comes back: `python -m benchmarks.outages`."""

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
AWAY_SECONDS = 8.0
ROUNDS = 5
EACH = 0.02
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Outage:
    """Milliseconds: of the first request, of the slowest, the median of all others, and of `/readyz` until it says so.

    `recovery` is from the engine's return until requests are answered; `codes` are those of all errors.
    """

    first: float
    slowest: float
    later: float
    ready: float
    recovery: float
    codes: tuple[str, ...]


async def _asked(server: Server) -> tuple[float, str]:
    """Milliseconds and the code of the error, if there is one."""
    began = time.perf_counter()
    async with server.http.post(f"{server.url}/graphql", json={"query": QUERY}) as response:
        errors = (await response.json()).get("errors") or ()
    return (time.perf_counter() - began) * 1000, errors[0]["extensions"]["code"] if errors else ""


async def _readiness(server: Server) -> tuple[float, int]:
    began = time.perf_counter()
    async with server.http.get(f"{server.url}/readyz") as response:
        return (time.perf_counter() - began) * 1000, response.status


async def _while_away(server: Server) -> tuple[list[float], float, set[str]]:
    """Ask until it has been away for long enough: what requests took, and how long `/readyz` took."""
    ends = time.perf_counter() + AWAY_SECONDS
    probe = asyncio.create_task(_readiness(server))
    took, codes = [], set()
    while time.perf_counter() < ends:
        milliseconds, code = await _asked(server)
        took.append(milliseconds)
        codes.add(code)
        await asyncio.sleep(EACH)
    ready, status = await probe
    if status != 503 or "" in codes:
        raise RuntimeError(f"The engine was away, and /readyz said {status}, requests {codes}.")
    return took, ready, codes


async def _back(server: Server) -> float:
    """Milliseconds until a request is answered and the gateway is ready again."""
    began = time.perf_counter()
    while (await _asked(server))[1] or (await _readiness(server))[1] != 200:  # noqa: ASYNC110 - it tells no event
        await asyncio.sleep(EACH)
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _killed(folder: Path) -> AsyncIterator[tuple[Server, "_Engine"]]:
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
    """On one port, for one life after the other."""

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
    """Each round kills the engine and starts it again, and has it stand still and go on."""
    found: dict[str, list[Outage]] = {"killed": [], "stands still": []}
    with TemporaryDirectory() as folder:
        async with _killed(Path(folder)) as (server, engine):
            for _ in range(ROUNDS):
                await engine.kill()
                took, ready, codes = await _while_away(server)
                await engine.start()
                found["killed"].append(_outage(took, ready, await _back(server), codes))
                engine.signal(signal.SIGSTOP)
                took, ready, codes = await _while_away(server)
                engine.signal(signal.SIGCONT)
                found["stands still"].append(_outage(took, ready, await _back(server), codes))
    return found


def _outage(took: list[float], ready: float, recovery: float, codes: set[str]) -> Outage:
    return Outage(took[0], max(took), median(took[1:]), ready, recovery, tuple(sorted(codes)))


def main() -> int:
    found = run(measure())
    head = ("engine", "first ms", "slowest ms", "median of the others ms", "/readyz ms", "back ms", "codes")
    rows = []
    for name, outages in found.items():
        columns = zip(*[(one.first, one.slowest, one.later, one.ready, one.recovery) for one in outages], strict=True)
        worst = [f"{max(column):.1f}" for column in columns]
        rows.append((name, *worst, ",".join(sorted({code for one in outages for code in one.codes}))))
    print(f"The worst of {ROUNDS} outages of {AWAY_SECONDS:.0f} s each:")
    print("\n".join(table(head, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
