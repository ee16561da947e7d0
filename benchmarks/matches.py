"""Live matches: what their ticks cost, and how long after it happened a subscriber hears of a ball."""

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

# A ball every 3.4 seconds, 6.9 at the end of an over: about half of all ticks bring something.
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
    """What ticks of one outcome ask of a table: calls and units for one tick."""

    outcome: str
    table: str
    operation: str
    number: float
    read_units: float
    write_units: float


@dataclass(frozen=True, slots=True)
class TickResult:
    """CPU in milliseconds, without the provider's; shares are of the ticks, and of one CPU.

    `cpu_unchanged` was seen with all matches standing still, `cpu_changed` is what the others leave; of the rounds the
    least. Reconciling is in neither, but in `cpu_share`. Memory in bytes, at the start and at the end.
    """

    matches: int
    seconds: float
    ticks: int
    changed: float
    cpu_changed: float
    cpu_unchanged: float
    cpu_share: float
    cpu_reconcile: float
    cpu_provider: float
    late_p50_ms: float
    late_p99_ms: float
    memory: tuple[int, int]
    calls: Sequence[Calls]


@dataclass(frozen=True, slots=True)
class NewsResult:
    """From the moment a ball could be seen at the provider to its arrival: (p50, p99) in milliseconds.

    `waiting`: until the provider was asked; `tick`: until the version was written; `delivery`: until it arrived.
    `gateway_cpu` is the gateway's share of one CPU, with one subscriber.
    """

    matches: int
    poll_interval: float
    versions: int
    missing: int
    waiting: tuple[float, float]
    tick: tuple[float, float]
    delivery: tuple[float, float]
    total: tuple[float, float]
    gateway_cpu: float


@asynccontextmanager
async def _engine() -> AsyncIterator[str]:
    """The address of one that holds empty tables: streams that have grown long slow writes down."""
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        yield database.engine.endpoint


async def measure_ticks(matches: int, rounds: int, seconds: float) -> TickResult:
    """In each round the matches stand still for a third of its seconds, then they are played."""
    still, played = [], []
    async with _engine() as engine, polling(engine, matches) as pipeline:
        for _ in range(rounds):
            still.append(await _watched(pipeline, 0, seconds / 3))
            played.append(await _watched(pipeline, SPEED, seconds * 2 / 3))
        reconcile: float = await pipeline.ask("reconcile")
    unchanged = min(_cpu(told, reconcile) / _ticks(told).total() for told in still)
    ticks, wall = sum(map(_ticks, played), Counter[str]()), sum(told["seconds"] for told in played)
    late = [seconds for told in played for seconds in told["late"]]
    return TickResult(
        matches,
        wall,
        ticks.total(),
        ticks[CHANGED] / ticks.total(),
        min(_cpu_of_changed(told, reconcile, unchanged) for told in played),
        unchanged,
        sum(told["cpu"] - told["provider_cpu"] for told in played) / wall,
        reconcile,
        sum(told["provider_cpu"] for told in played) * 1000 / ticks.total(),
        percentile(late, 0.50) * 1000,
        percentile(late, 0.99) * 1000,
        (still[0]["memory"], played[-1]["memory"]),
        _calls(played[-1]),
    )


async def _watched(pipeline: Child, speed: float, seconds: float) -> dict[str, Any]:
    """What was used in so many seconds at a speed; the ticks before do not count."""
    await pipeline.ask(f"play {speed}")
    await asyncio.sleep(2 * TICK_SECONDS)
    await pipeline.ask("begin")
    await asyncio.sleep(seconds)
    told: dict[str, Any] = await pipeline.ask("tell")
    return told


def _ticks(told: Mapping[str, Any]) -> Counter[str]:
    return Counter(told["ticks"])


def _cpu(told: Mapping[str, Any], reconcile: float) -> float:
    """CPU milliseconds of ticks alone: without the provider and without reconciling."""
    reconciling = reconcile * told["seconds"] / RECONCILE_SECONDS
    return float((told["cpu"] - told["provider_cpu"]) * 1000 - reconciling)


def _cpu_of_changed(told: Mapping[str, Any], reconcile: float, unchanged: float) -> float:
    ticks = _ticks(told)
    return (_cpu(told, reconcile) - unchanged * (ticks.total() - ticks[CHANGED])) / ticks[CHANGED]


def _calls(told: Mapping[str, Any]) -> list[Calls]:
    found = []
    for outcome, table, operation, number, units in sorted(told["calls"]):
        ticks = told["ticks"].get(outcome)
        if outcome in (CHANGED, UNCHANGED) and ticks:
            reads = operation in READS
            units /= ticks
            found.append(Calls(outcome, table, operation, number / ticks, units * reads, units * (not reads)))
    return found


async def measure_news(matches: int, seconds: float) -> list[NewsResult]:
    """The same matches, heard of by one subscriber of `liveScores`; gateways with different intervals in turn."""
    results = []
    async with _engine() as engine, polling(engine, matches) as pipeline:
        await pipeline.ask(f"play {SPEED}")
        for interval in POLL_INTERVALS:
            async with serving(engine, poll_interval=interval) as server:
                results.append(await _heard(server, pipeline, matches, interval, seconds))
    return results


async def _heard(server: Server, pipeline: Child, matches: int, interval: float, seconds: float) -> NewsResult:
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
        news = (await pipeline.ask("tell"))["news"]
        await asyncio.sleep(2 * TICK_SECONDS)  # for what is on its way
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    there = [(*rest, arrived[match_id, version]) for match_id, version, *rest in news if (match_id, version) in arrived]
    stages = [[(end - start) * 1000 for start, end in pairwise(one)] for one in there]
    waiting, tick, delivery = (_p50_and_p99(stage) for stage in zip(*stages, strict=True))
    total = _p50_and_p99([sum(stage) for stage in stages])
    missing = len(news) - len(there)
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
            raise RuntimeError("A subscriber was not let in.")
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
            raise RuntimeError(f"The subscriber was told: {message}")
