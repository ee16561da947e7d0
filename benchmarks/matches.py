"""Live matches: the cost of their ticks, and the latency from a ball to a subscriber."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import aiohttp
import orjson

from benchmarks.child import Child
from benchmarks.match_pipeline import polling
from benchmarks.measuring import percentile
from benchmarks.server import READS, Server, serving
from datastore.database import StoreOptions, open_database
from pipelines.matches.live.orchestrator import RECONCILE_SECONDS, TICK_SECONDS

# A ball every 3.4 seconds, or 6.9 at the end of an over: about half of all ticks find a change.
SPEED = 8.75
POLL_INTERVALS = (0.25, 0.05)
SETTLE_SECONDS = 15.0
CHANGED, UNCHANGED = "changed", "unchanged"
QUERY = """subscription {
  liveScores {
    isSnapshot
    updates {
      matchId version changed
      liveScore {
        status phase note
        innings { number teamId runs wickets overs }
        batting { name runs balls fours sixes onStrike }
        bowling { name overs runs wickets }
        partnership { runs balls }
        target { runs }
        recentBalls { label runs }
      }
      events { eventId kind text score }
    }
  }
}"""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls and units of one operation on a table, per tick of one outcome."""

    outcome: str
    table: str
    operation: str
    number: float
    read_units: float
    write_units: float


@dataclass(frozen=True, slots=True)
class TickResult:
    """The cost of ticks. CPU is in milliseconds per tick, without that of the provider."""

    matches: int
    seconds: float
    ticks: int
    #: The share of ticks with a change.
    changed: float
    #: The remaining CPU of a tick with a change, after that of the others is subtracted; the lowest of all rounds.
    cpu_changed: float
    #: The CPU of a tick while all matches are stopped; the lowest of all rounds.
    cpu_unchanged: float
    #: The share of one CPU, including reconciliations, which are not part of the CPU of ticks.
    cpu_share: float
    cpu_reconcile: float
    cpu_provider: float
    late_p50_ms: float
    late_p99_ms: float
    #: Resident memory in bytes at the start and at the end.
    memory: tuple[int, int]
    calls: Sequence[Calls]


@dataclass(frozen=True, slots=True)
class NewsResult:
    """Latencies from the availability of a ball at the provider to its arrival: (p50, p99) in milliseconds."""

    matches: int
    poll_interval: float
    versions: int
    missing: int
    #: Until the provider was polled.
    waiting: tuple[float, float]
    #: From then until the version was written.
    tick: tuple[float, float]
    #: From then until the event arrived.
    delivery: tuple[float, float]
    total: tuple[float, float]
    #: The gateway's share of one CPU, with one subscriber.
    gateway_cpu: float


@asynccontextmanager
async def _engine() -> AsyncIterator[str]:
    """Start an engine with empty tables, and yield its URL. Long streams would slow down writes."""
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        yield database.engine.endpoint


async def measure_ticks(matches: int, rounds: int, seconds: float) -> TickResult:
    """Measure ticks. In each round the matches are stopped for a third of `seconds`, and then played."""
    stopped, played = [], []
    async with _engine() as engine, polling(engine, matches) as pipeline:
        for _ in range(rounds):
            stopped.append(await _measure_at_speed(pipeline, 0, seconds / 3))
            played.append(await _measure_at_speed(pipeline, SPEED, seconds * 2 / 3))
        reconcile: float = await pipeline.ask("reconcile")
    unchanged = min(_cpu(usage, reconcile) / _ticks(usage).total() for usage in stopped)
    ticks, wall = sum(map(_ticks, played), Counter[str]()), sum(usage["seconds"] for usage in played)
    late = [seconds for usage in played for seconds in usage["late"]]
    return TickResult(
        matches,
        wall,
        ticks.total(),
        ticks[CHANGED] / ticks.total(),
        min(_cpu_of_changed(usage, reconcile, unchanged) for usage in played),
        unchanged,
        sum(usage["cpu"] - usage["provider_cpu"] for usage in played) / wall,
        reconcile,
        sum(usage["provider_cpu"] for usage in played) * 1000 / ticks.total(),
        percentile(late, 0.50) * 1000,
        percentile(late, 0.99) * 1000,
        (stopped[0]["memory"], played[-1]["memory"]),
        _calls(played[-1]),
    )


async def _measure_at_speed(pipeline: Child, speed: float, seconds: float) -> dict[str, Any]:
    """Return the usage of `seconds` at a speed, after two tick intervals of warm-up."""
    await pipeline.ask(f"play {speed}")
    await asyncio.sleep(2 * TICK_SECONDS)
    await pipeline.ask("begin")
    await asyncio.sleep(seconds)
    usage: dict[str, Any] = await pipeline.ask("report")
    return usage


def _ticks(usage: Mapping[str, Any]) -> Counter[str]:
    return Counter(usage["ticks"])


def _cpu(usage: Mapping[str, Any], reconcile: float) -> float:
    """Return the CPU milliseconds of all ticks, without the provider and without reconciliations."""
    reconciling = reconcile * usage["seconds"] / RECONCILE_SECONDS
    return float((usage["cpu"] - usage["provider_cpu"]) * 1000 - reconciling)


def _cpu_of_changed(usage: Mapping[str, Any], reconcile: float, unchanged: float) -> float:
    ticks = _ticks(usage)
    return (_cpu(usage, reconcile) - unchanged * (ticks.total() - ticks[CHANGED])) / ticks[CHANGED]


def _calls(usage: Mapping[str, Any]) -> list[Calls]:
    found = []
    for outcome, table, operation, number, units in sorted(usage["calls"]):
        ticks = usage["ticks"].get(outcome)
        if outcome in (CHANGED, UNCHANGED) and ticks:
            reads = operation in READS
            units /= ticks
            found.append(Calls(outcome, table, operation, number / ticks, units * reads, units * (not reads)))
    return found


async def measure_news(matches: int, seconds: float) -> list[NewsResult]:
    """Measure the latencies at one subscriber of `liveScores`, for gateways with different poll intervals in turn."""
    results = []
    async with _engine() as engine, polling(engine, matches) as pipeline:
        await pipeline.ask(f"play {SPEED}")
        for interval in POLL_INTERVALS:
            async with serving(engine, poll_interval=interval) as server:
                results.append(await _measure_news(server, pipeline, matches, interval, seconds))
    return results


async def _measure_news(server: Server, pipeline: Child, matches: int, interval: float, seconds: float) -> NewsResult:
    arrived: dict[tuple[str, int], float] = {}
    async with _subscribed(server) as socket:
        first = orjson.loads(await socket.receive_str())
        if len(first["payload"]["data"]["liveScores"]["updates"]) != matches:
            raise RuntimeError("Not all matches are live.")
        listening = asyncio.create_task(_listen(socket, arrived))
        await asyncio.sleep(TICK_SECONDS)
        await pipeline.ask("begin")
        before = await server.usage()
        await asyncio.sleep(seconds)
        used = (await server.usage()).since(before)
        news = (await pipeline.ask("report"))["news"]
        await asyncio.sleep(2 * TICK_SECONDS)  # for events in flight
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    received = [
        (*rest, arrived[match_id, version]) for match_id, version, *rest in news if (match_id, version) in arrived
    ]
    stages = [[(end - start) * 1000 for start, end in pairwise(times)] for times in received]
    waiting, tick, delivery = (_p50_and_p99(stage) for stage in zip(*stages, strict=True))
    total = _p50_and_p99([sum(stage) for stage in stages])
    missing = len(news) - len(received)
    return NewsResult(matches, interval, len(news), missing, waiting, tick, delivery, total, used.cpu / seconds)


def _p50_and_p99(values: Sequence[float]) -> tuple[float, float]:
    return percentile(values, 0.50), percentile(values, 0.99)


@asynccontextmanager
async def _subscribed(server: Server) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"{server.url.replace('http', 'ws')}/graphql"
    async with server.http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        payload = {"Authorization": f"Bearer {server.token}"}
        await socket.send_json({"type": "connection_init", "payload": payload})
        if (await socket.receive_json(timeout=SETTLE_SECONDS))["type"] != "connection_ack":
            raise RuntimeError("The server refused a subscriber.")
        await socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": QUERY}})
        yield socket


async def _listen(socket: aiohttp.ClientWebSocketResponse, arrived: dict[tuple[str, int], float]) -> None:
    while True:
        text = await socket.receive_str()
        now = time.monotonic()
        message = orjson.loads(text)
        if message["type"] == "next":
            for update in message["payload"]["data"]["liveScores"]["updates"]:
                arrived[update["matchId"], update["version"]] = now
        elif message["type"] != "ping":
            raise RuntimeError(f"The subscriber received an unexpected message: {message}")
