"""The retry budget limits calls to a store that fails. The circuit breaker stops calls to a store that is away."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.budget import RetryBudget
from datastore.dynamodb.retry.circuit_breaker import BreakerConfig, BreakerState, CircuitBreaker
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.sightings import BLIP
from tests.support.client_faults import PUT_NEW, TRANSIENT, store_on
from tests.support.fault_mix import FaultMix, Only
from tests.support.fault_proxy import PATIENT as HTTP_PATIENT
from tests.support.fault_proxy import (
    QUICK,
    Proxy,
    Seen,
    client_of,
    cut_body,
    damage,
    fail_after_all,
    forward,
    hang,
    lose_answer,
    plain_error,
    reset,
)
from tests.support.time_jumps import jump
from tests.support.until import until

SOON = BreakerConfig(wait_seconds=0.1, first_probe_seconds=0.01, probe_interval=0.02, probe_timeout=50)
# Callers wait for it.
PATIENT = replace(SOON, wait_seconds=60)
ASKED = {"Limit": 2}
AWAY = {"code": "UNAVAILABLE", "retryable": True, "retryAfter": 1}


async def code_of_call(client: Client, timeout: float = 50) -> str:  # noqa: ASYNC109 - as the client has it
    """Make a call and return the code of its error, or OK."""
    try:
        await client.call("ListTables", ASKED, timeout=timeout)
    except DomainError as error:
        return error.code
    return "OK"


def tries_at_store(proxy: Proxy) -> int:
    """Return the number of tries that arrived, without the probes."""
    return sum(seen.body == ASKED for seen in proxy.seen)


# --- The budget -------------------------------------------------------------------------------------------------------


async def test_when_the_retry_budget_is_spent_the_first_error_is_reported(proxy: Proxy) -> None:
    proxy.always = TRANSIENT["throttled"]

    async with client_of(proxy, budget=RetryBudget(20)) as client:
        with pytest.raises(Throttled) as first:
            await client.call("ListTables", ASKED)
        tries = [tries_at_store(proxy)]
        for _ in range(2):
            assert await code_of_call(client) == "THROTTLED"
            tries.append(tries_at_store(proxy))

        assert first.value.extensions == {"code": "THROTTLED", "retryable": True}
        assert tries == [4, 6, 7]
        assert (client.budget.tokens, client.budget.refused) == (0, 2)


async def test_responses_refill_the_retry_budget(proxy: Proxy) -> None:
    async with client_of(proxy, budget=RetryBudget(10)) as client:
        proxy.faults.extend([plain_error(500)] * 3)
        assert await code_of_call(client) == "UNAVAILABLE"
        assert client.budget.tokens == 0
        for _ in range(5):
            assert await code_of_call(client) == "OK"
        assert client.budget.tokens == 5

        proxy.faults.append(plain_error(503))
        assert await code_of_call(client) == "OK"
        # Five were spent, and the answered try returned them.
        assert client.budget.tokens == 5


async def test_retries_do_not_overload_a_store_that_fails_for_all(proxy: Proxy) -> None:
    proxy.always = plain_error(500)

    async with client_of(proxy, backoff=replace(QUICK, attempts=8), budget=RetryBudget(100)) as client:
        codes = await asyncio.gather(*[code_of_call(client) for _ in range(100)])

    assert set(codes) == {"UNAVAILABLE"}
    assert len(proxy.seen) == 100 + 100 // 5


@pytest.mark.parametrize("fault", [lose_answer, damage, fail_after_all(500, "InternalServerError")])
async def test_a_write_that_is_not_retried_may_have_been_applied(
    proxy: Proxy, database: Database, fault: object
) -> None:
    proxy.always = fault  # type: ignore[assignment]

    async with client_of(proxy, budget=RetryBudget(0)) as client:
        with pytest.raises(Unavailable) as lost:
            await store_on(client, database).put(PUT_NEW, {"PK": "A", "SK": "B"})

    assert lost.value.extensions == {"code": "UNAVAILABLE", "retryable": False, "mayHaveBeenApplied": True}
    assert proxy.operations() == ["PutItem"]


async def test_the_retries_of_streams_do_not_use_the_budget_of_tables(proxy: Proxy) -> None:
    proxy.always = FaultMix({"throttled": 1.0}, 1, Only(("ListStreams",)))

    async with client_of(proxy, budget=RetryBudget(10)) as client:
        with pytest.raises(Throttled):
            await client.call("ListStreams", ASKED)
        tokens = {name: breaker.budget.tokens for name, breaker in client.breakers.items()}

    assert tokens == {"tables": 10, "streams": 0}


async def test_a_write_that_was_never_sent_may_be_sent_again(proxy: Proxy, database: Database) -> None:
    async with client_of(proxy, limits=replace(HTTP_PATIENT, connections=1)) as client:
        proxy.faults.append(hang)
        first = asyncio.create_task(code_of_call(client))
        await until(lambda: len(proxy.seen) == 1)
        with pytest.raises(Timeout) as late:
            await store_on(client, database, seconds=0.1).put(PUT_NEW, {"PK": "A", "SK": "B"})
        first.cancel()

    assert late.value.extensions == {"code": "TIMEOUT", "retryable": True}


# --- The breaker ------------------------------------------------------------------------------------------------------


async def test_a_store_that_stays_away_receives_one_probe_at_a_time(proxy: Proxy) -> None:
    async with client_of(proxy, breaker_config=SOON, backoff=replace(QUICK, attempts=20)) as client:
        proxy.always = reset
        assert set(await asyncio.gather(*[code_of_call(client) for _ in range(20)])) == {"UNAVAILABLE"}
        tries = tries_at_store(proxy)
        assert tries <= 20 + SOON.failures
        assert (client.breakers["tables"].state, client.breakers["tables"].times_opened) == (BreakerState.OPEN, 1)

        with pytest.raises(Unavailable) as refused:
            await client.call("ListTables", ASKED)
        assert refused.value.extensions == AWAY
        assert tries_at_store(proxy) == tries
        proxy.always = hang
        seen = len(proxy.seen)
        await until(lambda: len(proxy.seen) > seen)
        await asyncio.sleep(3 * SOON.probe_interval)
        assert len(proxy.seen) == seen + 1


async def test_the_first_response_closes_the_breaker(proxy: Proxy) -> None:
    async with client_of(proxy, breaker_config=SOON) as client:
        await proxy.go_away()
        while client.breakers["tables"].state is not BreakerState.OPEN:
            assert await code_of_call(client) == "UNAVAILABLE"
        await proxy.come_back()
        # No call is made in between.
        await until(lambda: client.breakers["tables"].state is BreakerState.CLOSED)

        assert await code_of_call(client) == "OK"
        assert tries_at_store(proxy) == 1


async def test_a_call_during_a_short_outage_waits_and_is_answered(proxy: Proxy) -> None:
    async with client_of(
        proxy, breaker_config=PATIENT, backoff=replace(QUICK, attempts=8), budget=RetryBudget(25)
    ) as client:
        await proxy.go_away()
        asking = [asyncio.create_task(code_of_call(client)) for _ in range(50)]
        await until(lambda: client.breakers["tables"].state is BreakerState.WAITING)
        asking += [asyncio.create_task(code_of_call(client)) for _ in range(50)]
        await asyncio.sleep(0)
        await proxy.come_back()

        assert await asyncio.gather(*asking) == ["OK"] * 100
        assert tries_at_store(proxy) == 100
        assert client.breakers["tables"].times_opened == 0


async def test_a_waiting_call_has_a_deadline(proxy: Proxy) -> None:
    jump(0)
    async with client_of(proxy, breaker_config=PATIENT, backoff=replace(QUICK, attempts=8)) as client:
        await proxy.go_away()
        call = asyncio.create_task(client.call("ListTables", ASKED, timeout=45))
        await until(lambda: client.breakers["tables"].state is BreakerState.WAITING)
        jump(45)
        with pytest.raises(DomainError) as late:
            await call
        assert client.breakers["tables"].state is BreakerState.WAITING

    assert late.value.extensions == AWAY


async def test_a_silent_store_is_probed(proxy: Proxy) -> None:
    async with client_of(proxy, breaker_config=SOON, limits=replace(HTTP_PATIENT, silence_seconds=0.1)) as client:
        proxy.always = hang
        assert await code_of_call(client) == "UNAVAILABLE"
        assert tries_at_store(proxy) == 1
        proxy.always = None
        await until(lambda: client.breakers["tables"].state is BreakerState.CLOSED)


async def test_a_throttled_table_does_not_affect_others(proxy: Proxy, database: Database) -> None:
    proxy.always = FaultMix({"throttled": 1.0}, 1, Only(("Scan",), (FEED.name,)))

    async with client_of(proxy, breaker_config=SOON) as client:
        for _ in range(5):
            with pytest.raises(Throttled):
                await client.call("Scan", {"TableName": database.prefix + FEED.name})
            assert (await client.call("Scan", {"TableName": database.prefix + BLIP.name}))["Count"] == 0

        assert client.breakers["tables"].state is BreakerState.CLOSED
    assert proxy.reached == {"Scan": 5 * QUICK.attempts + 5}


async def test_a_refusal_shows_that_the_store_works(proxy: Proxy) -> None:
    async with client_of(proxy, breaker_config=SOON, backoff=Backoff(attempts=1)) as client:
        for _ in range(4 * SOON.failures):
            proxy.faults.extend([cut_body, plain_error(400)])
            assert await code_of_call(client) == "UNAVAILABLE"
            with pytest.raises(Exception, match="400"):
                await client.call("ListTables", ASKED)

        assert client.breakers["tables"].state is BreakerState.CLOSED


async def test_streams_have_a_breaker_of_their_own(proxy: Proxy) -> None:
    proxy.always = FaultMix({"reset": 1.0}, 1, Only(("ListStreams",)))

    async with client_of(proxy, breaker_config=SOON) as client:
        while client.breakers["streams"].state is not BreakerState.OPEN:
            with pytest.raises(Unavailable):
                await client.call("ListStreams", ASKED)
        assert await code_of_call(client) == "OK"
        proxy.always = None
        await until(lambda: client.breakers["streams"].state is BreakerState.CLOSED)


async def test_a_caller_that_leaves_a_silent_store_shows_that_it_hangs(proxy: Proxy) -> None:
    proxy.always = hang

    async with client_of(proxy, breaker_config=replace(SOON, slow_seconds=0.02, wait_seconds=60)) as client:
        for _ in range(SOON.failures):
            assert not client.breakers["tables"].tripped
            with suppress(TimeoutError):
                await asyncio.wait_for(code_of_call(client), 0.05)
        assert client.breakers["tables"].tripped


async def test_a_caller_that_leaves_at_once_proves_nothing(proxy: Proxy) -> None:
    proxy.always = hang

    async with client_of(proxy, breaker_config=replace(SOON, slow_seconds=50)) as client:
        for _ in range(2 * SOON.failures):
            with suppress(TimeoutError):
                await asyncio.wait_for(code_of_call(client), 0.01)
        assert not client.breakers["tables"].tripped


async def test_tries_from_before_the_recovery_are_ignored(proxy: Proxy) -> None:
    jump(0)
    async with client_of(proxy, breaker_config=PATIENT, backoff=Backoff(attempts=1)) as client:
        breaker = client.breakers["tables"]
        proxy.always = hang
        first = asyncio.create_task(code_of_call(client, timeout=500))
        await until(lambda: tries_at_store(proxy) == 1)
        jump(HTTP_PATIENT.silence_seconds / 2)
        later = [asyncio.create_task(code_of_call(client, timeout=500)) for _ in range(3)]
        await until(lambda: tries_at_store(proxy) == 4)
        proxy.always = None
        jump(HTTP_PATIENT.silence_seconds / 2)
        await first
        await until(lambda: not breaker.tripped)
        probes = proxy.reached.total()
        assert not any(call.done() for call in later)
        jump(HTTP_PATIENT.silence_seconds / 2)
        assert await asyncio.gather(*later) == ["TIMEOUT"] * 3

        assert not breaker.tripped
        assert proxy.reached.total() == probes


async def test_a_late_response_closes_the_breaker_while_probes_fail(proxy: Proxy) -> None:
    answering = asyncio.Event()

    async def late(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await answering.wait()
        return await forward(proxy, seen)

    config = replace(PATIENT, probe_timeout=60)
    async with client_of(proxy, breaker_config=config, backoff=QUICK) as client:
        proxy.faults.append(late)
        asking = asyncio.create_task(code_of_call(client))
        await until(lambda: tries_at_store(proxy) == 1)
        proxy.always = hang  # of the probe, too
        client.breakers["tables"].record_failure(asyncio.get_running_loop().time(), timed_out=True)
        waiting = asyncio.create_task(code_of_call(client))
        await until(lambda: len(proxy.seen) == 2)
        proxy.always = None
        answering.set()

        assert {await asking, await waiting} == {"OK"}


async def test_a_probe_that_fails_in_an_unknown_way_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[bool | Exception] = [ValueError("oops"), True]

    async def probe(_: float) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    breaker = CircuitBreaker(probe, SOON)
    breaker.record_failure(asyncio.get_running_loop().time(), timed_out=True)
    await until(lambda: not breaker.tripped)
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_an_ambiguous_write_is_reported_without_retry_after(proxy: Proxy, database: Database) -> None:
    proxy.always = reset

    async with client_of(proxy, breaker_config=replace(SOON, failures=1)) as client:
        with pytest.raises(Unavailable) as refused:
            await store_on(client, database).put(PUT_NEW, {"PK": "A", "SK": "B"})

    assert refused.value.extensions == {"code": "UNAVAILABLE", "retryable": False, "mayHaveBeenApplied": True}
