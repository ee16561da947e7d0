"""CPU of the gateway for one GraphQL request, from the socket to the socket, and what it asks of DynamoDB."""

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import orjson

from benchmarks.data import AREA, DAYS, EVENTS, PAGE, event_id
from benchmarks.measuring import closed_loop, percentile
from benchmarks.server import USER, Server, Usage

CONCURRENCIES = (1, 16)
LEAST_MAGNITUDE = 1.5

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A query. `variables` are those of one request after another; `holds` tells whether an answer is right.

    `user` is who asks.
    """

    name: str
    text: str
    variables: Callable[[], Iterator[Body]]
    holds: Callable[[Body], bool]
    requests: int
    user: str = USER


QUERIES = (
    Measured(
        "Q1 earthquake(eventId)",
        """query Q1($eventId: ID!) {
  earthquake(eventId: $eventId) { id eventId magnitude place occurredAt latitude longitude depthKm }
}""",
        lambda: ({"eventId": event_id(number)} for number in itertools.cycle(range(0, EVENTS, 7))),
        lambda data: data["earthquake"]["eventId"].startswith("ci"),
        requests=400,
    ),
    Measured(
        f"Q2 sightings(first: {PAGE}) with reporters",
        """query Q2($area: String!, $first: Int!) {
  sightings(area: $area, first: $first) {
    edges {
      cursor
      node {
        id category description reportedAt confidence freshness confirmationCount
        reporter { userId trustTier reportTotal streakDays }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}""",
        lambda: itertools.repeat({"area": AREA, "first": PAGE}),
        lambda data: sum(edge["node"]["reporter"] is not None for edge in data["sightings"]["edges"]) == PAGE,
        requests=64,
    ),
    Measured(
        f"Q3 earthquakes(first: {PAGE}) of {DAYS} days",
        """query Q3($minMagnitude: Float!, $first: Int!) {
  earthquakes(minMagnitude: $minMagnitude, first: $first) {
    edges { cursor node { id eventId magnitude place occurredAt latitude longitude depthKm } }
    pageInfo { hasNextPage endCursor }
  }
}""",
        lambda: itertools.repeat({"minMagnitude": LEAST_MAGNITUDE, "first": PAGE}),
        lambda data: len(data["earthquakes"]["edges"]) == PAGE,
        requests=64,
    ),
)


@dataclass(slots=True)
class QueryResult:
    """CPU in milliseconds and requests per second for each round; calls and units of one request, by the last round."""

    query: str
    concurrency: int
    cpu: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)
    units: float = 0.0

    def add(self, used: Usage, seconds: list[float], wall: float) -> None:
        total = len(seconds)
        self.cpu.append(used.cpu * 1000 / total)
        self.rate.append(total / wall)
        self.seconds += seconds
        self.calls = {operation: number / total for operation, number in used.calls.items()}
        self.units = used.units / total

    @property
    def figures(self) -> dict[str, Any]:
        """What is told of it: medians over the rounds, latencies over all requests."""
        return {
            "query": self.query,
            "concurrency": self.concurrency,
            "cpu_ms": median(self.cpu),
            "calls": self.calls,
            "read_units": self.units,
            "requests_per_second": median(self.rate),
            "p50_ms": percentile(self.seconds, 0.50) * 1000,
            "p99_ms": percentile(self.seconds, 0.99) * 1000,
        }


async def measure(
    server: Server,
    rounds: int,
    effort: float,
    queries: Sequence[Measured] = QUERIES,
    concurrencies: Sequence[int] = CONCURRENCIES,
) -> list[QueryResult]:
    """Every query in turn, round after round; `effort` scales the number of requests."""
    results = [(query, QueryResult(query.name, concurrency)) for query in queries for concurrency in concurrencies]
    most = max(concurrencies)
    for query in queries:
        await closed_loop(_Asking(server, query).ask, max(int(query.requests * min(effort, 1.0)), 1), most)
    for _ in range(rounds):
        for query, result in results:
            await _round(server, query, result, max(int(query.requests * effort), most))
    return [result for _, result in results]


async def _round(server: Server, query: Measured, result: QueryResult, total: int) -> None:
    asking = _Asking(server, query)
    gc.collect()
    before = await server.usage()
    began = time.perf_counter()
    seconds = await closed_loop(asking.ask, total, result.concurrency)
    wall = time.perf_counter() - began
    result.add((await server.usage()).since(before), seconds, wall)


class _Asking:
    """Asks a query again and again. Every answer is read to its end; the first is looked at."""

    def __init__(self, server: Server, query: Measured) -> None:
        self._server = server
        self._query = query
        self._variables = query.variables()
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.sign(query.user)}"}
        self._checked = False

    async def ask(self) -> None:
        body = orjson.dumps({"query": self._query.text, "variables": next(self._variables)})
        async with self._server.http.post(f"{self._server.url}/graphql", data=body, headers=self._headers) as response:
            content = await response.read()
        if response.status != 200 or b'"errors"' in content[:20]:
            raise RuntimeError(f"{self._query.name} was answered: {content[:300].decode()}")
        if not self._checked:
            self._checked = True
            if not self._query.holds(orjson.loads(content)["data"]):
                raise RuntimeError(f"{self._query.name} was answered with something else than was asked for.")
