"""Gateways of one installation with different settings: the difference is logged, on `/readyz` and in the metrics."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import orjson
import pytest

from datastore.database import StoreOptions
from datastore.gateway import running_gateways
from datastore.gateway.running_gateways import RunningGateway, RunningGateways
from datastore.infrastructure.iam_roles import GATEWAY as ROLE
from datastore.keyspace import PATTERNS
from datastore.keyspace.gateway import GATEWAY
from runtime.configuration import settings_of
from runtime.container import Gateway
from server.agreement.fingerprints import differences, fingerprints_of, shared_variables
from server.agreement.settings_agreement import LOGGED_EVERY, STALE
from server.documents.settings import DocumentSettings
from server.settings import Misconfigured, Settings
from tests.support.ports import free_port
from tests.support.served import SECRET, Clock, Served, Tidied, listening
from tests.support.until import until, until_async

NEW = "a new secret, with which nothing was made before"
THIRD = "a third secret, which no other gateway ever accepts"

Open = Callable[..., Awaitable[Served]]


@pytest.fixture
async def open_gateway(
    settings: Settings, store_options: StoreOptions, clock: Clock, served: Served
) -> AsyncIterator[Open]:
    """Open another gateway on the same tables, with its own settings."""
    async with AsyncExitStack() as stack:

        async def open_one(**given: Any) -> Served:
            own = replace(settings, port=free_port(), **given)
            gateway = Tidied(own, store_options, now=clock)
            await stack.enter_async_context(gateway.running())
            await stack.enter_async_context(listening(gateway))
            return Served(gateway, own.url, served.http, clock)

        yield open_one


async def compare(*gateways: Served) -> None:
    """Let each gateway compare the settings twice, as they do at the start and a minute later."""
    for _ in range(2):
        for served in gateways:
            await served.gateway.agreement.compare()


async def agreement_in(served: Served) -> dict[str, Any]:
    """Return the fields of the settings in `/readyz`, which has to be 200."""
    # Close the connection, so that the gateway does not wait for it when it stops.
    async with served.http.get(f"{served.url}/readyz", headers={"Connection": "close"}) as response:
        assert response.status == 200
        body = await response.json()
    return {name: body[name] for name in ("settings", "differing") if name in body}


def metric(served: Served, setting: str) -> float | None:
    found = served.gateway.metrics.registry.get_sample_value("gateway_settings_differing", {"setting": setting})
    return None if found is None else float(found)


async def test_another_secret_is_reported_by_both_gateways_until_it_is_corrected(
    served: Served, open_gateway: Open, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "server.agreement")
    assert await agreement_in(served) == {}
    other = await open_gateway(secret=NEW)
    await compare(served, other)

    for gateway in (served, other):
        assert await agreement_in(gateway) == {"settings": "differ", "differing": ["GATEWAY_SECRET"]}
        assert (metric(gateway, "GATEWAY_SECRET"), metric(gateway, "GATEWAY_AREAS")) == (1, 0)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 2
    assert all("has another GATEWAY_SECRET than this one" in line for line in logged)
    assert not any(secret in caplog.text for secret in (SECRET, NEW))

    clock.forward(seconds=STALE.total_seconds())
    corrected = await open_gateway()
    await compare(served, corrected)
    assert await agreement_in(served) == await agreement_in(corrected) == {"settings": "ok"}
    assert metric(served, "GATEWAY_SECRET") == 0
    assert caplog.messages[-1] == "The settings of all running gateways agree."


async def test_a_difference_that_lasts_is_logged_again_now_and_then(
    served: Served, open_gateway: Open, caplog: pytest.LogCaptureFixture
) -> None:
    other = await open_gateway(secret=NEW)
    await other.gateway.agreement.compare()
    for _ in range(LOGGED_EVERY + 1):
        await served.gateway.agreement.compare()
    assert sum(f"({own_address(served)})" in message for message in caplog.messages) == 2


def own_address(served: Served) -> str:
    return served.gateway.agreement._address


@pytest.mark.parametrize(
    "steps",
    [
        ({}, {"other_secrets": (NEW,), "user_id_secret": SECRET}),
        (
            {"other_secrets": (NEW,), "user_id_secret": SECRET},
            {"secret": NEW, "other_secrets": (SECRET,), "user_id_secret": SECRET},
        ),
        (
            {"secret": NEW, "other_secrets": (SECRET,), "user_id_secret": SECRET},
            {"secret": NEW, "user_id_secret": SECRET},
        ),
    ],
)
async def test_gateways_agree_during_each_step_of_a_rotation(
    served: Served, open_gateway: Open, steps: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    before, after = [await open_gateway(**step) for step in steps]
    await compare(before, after)
    assert await agreement_in(before) == await agreement_in(after) == {"settings": "ok"}


async def test_other_settings_are_compared_during_a_rotation_too(served: Served, open_gateway: Open) -> None:
    one = await open_gateway(other_secrets=(NEW,), areas=("Harbor",))
    other = await open_gateway(secret=NEW, other_secrets=(SECRET,), user_id_secret=SECRET, areas=("Hill",))
    await compare(one, other)
    assert await agreement_in(one) == {"settings": "differ", "differing": ["GATEWAY_AREAS"]}


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({"user_id_secret": THIRD}, "GATEWAY_USER_ID_SECRET"),
        ({"role_claim": "cognito:groups"}, "GATEWAY_ROLE_CLAIM"),
        ({"categories": ("Dogs",)}, "GATEWAY_CATEGORIES"),
        ({"http_profile": "draft2026"}, "GATEWAY_HTTP_PROFILE"),
        ({"documents": DocumentSettings(introspection=False)}, "GATEWAY_INTROSPECTION"),
        ({"documents": DocumentSettings(federation=True)}, "GATEWAY_FEDERATION"),
        ({"documents": DocumentSettings(max_cost=float("inf"))}, "GATEWAY_MAX_COST"),
        ({"bus": "redis://127.0.0.1:1"}, "GATEWAY_BUS"),
    ],
)
def test_each_differing_setting_is_named(settings: Settings, given: dict[str, Any], variable: str) -> None:
    own, other = fingerprints_of(settings), fingerprints_of(replace(settings, **given))
    assert differences(own, other) == differences(other, own) == {variable}
    assert variable in shared_variables(settings)


def test_the_order_of_lists_and_the_addresses_of_services_need_not_agree(settings: Settings) -> None:
    one = replace(settings, areas=("a", "b"), bus="redis://one.test", search_url="http://one.test:9200")
    other = replace(settings, areas=("b", "a"), bus="redis://two.test", search_url="http://two.test:9200")
    assert differences(fingerprints_of(one), fingerprints_of(other)) == set()


async def test_the_stored_item_reveals_nothing_and_expires(served: Served, open_gateway: Open, clock: Clock) -> None:
    given = {"areas": ("Area 51",), "role_claim": "the role", "other_secrets": (NEW,), "user_id_secret": THIRD}
    await (await open_gateway(**given)).gateway.agreement.compare()
    client = served.gateway.client
    [item] = (await client.call("Scan", {"TableName": served.gateway.store_options.prefix + GATEWAY.name}))["Items"]
    text = orjson.dumps(item).decode()

    assert not [word for word in (SECRET, NEW, THIRD, "Area 51", "the role") if word in text]
    assert int(item["expiresAt"]["N"]) == round(clock.now.timestamp()) + 3600
    clock.forward(hours=1, seconds=1)
    assert await RunningGateways(served.store()).all() == []


async def test_a_gateway_compares_at_its_start_and_deletes_its_item_at_its_end(
    settings: Settings, store_options: StoreOptions, clock: Clock, served: Served
) -> None:
    running = RunningGateways(served.store())
    async with Gateway(replace(settings, port=free_port()), store_options, now=clock).running() as gateway:
        await until(lambda: gateway.agreement.state == {"settings": "ok"})
        await until_async(running.all)
        assert [one.address for one in await running.all()] == [gateway.agreement._address]
    assert await running.all() == []


async def test_a_process_deletes_no_item_of_another_process_with_its_address(served: Served, clock: Clock) -> None:
    found = fingerprints_of(served.gateway.settings)
    one, other = (RunningGateway("host:8000", run, clock.now, found) for run in ("one", "other"))
    running = RunningGateways(served.store())
    await running.put(one)
    await running.put(other)
    await running.delete(one)
    assert [gateway.run for gateway in await RunningGateways(served.store()).all()] == ["other"]
    await running.delete(other)
    assert await RunningGateways(served.store()).all() == []


async def test_the_number_of_gateways_that_are_read_is_limited(
    served: Served, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_gateways, "MOST_GATEWAYS", 3)
    found = fingerprints_of(served.gateway.settings)
    running = RunningGateways(served.store())
    for port in range(4):
        await running.put(RunningGateway(f"host:{port}", "run", clock.now, found))
    assert len(await running.all()) == 3


async def test_the_role_of_gateways_permits_the_comparison() -> None:
    declared = [pattern for pattern in PATTERNS if pattern.id.startswith("GW-S")]
    assert [pattern.id for pattern in declared] == ["GW-S1", "GW-S2", "GW-S3"]
    assert set(declared) <= set(ROLE.patterns)


@pytest.mark.parametrize("store", ["aws", "http://127.0.0.1:1"])
def test_a_shared_store_requires_a_secret(store: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEWAY_SECRET", raising=False)
    with pytest.raises(Misconfigured, match=r"Set GATEWAY_SECRET .* to the same value for all gateways of this store"):
        settings_of(StoreOptions(store, region="eu-west-1"), tmp_path)
    assert not (tmp_path / "secret").exists()
    assert settings_of(StoreOptions("embedded"), tmp_path).secret == (tmp_path / "secret").read_text()
