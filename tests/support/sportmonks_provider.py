"""The SportMonks provider of the tests."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.matches.cricket import Match
from pipelines.matches.providers.sportmonks.http import SportMonksHttp
from pipelines.matches.providers.sportmonks.provider import SportMonks
from tests.support.sportmonks_samples import (
    PATIENCE,
    START,
    TOKEN,
    ProviderTime,
    Service,
    serve_sportmonks,
)

QUICK = Backoff(initial=0.5, maximum=2.0, attempts=3)


def provider_of(service: Service, session: aiohttp.ClientSession, time: ProviderTime, **options: Any) -> SportMonks:
    limits = aiohttp.ClientTimeout(total=PATIENCE)
    of_provider = {name: options.pop(name) for name in ("interval",) if name in options}
    defaults: dict[str, Any] = {"now": time, "sleep": time.sleep, "retry": QUICK, "limits": limits}
    http = SportMonksHttp(session, TOKEN, base_url=service.url, **(defaults | options))
    return SportMonks(http, now=time, **of_provider)


async def all_of(provider: SportMonks, *leagues: str) -> list[Match]:
    found = provider.fixtures(leagues, START - timedelta(days=7), START + timedelta(days=30))
    return [match async for match in found]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serve_sportmonks() as service:
        yield service


@pytest.fixture
def time() -> ProviderTime:
    return ProviderTime()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def provider(service: Service, session: aiohttp.ClientSession, time: ProviderTime) -> SportMonks:
    return provider_of(service, session, time)
