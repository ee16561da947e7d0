"""The client against the real engine, through a proxy that injects faults."""

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from datastore.database import Database, StoreMisconfigured, StoreOptions, open_database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.requests import PreparedRequest
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.keyspace.sightings import BLIP
from datastore.session.metering import Meter
from tests.support.client_faults import CONFLICT, FINAL, TRANSIENT
from tests.support.fault_proxy import (
    LOCAL,
    PATIENT,
    QUICK,
    Fault,
    Proxy,
    Seen,
    client_of,
    cut_json,
    damage,
    dribble,
    forward,
    hang,
    plain_error,
    refuse,
    reset,
)
from tests.support.time_jumps import jump
from tests.support.until import until

# --- Retries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
async def test_temporary_failures_are_retried(client: Client, proxy: Proxy, fault: Fault) -> None:
    proxy.faults.extend([fault, fault])
    meter = Meter()

    answer = await client.call("ListTables", {"Limit": 1}, meter=meter)

    assert list(answer)[:1] == ["TableNames"]
    assert proxy.operations() == ["ListTables"] * 3
    assert [call.attempts for call in meter.calls] == [3]


@pytest.mark.parametrize(("code", "fault"), FINAL.items(), ids=FINAL.keys())
async def test_refused_requests_are_not_retried(client: Client, proxy: Proxy, code: str, fault: Fault) -> None:
    proxy.faults.append(fault)

    with pytest.raises(RequestRefused) as refused:
        await client.call("ListTables", {})

    assert refused.value.code == code
    assert proxy.operations() == ["ListTables"]


@pytest.mark.breaks_rules("it is about refusals")
async def test_refusals_of_the_engine_keep_their_code_and_message(client: Client, proxy: Proxy) -> None:
    with pytest.raises(RequestRefused) as missing:
        await client.call("DescribeTable", {"TableName": "there-is-no-such-table"})
    with pytest.raises(RequestRefused) as invalid:
        await client.call("GetItem", {"TableName": "x"})

    assert missing.value.code == "ResourceNotFoundException"
    assert "not found" in missing.value.message
    assert invalid.value.code == "ValidationException"
    assert proxy.operations() == ["DescribeTable", "GetItem"]


async def test_a_prepared_request_is_sent_unchanged_and_metered(
    client: Client, proxy: Proxy, database: Database
) -> None:
    table = database.prefix + BLIP.name
    payload = {"TableName": table, "IndexName": "TrendingIndex", "Limit": 1, "ReturnConsumedCapacity": "TOTAL"}
    meter, other = Meter(), Meter()

    answer = await client.call("Scan", PreparedRequest(orjson.dumps(payload), (table,), "TrendingIndex"), meter=meter)

    assert answer == await client.call("Scan", payload, meter=other)
    assert [seen.body for seen in proxy.seen] == [payload, payload]
    metered = [(call.tables, call.index, call.units, call.request) for call in meter.calls + other.calls]
    assert metered == [((table,), "TrendingIndex", 0.5, payload)] * 2


@pytest.mark.breaks_rules("it is about refusals")
async def test_a_value_outside_json_is_refused_before_sending(client: Client, proxy: Proxy) -> None:
    meter = Meter()

    with pytest.raises(RequestRefused, match="SerializationException"):
        await client.call("PutItem", {"Item": {"PK": {"S": "\ud800"}}}, meter=meter)

    assert (proxy.seen, meter.calls) == ([], [])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (TRANSIENT["throttled"], Throttled),
        (CONFLICT, Throttled),
        (plain_error(429), Throttled),
        (plain_error(503), Unavailable),
        (reset, Unavailable),
        (damage, Unavailable),
        (cut_json, Unavailable),
    ],
)
async def test_the_last_failure_is_raised_after_the_last_try(
    client: Client, proxy: Proxy, fault: Fault, error: type[DomainError]
) -> None:
    proxy.always = fault

    with pytest.raises(error) as problem:
        await client.call("ListTables", {})

    assert problem.value.extensions == {"code": error.code, "retryable": True}
    assert len(proxy.seen) == QUICK.attempts


async def test_a_store_that_cannot_be_reached_is_unavailable(proxy: Proxy, client: Client) -> None:
    await proxy.runner.cleanup()

    with pytest.raises(Unavailable):
        await client.call("ListTables", {})


@given(tries=st.integers(1, 12), draws=st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_delays_are_random_up_to_a_bound_that_doubles(tries: int, draws: list[float]) -> None:
    drawn = iter(draws)

    delays = list(Backoff(initial=0.5, maximum=8, attempts=tries).delays(lambda: next(drawn)))

    bounds = [0.5, 1, 2, 4, 8, 8, 8, 8, 8, 8, 8]
    assert delays == [draw * bound for draw, bound in zip(draws, bounds[: tries - 1], strict=False)]


# --- The deadline -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [hang, dribble])
async def test_a_hanging_store_is_abandoned_at_the_deadline(proxy: Proxy, fault: Fault) -> None:
    proxy.always = fault
    meter = Meter()

    async with client_of(proxy, limits=replace(PATIENT, silence_seconds=10**6)) as client:
        call = asyncio.create_task(client.call("ListTables", {}, timeout=100, meter=meter))
        await until(lambda: proxy.seen)
        jump(50)
        await asyncio.sleep(0.05)
        assert not call.done()
        jump(51)
        with pytest.raises(Timeout) as late:
            await call

    assert late.value.extensions == {"code": "TIMEOUT", "retryable": True}
    assert [(call.operation, call.attempts) for call in meter.calls] == [("ListTables", 1)]


async def test_a_try_that_hangs_is_abandoned_and_the_next_one_is_answered(proxy: Proxy) -> None:
    proxy.faults.append(hang)
    patient = BreakerConfig(wait_seconds=50, probe_timeout=50)
    jump(0)

    async with client_of(proxy, breaker_config=patient) as client:
        call = asyncio.create_task(client.call("ListTables", {"Limit": 2}, timeout=500))
        await until(lambda: proxy.seen)
        assert not call.done()
        jump(PATIENT.silence_seconds)
        await call

    # Between the two tries, the breaker probed the store.
    assert [seen.body["Limit"] for seen in proxy.seen] == [2, 1, 2]


async def test_a_delay_that_would_outlast_the_deadline_is_not_begun(proxy: Proxy) -> None:
    proxy.always = TRANSIENT["throttled"]

    async with client_of(proxy, backoff=Backoff(initial=10**9, maximum=10**9)) as client, asyncio.timeout(40):
        with pytest.raises(Throttled):
            await client.call("ListTables", {}, timeout=1000)

    assert len(proxy.seen) == 1


async def test_the_deadline_covers_all_tries_and_delays(proxy: Proxy) -> None:
    async def fail(_proxy: Proxy, seen: Seen) -> web.StreamResponse:
        jump(100)
        return await plain_error(500)(proxy, seen)

    proxy.always = fail
    jump(0)

    async with client_of(proxy, backoff=Backoff(initial=0.001, maximum=0.001, attempts=1000)) as client:
        with pytest.raises((Unavailable, Timeout)):
            await client.call("ListTables", {}, timeout=250)

    assert len(proxy.seen) == 3


async def test_the_deadline_covers_the_wait_for_credentials(proxy: Proxy) -> None:
    released = threading.Event()
    slow = SimpleNamespace(get_frozen_credentials=lambda: released.wait(50) and LOCAL)

    async with client_of(proxy, credentials=slow) as client:
        with pytest.raises(Timeout):
            await client.call("ListTables", {}, timeout=0.2)
        released.set()

    assert proxy.seen == []


async def test_a_deadline_that_has_passed_sends_nothing(client: Client, proxy: Proxy) -> None:
    with pytest.raises(Timeout):
        await client.call("ListTables", {}, timeout=0)

    assert proxy.seen == []


# --- Connections ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_leaves_no_connection_and_the_pool_stays_usable(proxy: Proxy) -> None:
    async with client_of(proxy, limits=replace(PATIENT, connections=1)) as client:
        for _ in range(3):
            proxy.faults.append(hang)
            call = asyncio.create_task(client.call("ListTables", {}))
            await until(lambda: not proxy.faults)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: proxy.connections == 0)

        assert list(await client.call("ListTables", {"Limit": 1}, timeout=40))[:1] == ["TableNames"]
        assert proxy.connections == 1


async def test_many_calls_share_few_connections_and_none_is_retried(proxy: Proxy) -> None:
    async def slowly(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await asyncio.sleep(0.025)
        return await forward(proxy, seen)

    proxy.always = slowly
    meter = Meter()
    async with client_of(proxy, limits=replace(PATIENT, connections=4)) as client:
        calls = [client.call("ListTables", {"Limit": 1}, meter=meter, timeout=50) for _ in range(200)]
        answers = await asyncio.gather(*calls)

        assert len(answers) == len(proxy.seen) == 200
        assert {call.attempts for call in meter.calls} == {1}
        assert proxy.connections <= 4


# --- The address of the store -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "store",
    ["localhost:8000", "ftp://localhost", "http://", "http://localhost:8000/path", "http://user@localhost", "here"],
)
async def test_a_store_that_is_no_address_is_refused_by_name(store: str) -> None:
    with pytest.raises(StoreMisconfigured, match="or a URL like"):
        async with open_database(StoreOptions(store=store, region="local")):
            pass


async def test_a_slash_at_the_end_of_an_address_does_no_harm(engine: str) -> None:
    async with open_database(StoreOptions(store=f"{engine}/")) as database:
        assert list(await database.client.call("ListTables", {"Limit": 1}))[:1] == ["TableNames"]


async def test_a_call_waits_for_a_table_that_is_created_again(proxy: Proxy, database: Database) -> None:
    async with client_of(proxy, recreates_tables=True) as client:
        proxy.faults.extend([refuse(400, "ResourceNotFoundException")] * 2)

        answer = await client.call("Scan", {"TableName": database.prefix + BLIP.name})

        assert answer["Count"] == 0
        assert proxy.operations() == ["Scan"] * 3
        with pytest.raises(Unavailable, match="it lacks a table"):
            await client.call("Scan", {"TableName": "there-is-no-such-table"}, timeout=1)


async def test_a_call_does_not_wait_for_a_table_that_no_process_creates(client: Client, proxy: Proxy) -> None:
    with pytest.raises(RequestRefused) as refused:
        await client.call("Scan", {"TableName": "there-is-no-such-table"})

    assert refused.value.code == "ResourceNotFoundException"
    assert proxy.operations() == ["Scan"]
