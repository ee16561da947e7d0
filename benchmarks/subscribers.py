"""What very many subscribers cost, beside servers that others would have written; how that grows; and idle ones."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks import child
from benchmarks.child import Child
from benchmarks.contenders import Disagreement
from benchmarks.crowd import Plan
from benchmarks.measuring import percentile
from benchmarks.processes import cpu_seconds, resident_mb
from benchmarks.rivals import install
from benchmarks.socket_servers import GRAPHQL_WS, OTHERS, OURS, STRAWBERRY, SocketServer, listening
from benchmarks.topics import ALL, Publish, Topic, earthquakes, match_updates
from datastore.database import StoreOptions, open_database

# Short, for what is measured is the way from there to the subscribers.
POLL_INTERVAL = 0.02
PER_SECOND = 10.0
SETTLE_SECONDS = 120.0
ARRIVAL_SECONDS = 60.0
WARM_UP_EVENTS = 5
PATIENCE = 40  # times 50 ms, until another event is tried
IDLE_SECONDS = 1.0
# Of so many subscribers at most so many events a second are asked for: one core sends no more.
FEWER_FROM, FEWER_PER_SECOND = 5000, 1.0
FILES = 20_000
# They are connected before memory is looked at: what is made for the first is no part of what each costs.
FIRST = 20
REST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: `subscribers` in so many rounds of so many seconds, and idle ones at ours and at others."""

    rounds: int
    seconds: float
    subscribers: int
    growing: Sequence[int]
    different: Sequence[int]
    idle: int
    idle_elsewhere: int


FULL = Extent(3, 5.0, 1000, (1, 10, 100, 1000, 10_000), (1, 10, 100, 1000), 10_000, 2000)
QUICK = Extent(1, 1.0, 50, (50,), (50,), 200, 100)


@dataclass(frozen=True, slots=True)
class Delivered:
    """One round. CPU in milliseconds for 1,000 deliveries, all that the server does meanwhile included.

    The lags count from just before the write to the arrival; `burst_ms` is the median time between the first arrival
    of an event and its last. `resting_ms` is the CPU of a second without events. `crowd_share` is what the subscribers'
    process used of one CPU.
    """

    deliveries: int
    missing: int
    cpu_ms: float
    lag_p50_ms: float
    lag_p99_ms: float
    burst_ms: float
    rss_mb: float
    resting_ms: float
    crowd_share: float


@dataclass(slots=True)
class Viewing:
    """The rounds of one server with one topic."""

    server: str
    topic: str
    subscribers: int
    per_second: float
    different: int = 1
    rounds: list[Delivered] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, Any]:
        """Medians over the rounds, all that is missing, and the rounds themselves."""
        rounds = [asdict(one) for one in self.rounds]
        return {
            "server": self.server,
            "topic": self.topic,
            "subscribers": self.subscribers,
            "events_per_second": self.per_second,
            "different": self.different,
            **{name: median(one[name] for one in rounds) for name in rounds[0]},
            "missing": sum(one["missing"] for one in rounds),
            "rounds": rounds,
        }


@dataclass(frozen=True, slots=True)
class Idle:
    """What so many subscribers hold in the server's memory while nothing happens: KB each."""

    server: str
    subscribers: int
    kilobytes: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class SubscribersResult:
    side_by_side: Sequence[Viewing]
    growing: Sequence[Viewing]
    different: Sequence[Viewing]
    idle: Sequence[Idle]

    @property
    def figures(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            name: [one.figures for one in getattr(self, name)] for name in ("side_by_side", "growing", "different")
        }
        return told | {"idle": [asdict(one) for one in self.idle]}


async def measure(extent: Extent) -> SubscribersResult:
    """Raises `Disagreement`, or `PeersMissing`."""
    await install()
    open_many_files()
    return SubscribersResult(
        await _side_by_side(extent),
        [await _ours(match_updates(), count, extent) for count in extent.growing]
        + [await _ours(match_updates(ALL), extent.subscribers, extent)],
        [await _ours(match_updates(documents=many), extent.subscribers, extent) for many in extent.different]
        + [await _ours(earthquakes(variables=many), extent.subscribers, extent) for many in extent.different],
        [await _idle(OURS, extent.idle)]
        + [await _idle(name, extent.idle_elsewhere) for name in (OURS, GRAPHQL_WS, STRAWBERRY)],
    )


async def profile(extent: Extent) -> str:
    """Where the time of our server goes with all subscribers of one match, as the profiler tells it in text."""
    open_many_files()
    async with measured(OURS, match_updates(), "--profile") as trial:
        gateway = trial.server.gateway
        assert gateway is not None
        for _ in range(2):  # what came before, connecting and all, is no part of it
            async with gateway.http.get(f"{gateway.url}/profile") as response:
                await response.read()
            await trial.run(extent.subscribers, extent.seconds, PER_SECOND)
        async with gateway.http.get(f"{gateway.url}/profile") as response:
            return await response.text()


def open_many_files() -> None:
    """This process's children inherit it."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


async def _side_by_side(extent: Extent) -> list[Viewing]:
    """All servers in turns: A B C …, A B C …; of each event all must tell the same."""
    found: list[Viewing] = []
    for topic in (match_updates(), earthquakes()):
        told: dict[Hashable, Any] = {}
        viewings = [Viewing(name, topic.name, extent.subscribers, PER_SECOND) for name in (OURS, *OTHERS)]
        for _ in range(extent.rounds):
            for viewing in viewings:
                async with measured(viewing.server, topic) as trial:
                    delivered, data = await trial.run(extent.subscribers, extent.seconds, PER_SECOND)
                viewing.rounds.append(delivered)
                _agree(viewing, data, told)
        found += viewings
    return found


def _agree(viewing: Viewing, data: Mapping[Hashable, Any], told: dict[Hashable, Any]) -> None:
    for number, one in data.items():
        if told.setdefault(number, one) != one:
            raise Disagreement(f"{viewing.topic}: {viewing.server} tells {one}, not {told[number]}")


async def _ours(topic: Topic, subscribers: int, extent: Extent) -> Viewing:
    per_second = FEWER_PER_SECOND if subscribers > FEWER_FROM else PER_SECOND
    name = topic.name if topic.requests != match_updates(ALL).requests else f"{topic.name}, all fields"
    viewing = Viewing(OURS, name, subscribers, per_second, len(topic.requests))
    async with measured(OURS, topic) as trial:
        delivered, _ = await trial.run(subscribers, extent.seconds, per_second)
    viewing.rounds.append(delivered)
    return viewing


async def _idle(name: str, subscribers: int) -> Idle:
    async with measured(name, match_updates()) as trial:
        await trial.open(FIRST)
        await trial.warm_up(FIRST)
        await asyncio.sleep(REST_SECONDS)
        before = resident_mb(trial.server.pid)
        await trial.open(subscribers)
        await asyncio.sleep(REST_SECONDS)
        after = resident_mb(trial.server.pid)
        await trial.warm_up(subscribers)  # they are all there
    return Idle(name, subscribers, (after - before) * 1024 / (subscribers - FIRST), after)


@asynccontextmanager
async def measured(name: str, topic: Topic, *options: str) -> AsyncIterator["Trial"]:
    """A server on tables of its own, and subscribers in a process of their own."""
    print(f"  {topic.name} at {name} …", file=sys.stderr, flush=True)
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        publish = await topic.publisher(database.client)
        async with (
            listening(name, database.engine.endpoint, topic.table, POLL_INTERVAL, *options) as server,
            child.started("benchmarks.crowd") as crowd,
        ):
            yield Trial(topic, publish, server, crowd)
            await crowd.ask("close")


@dataclass(frozen=True, slots=True)
class Trial:
    """Subscribers of a topic at one server."""

    topic: Topic
    publish: Publish
    server: SocketServer
    crowd: Child

    async def open(self, subscribers: int) -> None:
        """So many in all."""
        requests = list(self.topic.requests)
        plan = Plan(self.server.port, self.server.payload, requests, subscribers, self.topic.number)
        await self.crowd.ask(f"open {plan.encoded()}")

    async def run(self, subscribers: int, seconds: float, per_second: float) -> tuple[Delivered, dict[Hashable, Any]]:
        """Events at a steady rate for so many seconds, and what they told, by their number."""
        await self.open(subscribers)
        for _ in range(WARM_UP_EVENTS):
            await self.warm_up(subscribers)
        resting = await self.resting()
        await self.crowd.ask("begin")
        total = max(int(seconds * per_second), 3)
        sent: dict[Hashable, float] = {}
        before = cpu_seconds(self.server.pid)
        await self._publish(total, per_second, sent)
        await self._arrived(total * subscribers)
        used = cpu_seconds(self.server.pid) - before
        told = await self.crowd.ask("tell")
        if told["differing"] and len(self.topic.requests) == 1:
            raise Disagreement(f"{self.topic.name}: subscribers were told different things of the same event.")
        return self._delivered(told, sent, subscribers, used, resting), dict(told["data"])

    async def warm_up(self, subscribers: int) -> None:
        """One event more, until all have it; the first ones may come before all have subscribed."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                numbers: list[Hashable] = []
                await self.publish(numbers.append)
                for _ in range(PATIENCE):
                    await asyncio.sleep(0.05)
                    if await self.crowd.ask(f"count {numbers[0]}") >= subscribers:
                        return

    async def resting(self, seconds: float = IDLE_SECONDS) -> float:
        """Return the CPU milliseconds of the server for a second without events."""
        before, began = cpu_seconds(self.server.pid), time.perf_counter()
        await asyncio.sleep(seconds)
        return (cpu_seconds(self.server.pid) - before) * 1000 / (time.perf_counter() - began)

    async def _publish(self, total: int, per_second: float, sent: dict[Hashable, float]) -> None:
        def says(event: Hashable) -> None:
            sent[event] = time.perf_counter()

        began = time.perf_counter()
        for number in range(total):
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            await self.publish(says)

    async def _arrived(self, deliveries: int) -> None:
        """Until all have arrived, or as long as there is hope."""
        deadline = time.perf_counter() + ARRIVAL_SECONDS
        while await self.crowd.ask("count") < deliveries and time.perf_counter() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    def _delivered(
        self, told: Mapping[str, Any], sent: Mapping[Hashable, float], subscribers: int, used: float, resting: float
    ) -> Delivered:
        arrived = {number: times for number, times in told["arrived"] if number in sent}
        lags = [moment - sent[number] for number, times in arrived.items() for moment in times]
        if not lags:
            raise RuntimeError("No event was delivered.")
        return Delivered(
            len(lags),
            sum(subscribers - len(arrived.get(number, ())) for number in sent) + told["most"] - told["least"],
            used * 1_000_000 / len(lags),
            percentile(lags, 0.50) * 1000,
            percentile(lags, 0.99) * 1000,
            median(max(times) - min(times) for times in arrived.values()) * 1000,
            resident_mb(self.server.pid),
            resting,
            told["cpu_share"],
        )
