"""Calls that are made together: each has the result that it has alone, also after faults of the store."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from datastore.dynamodb.client import Client
from datastore.dynamodb.requests import PreparedRequest
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.session.metering import Meter, ReadTooMuch
from tests.support.client_faults import FINAL, TRANSIENT
from tests.support.fault_proxy import PATIENT, Fault, Proxy, client_of, hang
from tests.support.until import until

REQUESTS = [PreparedRequest(orjson.dumps({"Limit": limit}), ()) for limit in (1, 2, 3)]
FAULTS: dict[str, Fault | None] = {**TRANSIENT, **FINAL, "none": None}


async def call_singly(client: Client, meter: Meter) -> Sequence[Any]:
    calls = [client.call("ListTables", request, meter=meter) for request in REQUESTS]
    results: Sequence[Any] = await asyncio.gather(*calls, return_exceptions=True)
    return results


async def call_together(client: Client, meter: Meter) -> Sequence[Any]:
    results: Sequence[Any] = await client.call_each("ListTables", REQUESTS, meter=meter)
    return results


def seen(results: Sequence[Any], meter: Meter) -> tuple[list[str], list[Any]]:
    """Return the results and the metered calls. Which of the requests meets the fault is chance."""
    shown = [repr(result) if isinstance(result, BaseException) else "answered" for result in results]
    for request, result in zip(REQUESTS, results, strict=True):
        assert isinstance(result, BaseException) or len(result["TableNames"]) <= request.payload["Limit"]
    calls = [(call.operation, call.attempts, call.failed, call.ambiguous, call.abandoned) for call in meter.calls]
    return sorted(shown), sorted(calls)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("idle", [0, 3])
@pytest.mark.parametrize("times", [1, 20])
async def test_the_results_and_the_metered_calls_are_those_of_single_calls(
    proxy: Proxy, fault: Fault | None, idle: int, times: int
) -> None:
    # The circuit breaker would end one of the calls early.
    options: dict[str, Any] = {
        "backoff": Backoff(initial=0.001, maximum=0.002, attempts=2),
        "breaker_config": BreakerConfig(failures=1000),
    }
    outcomes = []
    for call in (call_singly, call_together):
        async with client_of(proxy, **options) as client:
            await asyncio.gather(*[client.call("ListTables", {"Limit": 1}) for _ in range(idle)])
            proxy.faults.extend([fault] * times if fault else [])
            meter = Meter()
            outcomes.append(seen(await call(client, meter), meter))
            proxy.faults.clear()
            assert meter.open_calls == 0

    assert outcomes[0] == outcomes[1]


async def test_a_single_connection_serves_all_calls(proxy: Proxy) -> None:
    async with client_of(proxy, limits=replace(PATIENT, connections=1)) as client:
        for _ in range(2):
            meter = Meter()
            assert seen(await call_together(client, meter), meter)[0] == ["answered"] * 3

    assert proxy.operations() == ["ListTables"] * 6


async def test_a_large_request_is_sent_in_pieces(client: Client, proxy: Proxy) -> None:
    large = PreparedRequest(b'{"Limit":1' + b" " * 200_000 + b"}", ())
    await client.call("ListTables", {"Limit": 1})

    results = await client.call_each("ListTables", [large, REQUESTS[0]], meter=Meter())

    assert [isinstance(result, dict) and len(result["TableNames"]) for result in results] == [1, 1]


async def test_cancelled_calls_leave_no_connections_and_are_metered_as_abandoned(client: Client, proxy: Proxy) -> None:
    await asyncio.gather(*[client.call("ListTables", {"Limit": 1}) for _ in range(2)])
    proxy.faults.extend([hang] * 3)
    meter = Meter()
    calling = asyncio.create_task(call_together(client, meter))
    await until(lambda: not proxy.faults)

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert [(call.failed, call.ambiguous, call.abandoned) for call in meter.calls] == [(True, True, True)] * 3
    assert meter.open_calls == 0
    await until(lambda: proxy.connections == 0)
    assert seen(await call_together(client, Meter()), Meter())[0] == ["answered"] * 3


async def test_nothing_is_sent_beyond_the_limit_of_the_meter(client: Client, proxy: Proxy) -> None:
    with pytest.raises(ReadTooMuch):
        await call_together(client, Meter(limit=0.0))

    assert proxy.seen == []
