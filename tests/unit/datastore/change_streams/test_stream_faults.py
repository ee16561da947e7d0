"""Streams that deliver twice, lose iterators and fail, on the real engine: each subscriber gets each change once."""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web

from datastore.database import StoreOptions, open_database
from datastore.dynamodb.retry.circuit_breaker import BreakerState
from datastore.keyspace.sightings import BLIP
from tests.support.fault_mix import FIFTH, FaultMix, Only
from tests.support.fault_proxy import EXPIRED, Proxy, Seen
from tests.support.feed_workload import STEP, FeedWorkload, before, compare_with_feed_model, pipeline_settled
from tests.support.feed_workload_steps import PATIENCE, buried, pipeline
from tests.support.resume import other  # noqa: F401
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Clock, Served
from tests.support.sightings import report_sighting
from tests.support.until import until

OPERATIONS = 160
REPORTED = 'subscription { sightingReported(area: "Downtown") { sightingId } }'
STREAM = Only(("DescribeStream", "GetShardIterator", "GetRecords"))
BADLY = {"records repeated": 0.5, "iterator expired": 0.15, "500": 0.1, "cut body": 0.1}


@pytest.fixture
def clock() -> Clock:
    """Return a clock that starts so early that the workload ends before now."""
    clock = Clock()
    clock.now = before(OPERATIONS * STEP)
    return clock


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    return replace(store_options, store=proxy.url)


async def test_a_subscriber_receives_each_change_once_and_in_order(served: Served, proxy: Proxy) -> None:
    mix = FaultMix(BADLY, 8, STREAM)
    listener = await served.listen(REPORTED)
    await served.settle(BLIP)
    proxy.always = mix

    for _ in range(20):
        reported = [(await report_sighting(served))["sightingId"] for _ in range(2)]
        received = [(await listener.event())["sightingReported"]["sightingId"] for _ in reported]
        assert received == reported

    assert {"records repeated", "iterator expired"} <= mix.done.keys()


class ExpireBeforeRecords:
    """A fault: each poll that would return records finds its iterator expired, and the next one is answered."""

    def __init__(self) -> None:
        self.done = 0
        self._was_last = False

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        if seen.operation == "GetRecords" and json.loads(content).get("Records"):
            self._was_last = not self._was_last
            if self._was_last:
                self.done += 1
                return await EXPIRED(proxy, seen)
        return web.Response(status=status, headers=headers, body=content)


async def test_the_changes_of_an_expired_iterator_are_delivered(served: Served, proxy: Proxy) -> None:
    listener = await served.listen(REPORTED)
    await served.settle(BLIP)
    expire = proxy.always = ExpireBeforeRecords()

    for number in range(5):
        reported = (await report_sighting(served))["sightingId"]
        assert (await listener.event())["sightingReported"]["sightingId"] == reported
        assert expire.done == number + 1


async def test_a_subscriber_whose_changes_were_trimmed_is_informed_and_may_return(served: Served, proxy: Proxy) -> None:
    listener = await served.listen(REPORTED)
    await served.settle(BLIP)
    mix = FaultMix({"stream trimmed": 1.0}, 8, STREAM)
    proxy.always = mix

    received = await listener.message()
    mix.times = 0
    again = await served.listen(REPORTED)
    await served.settle(BLIP)
    reported = await report_sighting(served)

    assert (received["type"], received["payload"][0]["extensions"]) == (
        "error",
        {"code": "UNAVAILABLE", "retryable": True},
    )
    assert (await again.event())["sightingReported"]["sightingId"] == reported["sightingId"]


@pytest.mark.parametrize("transport", [SocketClient, EventStreamClient])
async def test_a_subscriber_that_returns_during_an_outage_resumes_after_it(
    served: Served,
    other: Served,  # noqa: F811 - the fixture
    proxy: Proxy,
    transport: type[ResumingClient],
) -> None:
    client = transport(served.http, REPORTED, {})
    async with client.connected(served.url) as events:
        await anext(events)
        await report_sighting(served)
        await anext(events)
    missed = [(await report_sighting(served))["sightingId"] for _ in range(2)]
    async with transport(served.http, REPORTED, {}).connected(other.url) as present:
        await anext(present)  # from here on that process reads the table, so its log lacks the missed changes
        assert other.gateway.database is not None
        store = other.gateway.database.client
        await proxy.go_away()
        async with client.connected(other.url) as events:
            coming = asyncio.ensure_future(anext(events))
            await until(lambda: store.breakers["streams"].state is BreakerState.OPEN)
            await asyncio.wait([coming], timeout=0.1)
            assert not coming.done()
            await proxy.come_back()
            received = [await coming, await anext(events)]
    assert [event["data"]["sightingReported"]["sightingId"] for event in received] == missed


@pytest.mark.proof
@pytest.mark.timeout(2 * PATIENCE)
async def test_the_feed_has_the_same_result_while_one_try_in_five_fails(
    served: Served, proxy: Proxy, engine: str, store_options: StoreOptions
) -> None:
    workload = FeedWorkload(served, served.clock, users=6, seed=8)
    await workload.enter()
    mix = FaultMix(FIFTH | {"records repeated": 0.5}, 8)
    proxy.always = mix

    async with pipeline(served):
        await workload.run(OPERATIONS)
        async with open_database(replace(store_options, store=engine)) as database:
            await pipeline_settled(database.client, served.store, database.prefix)

    mix.times = 0
    await compare_with_feed_model(workload)
    assert await buried(served) == []
    assert mix.done["records repeated"] > 0
