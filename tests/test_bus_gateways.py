"""Gateways that share a bus: what subscribers of each are told, and what it takes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from bus_hosts import until
from conftest import Clock, Served, Tidied, free_port, listening
from earthquake_samples import put_raw
from redis_server import RedisServer
from resuming_clients import Client, OverEvents, OverSocket

from datastore.database import StoreOptions
from datastore.keyspace.earthquakes import EARTHQUAKES
from edge.settings import Misconfigured, Settings
from resolvers.access import Role

QUAKES = "subscription { earthquakeDetected { eventId } }"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def settings(settings: Settings, redis: RedisServer) -> Settings:
    return replace(settings, bus=redis.url)


@pytest.fixture
async def gateways(
    served: Served, settings: Settings, store_options: StoreOptions, clock: Clock
) -> AsyncIterator[list[Served]]:
    async with AsyncExitStack() as stack:
        gateways = [served]
        for _ in range(2):
            another = replace(settings, port=free_port())
            gateway = Tidied(another, store_options, now=clock)
            await stack.enter_async_context(gateway.running())
            await stack.enter_async_context(listening(gateway))
            gateways.append(Served(gateway, another.url, served.http, clock))
        yield gateways


def count_reads(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls for records of streams that it makes from now on."""
    assert served.gateway.database is not None
    client = served.gateway.database.client
    call, made = client.call, list[str]()

    async def counted(operation: str, *arguments: Any, **options: Any) -> Any:
        if operation == "GetRecords":
            made.append(operation)
        return await call(operation, *arguments, **options)

    monkeypatch.setattr(client, "call", counted)
    return made


async def figure(served: Served, name: str) -> float:
    headers = served.headers("root", Role.ADMIN)
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])


async def readiness(served: Served) -> Any:
    async with served.http.get(f"{served.url}/readyz") as response:
        assert response.status == 200
        return await response.json()


async def test_subscribers_of_all_are_told_each_event_once_and_one_process_reads(
    gateways: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = [count_reads(served, monkeypatch) for served in gateways]
    listeners = [await served.listen(QUAKES) for served in gateways]
    for served in gateways:
        await served.settle(EARTHQUAKES)

    for number in range(9):
        await put_raw(gateways[number % 3], f"us{number}")

    for listener in listeners:
        told = [(await listener.event())["earthquakeDetected"]["eventId"] for _ in range(9)]
        assert told == [f"us{number}" for number in range(9)]
        await listener.socket.close()
    assert sum(bool(made) for made in reads) == 1
    assert sum([await figure(served, "gateway_bus_relayed_total") for served in gateways]) == 9
    assert [await figure(served, "gateway_bus_received_total") for served in gateways] == [9, 9, 9]
    assert await readiness(gateways[0]) == {"ready": True, "store": "ok", "bus": "ok"}


async def test_a_gateway_is_ready_and_tells_its_subscribers_while_the_bus_is_away(
    served: Served, redis: RedisServer
) -> None:
    listener = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    redis.kill()
    await put_raw(served, "us1")

    assert (await listener.event())["earthquakeDetected"]["eventId"] == "us1"
    assert await readiness(served) == {"ready": True, "store": "ok", "bus": "away"}
    assert await figure(served, "gateway_bus_tables_direct") == 1
    redis.start()
    bus = served.gateway.bus
    assert bus is not None
    await until(lambda: not bus.is_away)
    assert (await readiness(served))["bus"] == "ok"


@pytest.mark.parametrize("transport", [OverSocket, OverEvents])
async def test_a_client_that_was_cut_off_goes_on_at_another_gateway(
    gateways: list[Served], transport: type[Client]
) -> None:
    one, other, fresh = gateways
    stays = await other.listen(QUAKES)
    await other.settle(EARTHQUAKES)
    client = transport(one.http, QUAKES, {})
    told: list[str] = []

    async def take(served: Served, many: int) -> None:
        async with client.connected(served.url) as events:
            async for payload in events:
                if "data" in payload:
                    assert "resync" not in payload["extensions"]
                    told.append(payload["data"]["earthquakeDetected"]["eventId"])
                elif not told:
                    await put_raw(one, "us0")
                if len(told) == many:
                    return

    await take(one, 1)
    for number in range(1, 5):
        await put_raw(one, f"us{number}")
    await take(other, 5)
    for number in range(5, 8):
        await put_raw(one, f"us{number}")
    await take(fresh, 8)

    assert told == [f"us{number}" for number in range(8)]
    assert [(await stays.event())["earthquakeDetected"]["eventId"] for _ in range(8)] == told


@pytest.mark.parametrize(
    "url",
    [
        "kafka://user:hidden-word@bus",
        "redis://:hidden-word@bus:99999/0",
        "redis://:hidden-word@bus:port/0",
        "redis://:hidden-word@bus?socket_timeout=abc",
    ],
)
def test_a_bus_that_is_no_redis_is_refused_and_its_address_not_told(settings: Settings, url: str) -> None:
    with pytest.raises(Misconfigured, match="GATEWAY_BUS must be a URL of Redis") as refusal:
        replace(settings, bus=url)
    assert "hidden-word" not in str(refusal.value)
