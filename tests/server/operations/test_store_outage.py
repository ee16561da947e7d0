"""A store that is unreachable or hangs: the readiness, the errors and the metrics, until it responds again."""

from dataclasses import replace

import pytest

from datastore.database import StoreOptions
from datastore.dynamodb.client import Client
from datastore.model.identity import Role
from tests.support.fault_proxy import Proxy, hang
from tests.support.served import Answer, Served
from tests.support.until import until

BREAKER = 'gateway_dynamodb_breaker{endpoint="tables"}'
OPENINGS = 'gateway_dynamodb_breaker_openings_total{endpoint="tables"}'


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    return replace(store_options, store=proxy.url)


@pytest.fixture
def client(served: Served) -> Client:
    """The client of the gateway."""
    assert served.gateway.database is not None
    return served.gateway.database.client


async def store_readiness(served: Served) -> tuple[int, str]:
    async with served.http.get(f"{served.url}/readyz") as response:
        return response.status, (await response.json())["store"]


async def ask_earthquake(served: Served) -> Answer:
    return await served.ask('{ earthquake(id: "us1") { eventId } }')


async def metric_starting_with(served: Served, name: str) -> float:
    async with served.http.get(f"{served.url}/metrics", headers=served.headers("root", Role.ADMIN)) as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


async def test_an_unreachable_store_is_reported_and_used_again_after_its_return(
    served: Served, client: Client, proxy: Proxy
) -> None:
    assert await store_readiness(served) == (200, "ok")
    await proxy.go_away()
    assert await store_readiness(served) == (503, "unreachable")
    tries = proxy.reached.total()
    answer = await ask_earthquake(served)

    assert answer.data == {"earthquake": None}
    assert [error["extensions"] for error in answer.errors or ()] == [
        {"code": "UNAVAILABLE", "retryable": True, "retryAfter": 1}
    ]
    assert answer.calls == []
    assert (await metric_starting_with(served, BREAKER), await metric_starting_with(served, OPENINGS)) == (2, 1)
    assert proxy.reached.total() == tries

    await proxy.come_back()
    await until(lambda: not client.breakers["tables"].tripped)
    assert await store_readiness(served) == (200, "ok")
    assert (await ask_earthquake(served)).errors is None
    assert await metric_starting_with(served, BREAKER) == 0


@pytest.mark.proof
async def test_a_store_that_hangs_is_not_ready_until_it_responds(served: Served, proxy: Proxy) -> None:
    proxy.always = hang
    assert await store_readiness(served) == (503, "unreachable")
    proxy.always = None
    assert await store_readiness(served) == (200, "ok")


async def test_the_retry_budget_has_metrics(served: Served, client: Client) -> None:
    full = await metric_starting_with(served, "gateway_dynamodb_retry_tokens")
    client.budget.take(client.budget.tokens - 3)
    client.budget.take(5)

    assert (full, await metric_starting_with(served, "gateway_dynamodb_retry_tokens")) == (500, 3)
    assert await metric_starting_with(served, "gateway_dynamodb_retries_refused_total") == 1
