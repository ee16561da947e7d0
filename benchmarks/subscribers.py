"""The cost of many subscribers: beside other servers, by their number, by their documents, and idle."""

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

# Short, because the measured latency is that from the stream to the subscribers.
POLL_INTERVAL = 0.02
PER_SECOND = 10.0
SETTLE_SECONDS = 120.0
ARRIVAL_SECONDS = 60.0
WARM_UP_EVENTS = 5
WARM_UP_CHECKS = 40  # checks at intervals of 50 ms before another event is published
IDLE_SECONDS = 1.0
# Above this number of subscribers there are fewer events per second: one core cannot send more.
FEWER_FROM, FEWER_PER_SECOND = 5000, 1.0
FILES = 20_000
# Connected before the first measurement of memory, which therefore excludes the fixed costs of the first subscribers.
FIRST_SUBSCRIBERS = 20
REST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a run."""

    rounds: int
    #: The time of a round.
    seconds: float
    subscribers: int
    #: The numbers of subscribers in the runs of growth.
    growing: Sequence[int]
    #: The numbers of different documents and variables.
    different: Sequence[int]
    #: The idle subscribers at the gateway, and at other servers.
    idle: int
    idle_elsewhere: int


FULL = Extent(3, 5.0, 1000, (1, 10, 100, 1000, 10_000), (1, 10, 100, 1000), 10_000, 2000)
QUICK = Extent(1, 1.0, 50, (50,), (50,), 200, 100)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The figures of one round."""

    deliveries: int
    missing: int
    #: The server's CPU in milliseconds for 1,000 deliveries, including all its other work.
    cpu_ms: float
    #: The time from just before the write to the arrival.
    lag_p50_ms: float
    lag_p99_ms: float
    #: The median time between the first and the last arrival of an event.
    burst_ms: float
    rss_mb: float
    #: The server's CPU of a second without events.
    resting_ms: float
    #: The share of one CPU that the subscribers' process used.
    crowd_share: float


@dataclass(slots=True)
class SubscriberRun:
    """The rounds of one server with one topic."""

    server: str
    topic: str
    subscribers: int
    per_second: float
    different: int = 1
    rounds: list[Delivered] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, Any]:
        """The medians over the rounds, all missing deliveries, and the rounds themselves."""
        rounds = [asdict(delivered) for delivered in self.rounds]
        return {
            "server": self.server,
            "topic": self.topic,
            "subscribers": self.subscribers,
            "events_per_second": self.per_second,
            "different": self.different,
            **{name: median(figures[name] for figures in rounds) for name in rounds[0]},
            "missing": sum(figures["missing"] for figures in rounds),
            "rounds": rounds,
        }


@dataclass(frozen=True, slots=True)
class IdleMemory:
    """The server's memory per idle subscriber in KB, and in total in MB."""

    server: str
    subscribers: int
    kilobytes: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class SubscribersResult:
    side_by_side: Sequence[SubscriberRun]
    growing: Sequence[SubscriberRun]
    different: Sequence[SubscriberRun]
    idle: Sequence[IdleMemory]

    @property
    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            name: [run.figures for run in getattr(self, name)] for name in ("side_by_side", "growing", "different")
        }
        return figures | {"idle": [asdict(idle) for idle in self.idle]}


async def measure(extent: Extent) -> SubscribersResult:
    """Measure all runs. Raises `Disagreement` or `PeersMissing`."""
    await install()
    open_many_files()
    return SubscribersResult(
        await _side_by_side(extent),
        [await _ours(match_updates(), count, extent) for count in extent.growing]
        + [await _ours(match_updates(ALL), extent.subscribers, extent)],
        [await _ours(match_updates(documents=count), extent.subscribers, extent) for count in extent.different]
        + [await _ours(earthquakes(variables=count), extent.subscribers, extent) for count in extent.different],
        [await _idle(OURS, extent.idle)]
        + [await _idle(name, extent.idle_elsewhere) for name in (OURS, GRAPHQL_WS, STRAWBERRY)],
    )


async def profile(extent: Extent) -> str:
    """Return the profile of the gateway with all subscribers of one match, as text."""
    open_many_files()
    async with measured_server(OURS, match_updates(), "--profile") as trial:
        gateway = trial.server.gateway
        assert gateway is not None
        for _ in range(2):  # the first run warms up; connecting is not part of the profile
            async with gateway.http.get(f"{gateway.url}/profile") as response:
                await response.read()
            await trial.run(extent.subscribers, extent.seconds, PER_SECOND)
        async with gateway.http.get(f"{gateway.url}/profile") as response:
            return await response.text()


def open_many_files() -> None:
    """Raise the limit of open files of this process, which its children inherit."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


async def _side_by_side(extent: Extent) -> list[SubscriberRun]:
    """Measure all servers in turns: A B C …, A B C …. All must deliver the same data of each event."""
    found: list[SubscriberRun] = []
    for topic in (match_updates(), earthquakes()):
        agreed: dict[Hashable, Any] = {}
        runs = [SubscriberRun(name, topic.name, extent.subscribers, PER_SECOND) for name in (OURS, *OTHERS)]
        for _ in range(extent.rounds):
            for run in runs:
                async with measured_server(run.server, topic) as trial:
                    delivered, data = await trial.run(extent.subscribers, extent.seconds, PER_SECOND)
                run.rounds.append(delivered)
                _agree(run, data, agreed)
        found += runs
    return found


def _agree(run: SubscriberRun, data: Mapping[Hashable, Any], agreed: dict[Hashable, Any]) -> None:
    for number, event in data.items():
        if agreed.setdefault(number, event) != event:
            raise Disagreement(f"{run.topic}: {run.server} delivered {event}, not {agreed[number]}")


async def _ours(topic: Topic, subscribers: int, extent: Extent) -> SubscriberRun:
    per_second = FEWER_PER_SECOND if subscribers > FEWER_FROM else PER_SECOND
    name = topic.name if topic.requests != match_updates(ALL).requests else f"{topic.name}, all fields"
    run = SubscriberRun(OURS, name, subscribers, per_second, len(topic.requests))
    async with measured_server(OURS, topic) as trial:
        delivered, _ = await trial.run(subscribers, extent.seconds, per_second)
    run.rounds.append(delivered)
    return run


async def _idle(name: str, subscribers: int) -> IdleMemory:
    async with measured_server(name, match_updates()) as trial:
        await trial.open(FIRST_SUBSCRIBERS)
        await trial.warm_up(FIRST_SUBSCRIBERS)
        await asyncio.sleep(REST_SECONDS)
        before = resident_mb(trial.server.pid)
        await trial.open(subscribers)
        await asyncio.sleep(REST_SECONDS)
        after = resident_mb(trial.server.pid)
        await trial.warm_up(subscribers)  # checks that all are connected
    return IdleMemory(name, subscribers, (after - before) * 1024 / (subscribers - FIRST_SUBSCRIBERS), after)


@asynccontextmanager
async def measured_server(name: str, topic: Topic, *options: str) -> AsyncIterator["Trial"]:
    """Run a server on tables of its own, and a process of subscribers."""
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
        """Connect subscribers until there are `subscribers` in total."""
        requests = list(self.topic.requests)
        plan = Plan(self.server.port, self.server.payload, requests, subscribers, self.topic.event_field)
        await self.crowd.ask(f"open {plan.encoded()}")

    async def run(self, subscribers: int, seconds: float, per_second: float) -> tuple[Delivered, dict[Hashable, Any]]:
        """Publish events at a constant rate for `seconds`. Return the figures, and the data of the events by id."""
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
        report = await self.crowd.ask("report")
        if report["differing"] and len(self.topic.requests) == 1:
            raise Disagreement(f"{self.topic.name}: subscribers received different data of the same event.")
        return self._delivered(report, sent, subscribers, used, resting), dict(report["data"])

    async def warm_up(self, subscribers: int) -> None:
        """Publish events until all subscribers have received one. The first may precede some subscriptions."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                numbers: list[Hashable] = []
                await self.publish(numbers.append)
                for _ in range(WARM_UP_CHECKS):
                    await asyncio.sleep(0.05)
                    if await self.crowd.ask(f"count {numbers[0]}") >= subscribers:
                        return

    async def resting(self) -> float:
        """Return the CPU milliseconds of the server for a second without events."""
        before, began = cpu_seconds(self.server.pid), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        return (cpu_seconds(self.server.pid) - before) * 1000 / (time.perf_counter() - began)

    async def _publish(self, total: int, per_second: float, sent: dict[Hashable, float]) -> None:
        def announce(event: Hashable) -> None:
            sent[event] = time.perf_counter()

        began = time.perf_counter()
        for number in range(total):
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            await self.publish(announce)

    async def _arrived(self, deliveries: int) -> None:
        """Wait until all deliveries have arrived, for at most `ARRIVAL_SECONDS`."""
        deadline = time.perf_counter() + ARRIVAL_SECONDS
        while await self.crowd.ask("count") < deliveries and time.perf_counter() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    def _delivered(
        self, report: Mapping[str, Any], sent: Mapping[Hashable, float], subscribers: int, used: float, resting: float
    ) -> Delivered:
        arrived = {number: times for number, times in report["arrived"] if number in sent}
        lags = [moment - sent[number] for number, times in arrived.items() for moment in times]
        if not lags:
            raise RuntimeError("No event was delivered.")
        return Delivered(
            len(lags),
            sum(subscribers - len(arrived.get(number, ())) for number in sent) + report["most"] - report["least"],
            used * 1_000_000 / len(lags),
            percentile(lags, 0.50) * 1000,
            percentile(lags, 0.99) * 1000,
            median(max(times) - min(times) for times in arrived.values()) * 1000,
            resident_mb(self.server.pid),
            resting,
            report["cpu_share"],
        )
