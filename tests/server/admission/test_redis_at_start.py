"""A Redis that is away when a gateway starts, or fails while there is no traffic: it is reported without a request."""

from dataclasses import replace
from typing import Any

import pytest

from server.admission import redis_budgets
from server.settings import Settings
from tests.support.bus_gateways import metric_value
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis
from tests.support.served import Served
from tests.support.until import until

__all__ = ["redis"]


async def shared_state(served: Served) -> dict[str, Any]:
    """Return the states of the bus and of the budgets in `/readyz`, which has to be 200."""
    async with served.http.get(f"{served.url}/readyz") as response:
        assert response.status == 200
        return {name: state for name, state in (await response.json()).items() if name in ("bus", "budgets")}


class TestAway:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        nowhere = f"redis://127.0.0.1:{free_port()}"
        return replace(settings, bus=nowhere, capacity=replace(settings.capacity, redis_url=nowhere))

    async def test_the_first_readiness_and_the_first_scrape_report_that_redis_is_away(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert await metric_value(served, "gateway_bus_away") == 1
        assert await metric_value(served, "gateway_budgets_shared") == 0
        assert await shared_state(served) == {"bus": "away", "budgets": "away"}
        logged = [record.getMessage() for record in caplog.get_records("setup")]
        assert any(line.startswith("Redis does not respond: budgets are counted") for line in logged)
        assert any(line.startswith("The bus is away") for line in logged)


class TestPresent:
    @pytest.fixture
    def settings(self, settings: Settings, redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
        monkeypatch.setattr("datastore.change_streams.relay.bus.IDLE_SECONDS", 0.5)
        monkeypatch.setitem(_keyword_defaults(), "ping_seconds", 0.1)
        return replace(settings, bus=redis.url, capacity=replace(settings.capacity, redis_url=redis.url))

    async def test_an_idle_gateway_notices_that_redis_goes_and_returns(
        self, served: Served, redis: RedisServer
    ) -> None:
        bus, budgets = served.gateway.bus, served.gateway.server.admission.redis
        assert bus is not None
        assert budgets is not None
        assert await shared_state(served) == {"bus": "ok", "budgets": "ok"}

        redis.kill()
        await until(lambda: bus.is_away and not budgets.is_available)
        assert await shared_state(served) == {"bus": "away", "budgets": "away"}

        redis.start()
        await until(lambda: not bus.is_away and budgets.is_available)
        assert await shared_state(served) == {"bus": "ok", "budgets": "ok"}


def _keyword_defaults() -> dict[str, Any]:
    defaults = redis_budgets.RedisBuckets.__init__.__kwdefaults__
    assert defaults is not None
    return defaults
