"""A mixed load on a store where one try in five fails: acknowledged writes are stored once, and nothing else is.

`make faults` runs it at full length.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from datastore.database import Database, StoreOptions
from datastore.dynamodb.client import Client
from datastore.dynamodb.read_cache import ReadCaches
from datastore.dynamodb.retry.budget import RETRY_COST, RetryBudget
from datastore.matches.fixtures import Fixtures
from server.settings import Settings
from tests.support.earthquake_samples import quake, store
from tests.support.fault_mix import FIFTH, FaultMix, Only
from tests.support.fault_proxy import Proxy
from tests.support.load_facts import stored_facts
from tests.support.load_operations import QUAKES
from tests.support.mixed_load import Fact, MixedLoad
from tests.support.served import NOON, Clock, Served
from tests.support.until import until

OPERATIONS = int(os.environ.get("FAULT_OPERATIONS", "1500"))
SEED = int(os.environ.get("FAULT_SEED", "8"))
ACTORS = 16
STORM_EACH = 1500

WRITING = Only(("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"))
# Whether the write may have been applied.
FINAL = {
    "throttled": False,
    "answer lost": True,
    "500 after it was done": True,
    "cut body": True,
    "wrong checksum": True,
}

pytestmark = pytest.mark.timeout(60 + OPERATIONS / 20)
# The largest share of responses that may be errors outside of storms.
MOST_ERRORS = 0.02


class Hurrying(Clock):
    """A clock at twenty times the speed: a lease of a minute lasts three seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def __call__(self) -> datetime:
        return NOON + timedelta(seconds=20 * (time.monotonic() - self._began))


@pytest.fixture
def clock() -> Clock:
    return Hurrying()


@pytest.fixture
async def proxy(engine: str) -> AsyncIterator[Proxy]:
    async with Proxy(engine, remembers=False) as proxy:
        yield proxy


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    return StoreOptions(store=proxy.url, prefix=store_options.prefix)


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    # Reads are cached for the time of production, although the clock of the test is faster.
    monkeypatch.setattr("runtime.container.ReadCaches", lambda _, enabled: ReadCaches(enabled=enabled))
    return replace(settings, shared_reads=True)


def client_of_gateway(served: Served) -> Client:
    assert served.gateway.database is not None
    return served.gateway.database.client


@pytest.fixture
async def load(served: Served) -> MixedLoad:
    load = MixedLoad(served, actors=ACTORS, seed=SEED)
    await Fixtures(served.store(), NOON).sync(load.fixtures(NOON + timedelta(days=1)))
    await store(served, *[quake(f"us{number}", timedelta(minutes=number + 1)) for number in range(QUAKES)])
    await load.enter()
    return load


async def test_under_a_fifth_of_faults_all_that_is_acknowledged_is_there_once(
    served: Served, load: MixedLoad, proxy: Proxy, database: Database
) -> None:
    mix = FaultMix(FIFTH, SEED)
    proxy.always = mix
    proxy.reached.clear()
    began = time.monotonic()

    storms = asyncio.create_task(_storms(served, load, mix))
    await load.run(OPERATIONS)
    in_storms = await storms

    mix.times = 0
    _tell(served, load, proxy, mix, time.monotonic() - began)
    _all_is_right(load, await stored_facts(database))
    assert min(mix.done[name] for name in ("throttled", "500", "reset", "answer lost", "corrupted")) > 10
    assert load.report.failed - in_storms < MOST_ERRORS * sum(load.report.operations.values())
    assert load.report.reads_unsure == 0
    client = client_of_gateway(served)
    assert client.budget.tokens > 0.8 * client.budget.capacity
    assert not any(breaker.tripped for breaker in client.breakers.values())


async def test_a_write_without_a_retry_is_reported_by_whether_it_may_be_applied(
    served: Served, load: MixedLoad, proxy: Proxy, database: Database
) -> None:
    """One fault at a time, with almost no retries."""
    client, received = client_of_gateway(served), load.report
    client.breakers["tables"].budget, load.keyed = RetryBudget(RETRY_COST), 0.0

    for name, may_be_applied in FINAL.items():
        mix = proxy.always = FaultMix({name: 0.5}, SEED, WRITING)
        unsure, failed = received.unsure, received.failed
        await load.run(8 * ACTORS)
        mix.times = 0
        client.reset_breakers()
        _all_is_right(load, await stored_facts(database))
        assert received.failed > failed
        assert (received.unsure > unsure) is may_be_applied, name


def _all_is_right(load: MixedLoad, stored: dict[Fact, Any]) -> None:
    assert load.report.undeclared == []
    assert load.report.wrong == []
    for kind in {fact[0] for fact in load.truth.may_be}:
        assert load.truth.wrong(kind, stored) == []


async def _storms(served: Served, load: MixedLoad, mix: FaultMix) -> int:
    """Let nearly all calls fail until the retry budget is spent, then make the store unavailable for a moment.

    Return the number of errors in these storms, which depends on the speed of the machine. A storm ends when the retry
    budget is spent or the circuit breaker has closed, and each actor has ended the requests that it began before.
    """
    client, tables = client_of_gateway(served), client_of_gateway(served).breakers["tables"]

    def share(least: float) -> bool:
        return load.done >= STORM_EACH * least

    async def ended() -> None:
        done = load.done
        await until(lambda: load.done >= min(done + 2 * ACTORS, OPERATIONS))

    errors = 0
    for number in range(OPERATIONS // STORM_EACH):
        await until(partial(share, number + 0.4))
        mix.times, refused, errors_before = 4.0, client.budget.refused, load.report.failed
        await until(partial(lambda before: client.budget.refused > before, refused))
        mix.times = 1.0
        await ended()
        errors += load.report.failed - errors_before
        await until(partial(share, number + 0.7))
        mix.away, opened, errors_before = True, tables.times_opened, load.report.failed
        await until(partial(lambda before: tables.times_opened > before, opened))
        mix.away = False
        await until(lambda: not tables.tripped)
        await ended()
        errors += load.report.failed - errors_before
    return errors


def _tell(served: Served, load: MixedLoad, proxy: Proxy, mix: FaultMix, seconds: float) -> None:
    """Print the figures for a run at full length (with `-s`)."""
    client, received = client_of_gateway(served), load.report
    asked, tries = sum(received.operations.values()), sum(proxy.reached.values())
    print(f"\n{asked} requests in {seconds:.0f} s, {received.asked_again} of them repeated with their idempotency key")
    print(f"errors by code: {dict(Counter([code for (_, code), n in received.codes.items() for _ in range(n)]))}")
    print(f"writes that may have been applied: {received.unsure}")
    print(f"tries that reached the store: {tries}, {tries / asked:.2f} a request; faults: {dict(mix.done)}")
    print(f"tokens left {client.budget.tokens}, tries not repeated for want of tokens {client.budget.refused}")
    print(f"breakers opened: { {name: breaker.times_opened for name, breaker in client.breakers.items()} }")
