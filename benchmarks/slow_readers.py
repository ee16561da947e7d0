"""The cost of subscribers that stop reading, for the server and for the other subscribers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from benchmarks.crowd import Crowd, Plan, Subscriber
from benchmarks.data import NOON, open_store
from benchmarks.processes import resident_mb
from benchmarks.socket_servers import OURS
from benchmarks.subscribers import FIRST_SUBSCRIBERS, PER_SECOND, Delivered, Trial, measured_server, open_many_files
from benchmarks.text_table import table
from benchmarks.topics import Announce, Publish, Topic, earthquakes
from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.model.timestamps import epoch_ms

# Large enough that a subscriber's buffers are full after some seconds.
TEXT_CHARACTERS = 4000
# More than the buffers of the system and the transport hold for a subscriber that does not read. The gateway closes it
# 10 seconds after they are full.
FILLING_EVENTS = 60
MEASURED_SECONDS = 4.0
RECEIVE_BUFFER_BYTES = 4096
FIGURES = ("cpu_ms", "lag_p50_ms", "lag_p99_ms", "rss_mb")


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a run."""

    rounds: int
    subscribers: int
    #: The subscribers that stop reading.
    stalled: int
    #: The subscribers that do not read in the measurement of memory.
    idle_stalled: int


FULL = Extent(3, 1000, 50, 200)
QUICK = Extent(1, 50, 5, 20)


@dataclass(frozen=True, slots=True)
class SlowReadersResult:
    """The result of the benchmark."""

    subscribers: int
    stalled: int
    #: Rounds in which all subscribers read.
    without: Sequence[Delivered]
    #: Rounds in which some do not.
    beside: Sequence[Delivered]
    #: The memory of one subscriber that does not read, in KB.
    kilobytes: float


async def measure(extent: Extent) -> SlowReadersResult:
    open_many_files()
    without, beside = [], []
    for _ in range(extent.rounds):
        without.append(await _round(extent.subscribers, 0))
        beside.append(await _round(extent.subscribers - extent.stalled, extent.stalled))
    return SlowReadersResult(
        extent.subscribers, extent.stalled, without, beside, await _kilobytes_per_stalled(extent.idle_stalled)
    )


async def _round(reading: int, stalled: int) -> Delivered:
    """Publish events to fill the buffers of stalled subscribers, then measure the others."""
    async with _trial() as trial, _stalled(trial, stalled):
        await trial.open(reading)
        await _fill(trial)
        delivered, _ = await trial.run(reading, MEASURED_SECONDS, PER_SECOND)
        return delivered


async def _kilobytes_per_stalled(count: int) -> float:
    async with _trial() as trial, _stalled(trial, count):
        await trial.open(FIRST_SUBSCRIBERS)
        await trial.warm_up(FIRST_SUBSCRIBERS)
        before = resident_mb(trial.server.pid)
        await _fill(trial)
        return (resident_mb(trial.server.pid) - before) * 1024 / count


async def _fill(trial: Trial) -> None:
    for _ in range(FILLING_EVENTS):
        await trial.publish(lambda _: None)
        await asyncio.sleep(1 / PER_SECOND)


@asynccontextmanager
async def _trial() -> AsyncIterator[Trial]:
    async with measured_server(OURS, _topic()) as trial:
        yield trial


def _topic() -> Topic:
    query = "subscription { earthquakeDetected(whenSlow: BUFFER, buffer: 50) { eventId place } }"
    return replace(earthquakes(), requests=[{"query": query}], publisher=_publisher)


async def _publisher(client: Client) -> Publish:
    number = 0

    async def publish(announce: Announce) -> None:
        nonlocal number
        number += 1
        moment = epoch_ms(NOON + timedelta(milliseconds=number))
        event = Earthquake(
            event_id=f"large-{number:05}",
            occurred_at_ms=moment,
            magnitude=4.0,
            place="x" * TEXT_CHARACTERS,
            latitude=35.0,
            longitude=-117.5,
            depth_km=8.25,
            source="usgs",
            ingested_at_ms=moment,
        )
        announce(event.event_id)
        await Earthquakes(open_store(client), NOON).insert(event)

    return publish


class _Stalled(Subscriber):
    """A subscriber that stops reading after it has subscribed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.subscribed.add_done_callback(lambda _: transport.pause_reading())


@asynccontextmanager
async def _stalled(trial: Trial, count: int) -> AsyncIterator[None]:
    crowd = Crowd()
    crowd.plan = Plan(
        trial.server.port, trial.server.payload, list(trial.topic.requests), count, trial.topic.event_field
    )
    loop = asyncio.get_running_loop()
    readers: list[_Stalled] = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", trial.server.port))
            reader = _Stalled(crowd, trial.topic.requests[0])
            await loop.create_connection(lambda reader=reader: reader, sock=connection)  # type: ignore[misc]
            await reader.subscribed
            readers.append(reader)
        yield
    finally:
        for reader in readers:
            reader.leave()


def report(result: SlowReadersResult) -> Iterator[str]:
    yield f"Subscribers that stop reading: {result.stalled} of {result.subscribers}; figures of the others"
    rows = [
        [name, *(f"{getattr(delivered, figure):.1f}" for figure in FIGURES), str(delivered.missing)]
        for name, rounds in (("all read", result.without), ("some stall", result.beside))
        for delivered in rounds
    ]
    yield from table(["round", "CPU ms/1,000", "p50 lag ms", "p99 lag ms", "RSS MB", "missing"], rows)
    yield f"Each stalled subscriber takes {result.kilobytes:.0f} KB of the server's memory."
