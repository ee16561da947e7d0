"""What readers that stop reading cost the server, and the others."""

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
from benchmarks.subscribers import FIRST, PER_SECOND, Delivered, Trial, measured, open_many_files
from benchmarks.text_table import table
from benchmarks.topics import Publish, Says, Topic, earthquakes
from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.model.timestamps import epoch_ms

# So that a reader's buffers are full after some seconds.
TEXT_CHARACTERS = 4000
# More than the system and the transport keep for one who does not read; it is gone 10 seconds after they are full.
FILLING_EVENTS = 60
MEASURED_SECONDS = 4.0
RECEIVE_BUFFER_BYTES = 4096
FIGURES = ("cpu_ms", "lag_p50_ms", "lag_p99_ms", "rss_mb")


@dataclass(frozen=True, slots=True)
class Extent:
    """In so many rounds, `stalled` of `subscribers` stop reading; then `held` alone, for what each holds in memory."""

    rounds: int
    subscribers: int
    stalled: int
    held: int


FULL = Extent(3, 1000, 50, 200)
QUICK = Extent(1, 50, 5, 20)


@dataclass(frozen=True, slots=True)
class SlowReadersResult:
    """Rounds in which all read, and in which some do not; what one that does not holds, in KB."""

    subscribers: int
    stalled: int
    without: Sequence[Delivered]
    beside: Sequence[Delivered]
    kilobytes: float


async def measure(extent: Extent) -> SlowReadersResult:
    open_many_files()
    without, beside = [], []
    for _ in range(extent.rounds):
        without.append(await _round(extent.subscribers, 0))
        beside.append(await _round(extent.subscribers - extent.stalled, extent.stalled))
    return SlowReadersResult(extent.subscribers, extent.stalled, without, beside, await _held(extent.held))


async def _round(reading: int, stalled: int) -> Delivered:
    """Events before and while it is measured: by then who does not read has been sent all that its buffers take."""
    async with _trial() as trial, _stalled(trial, stalled):
        await trial.open(reading)
        await _fill(trial)
        delivered, _ = await trial.run(reading, MEASURED_SECONDS, PER_SECOND)
        return delivered


async def _held(many: int) -> float:
    async with _trial() as trial, _stalled(trial, many):
        await trial.open(FIRST)
        await trial.warm_up(FIRST)
        before = resident_mb(trial.server.pid)
        await _fill(trial)
        return (resident_mb(trial.server.pid) - before) * 1024 / many


async def _fill(trial: Trial) -> None:
    for _ in range(FILLING_EVENTS):
        await trial.publish(lambda _: None)
        await asyncio.sleep(1 / PER_SECOND)


@asynccontextmanager
async def _trial() -> AsyncIterator[Trial]:
    async with measured(OURS, _topic()) as trial:
        yield trial


def _topic() -> Topic:
    query = "subscription { earthquakeDetected(whenSlow: BUFFER, buffer: 50) { eventId place } }"
    return replace(earthquakes(), requests=[{"query": query}], publisher=_publisher)


async def _publisher(client: Client) -> Publish:
    number = 0

    async def publish(says: Says) -> None:
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
        says(event.event_id)
        await Earthquakes(open_store(client), NOON).insert(event)

    return publish


class _Stalled(Subscriber):
    """Reads until it has subscribed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.subscribed.add_done_callback(lambda _: transport.pause_reading())


@asynccontextmanager
async def _stalled(trial: Trial, many: int) -> AsyncIterator[None]:
    crowd = Crowd()
    crowd.plan = Plan(trial.server.port, trial.server.payload, list(trial.topic.requests), many, trial.topic.number)
    loop = asyncio.get_running_loop()
    readers: list[_Stalled] = []
    try:
        for _ in range(many):
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
    yield f"Readers that stop reading: {result.stalled} of {result.subscribers}; the figures are of the others"
    rows = [
        [name, *(f"{getattr(one, figure):.1f}" for figure in FIGURES), str(one.missing)]
        for name, rounds in (("all read", result.without), ("some stall", result.beside))
        for one in rounds
    ]
    yield from table(["round", "CPU ms/1,000", "p50 lag ms", "p99 lag ms", "RSS MB", "missing"], rows)
    yield f"Each that stalls holds {result.kilobytes:.0f} KB of the server's memory."
