"""The gateway's CPU and DynamoDB calls for one GraphQL request."""

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import orjson

from benchmarks.data import AREA, DAYS, EVENTS, PAGE, event_id
from benchmarks.measuring import closed_loop, percentile
from benchmarks.server import Server, Usage

CONCURRENCIES = (1, 16)
LEAST_MAGNITUDE = 1.5

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredQuery:
    """A query that is measured."""

    name: str
    text: str
    #: Returns the variables of consecutive requests.
    variables: Callable[[], Iterator[Body]]
    #: Returns whether the data of a response are complete.
    holds: Callable[[Body], bool]
    #: The number of requests in a round.
    requests: int


QUERIES = (
    MeasuredQuery(
        "Q1 earthquake(id)",
        """query Q1($eventId: ID!) {
  earthquake(id: $eventId) { id eventId magnitude place occurredAt latitude longitude depthKm }
}""",
        lambda: ({"eventId": event_id(number)} for number in itertools.cycle(range(0, EVENTS, 7))),
        lambda data: data["earthquake"]["eventId"].startswith("ci"),
        requests=400,
    ),
    MeasuredQuery(
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
    MeasuredQuery(
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
    """The figures of a query."""

    query: str
    concurrency: int
    #: CPU milliseconds per request, by round.
    cpu: list[float] = field(default_factory=list)
    #: Requests per second, by round.
    rate: list[float] = field(default_factory=list)
    #: The latencies of all requests.
    seconds: list[float] = field(default_factory=list)
    #: Calls by operation and read units of one request, in the last round.
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
        """The reported figures: medians over the rounds, latencies over all requests."""
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


async def measure(server: Server, rounds: int, effort: float) -> list[QueryResult]:
    """Measure the queries in turns for `rounds` rounds. `effort` scales the number of requests."""
    results = [(query, QueryResult(query.name, concurrency)) for query in QUERIES for concurrency in CONCURRENCIES]
    max_concurrency = max(CONCURRENCIES)
    for query in QUERIES:
        await closed_loop(
            _QuerySender(server, query).ask, max(int(query.requests * min(effort, 1.0)), 1), max_concurrency
        )
    for _ in range(rounds):
        for query, result in results:
            await _round(server, query, result, max(int(query.requests * effort), max_concurrency))
    return [result for _, result in results]


async def _round(server: Server, query: MeasuredQuery, result: QueryResult, total: int) -> None:
    sender = _QuerySender(server, query)
    gc.collect()
    before = await server.usage()
    began = time.perf_counter()
    seconds = await closed_loop(sender.ask, total, result.concurrency)
    wall = time.perf_counter() - began
    result.add((await server.usage()).since(before), seconds, wall)


class _QuerySender:
    """Sends the requests of a query. It reads all responses to their end, and checks the data of the first."""

    def __init__(self, server: Server, query: MeasuredQuery) -> None:
        self._server = server
        self._query = query
        self._variables = query.variables()
        self._headers = {"Content-Type": "application/json"}
        self._checked = False

    async def ask(self) -> None:
        body = orjson.dumps({"query": self._query.text, "variables": next(self._variables)})
        async with self._server.http.post(f"{self._server.url}/graphql", data=body, headers=self._headers) as response:
            content = await response.read()
        if response.status != 200 or b'"errors"' in content[:20]:
            raise RuntimeError(f"{self._query.name} failed: {content[:300].decode()}")
        if not self._checked:
            self._checked = True
            if not self._query.holds(orjson.loads(content)["data"]):
                raise RuntimeError(f"The response to {self._query.name} is incomplete.")
