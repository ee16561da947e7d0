"""A tick that finds a new ball: the gateway's poller against a naive implementation with boto3 in threads."""

import asyncio
import gc
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from statistics import median
from typing import Any

import boto3
import botocore.config
import msgspec

from benchmarks.clients import ACCOUNT
from benchmarks.invented_matches import InventedMatches, MatchClock, invented_match
from benchmarks.measuring import median_ratio
from benchmarks.server import READS
from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import Client
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import RECENT_BALLS, MatchSnapshot
from datastore.matches.fixtures import Fixtures
from datastore.matches.json_records import from_json, to_json
from datastore.matches.live_state import live_score_of
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.live.poller import LiveChange, ScorePoller, TickOutcome
from pipelines.matches.providers.playback import Playback

OURS, NAIVE = "ScorePoller", "boto3, whole items"
TICKS_PER_ROUND = 10
ATTEMPTS = {"total_max_attempts": 1}

Ticks = Callable[[MatchSnapshot], Awaitable[None]]


@dataclass(slots=True)
class TickCost:
    """The cost of ticks: their calls and units."""

    #: CPU milliseconds per tick, by round.
    cpu: list[float] = field(default_factory=list)
    calls: float = 0.0
    read_units: float = 0.0
    write_units: float = 0.0

    def add(self, operation: str, units: float) -> None:
        self.calls += 1
        if operation in READS:
            self.read_units += units
        else:
            self.write_units += units

    def per_tick(self, ticks: int) -> "TickCost":
        return TickCost(self.cpu, self.calls / ticks, self.read_units / ticks, self.write_units / ticks)

    @property
    def median_cpu(self) -> float:
        return median(self.cpu)

    def cpu_ratio(self, to: "TickCost") -> float:
        return median_ratio(self.cpu, to.cpu)


async def measure(rounds: int) -> Mapping[str, TickCost]:
    """Measure both implementations in turns, with the same responses of the provider."""
    snapshots = list(_snapshots(TICKS_PER_ROUND * (rounds + 1)))
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        costs = {OURS: TickCost(), NAIVE: TickCost()}
        naive = _Naive(database.engine.endpoint, costs[NAIVE])
        contenders = {OURS: await _ours(database.client, costs[OURS]), NAIVE: naive.tick}
        await _round(contenders, costs, snapshots[:TICKS_PER_ROUND])  # warm up, and write the initial state
        for cost in costs.values():
            cost.cpu, cost.calls, cost.read_units, cost.write_units = [], 0.0, 0.0, 0.0
        for number in range(1, rounds + 1):
            await _round(contenders, costs, snapshots[number * TICKS_PER_ROUND : (number + 1) * TICKS_PER_ROUND])
    return {name: cost.per_tick(rounds * TICKS_PER_ROUND) for name, cost in costs.items()}


def _snapshots(count: int) -> Iterator[MatchSnapshot]:
    """Yield the last balls of a match, which have the most data. Each is decoded, like a response from the network."""
    playback = Playback(invented_match(0))
    end = playback.timeline.last
    for state in range(end - count, end):
        yield from_json(to_json(playback.at(state)), MatchSnapshot)


async def _round(
    contenders: Mapping[str, Ticks], costs: Mapping[str, TickCost], snapshots: Sequence[MatchSnapshot]
) -> None:
    for name, tick in contenders.items():
        gc.collect()
        began = time.process_time()
        for snapshot in snapshots:
            await tick(snapshot)
        costs[name].cpu.append((time.process_time() - began) * 1000 / len(snapshots))


class _PreparedProvider(InventedMatches):
    """A provider that returns a prepared response."""

    response: MatchSnapshot | None = None

    async def match(self, match_id: str) -> MatchSnapshot | None:
        return self.response


async def _ours(client: Client, cost: TickCost) -> Ticks:
    def open_store() -> Store:
        return Store(client, prefix="", deadline=Deadline(20), token=lambda: str(uuid.uuid4()))

    def now() -> datetime:
        return datetime.now(UTC)

    async def on_change(_: Store, __: LiveChange) -> None:
        return None

    def called(call: Call) -> None:
        cost.add(call.operation, call.units)

    match = invented_match(0).match
    provider = _PreparedProvider(0, MatchClock(), now())
    poller = ScorePoller(provider, open_store, "measured", now, on_change)
    await Fixtures(open_store(), now()).sync([match])
    await ActiveMatches(open_store(), now()).register(match, instance_id="measured")
    client.add_call_listener(called)

    async def tick(snapshot: MatchSnapshot) -> None:
        provider.response = snapshot
        if await poller.tick(match.match_id) is not TickOutcome.CHANGED:
            raise RuntimeError("A tick found no change, or failed.")

    return tick


class _Naive:
    """Reads the state. If it differs, writes the whole fixture with all its balls, and the whole state.

    It has no lock, no versions and no events: of two concurrent ticks the later one wins.
    """

    def __init__(self, engine: str, cost: TickCost) -> None:
        config = botocore.config.Config(retries=ATTEMPTS)
        resource = boto3.resource("dynamodb", endpoint_url=engine, config=config, **ACCOUNT)
        self._fixtures = resource.Table(FIXTURES.name)
        self._states = resource.Table(ACTIVE_MATCHES.name)
        self._cost = cost

    async def tick(self, snapshot: MatchSnapshot) -> None:
        match_id = f"naive-{snapshot.match.match_id}"
        live = live_score_of(snapshot.match, snapshot.balls[-RECENT_BALLS:])
        state = _plain(live) | {"matchId": match_id, "recentBalls": _plain(_recent(snapshot))}
        stored = await self._call(self._states.get_item, Key={"matchId": match_id}, ConsistentRead=True)
        if stored.get("Item") == state:
            return
        fixture = _plain(snapshot.match) | {"matchId": match_id, "balls": _plain(snapshot.balls)}
        await self._call(self._fixtures.put_item, Item=fixture)
        await self._call(self._states.put_item, Item=state)

    async def _call(self, method: Callable[..., Any], **request: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await asyncio.to_thread(method, **request, ReturnConsumedCapacity="TOTAL")
        operation = "GetItem" if method == self._states.get_item else "PutItem"
        self._cost.add(operation, float(answer["ConsumedCapacity"]["CapacityUnits"]))
        return answer


def _recent(snapshot: MatchSnapshot) -> tuple[Any, ...]:
    return snapshot.balls[-RECENT_BALLS:]


def _plain(value: Any) -> Any:
    """Return a value as maps and lists for boto3's resources, without attributes that are None."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        return {_camel(name): _plain(field) for name, field in fields.items() if field is not None}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return Decimal(str(value)) if isinstance(value, float) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
