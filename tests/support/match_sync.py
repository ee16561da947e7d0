"""Stores, jobs and data for the tests of the sync jobs."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import aiohttp
import pytest

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.providers.sportmonks.http import SportMonksHttp
from pipelines.matches.providers.sportmonks.provider import SportMonks
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncJob, SyncResult
from tests.support.served import NOON, call_name
from tests.support.sportmonks_samples import (
    START,
    TOKEN,
    Json,
    ProviderTime,
    Service,
)

Stores = Callable[[], Store]
QUICKLY = Backoff(initial=0.001, maximum=0.002, attempts=5)
LEAGUES = [
    {"id": 7, "season_id": 70, "name": "Hill League", "code": "hl", "type": "league"},
    {"id": 8, "season_id": 80, "name": "Dale Cup", "code": "DC", "type": "phase"},
]


def stores_of(client: Client, database: Database, opened: list[Store]) -> Stores:
    def open_store() -> Store:
        opened.append(
            Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "token", now=lambda: NOON)
        )
        return opened[-1]

    return open_store


def calls(opened: Sequence[Store], *besides: str) -> list[str]:
    """Return the DynamoDB calls without those for the lock."""
    names = [call_name(call) for store in opened for call in store.meter.calls]
    return sorted(name for name in names if "cricket-locks" not in name and not name.startswith(besides))


async def synced(job: SyncJob, opened: list[Store]) -> tuple[SyncResult, list[str]]:
    """Run a job. Return its result and its calls."""
    opened.clear()
    done = await job.run()
    return done, calls(opened)


async def put_league(stores: Stores, league_id: str = "7", **changes: Any) -> None:
    defaults = {"name": "Hill League", "code": "HL", "current_season_id": "70"}
    await Leagues(stores(), START).put(League(league_id, **(defaults | changes)))


def team(number: int, **changes: Json) -> Json:
    return {"id": number, "name": f"Team {number}", "code": f"T{number}", "national_team": False} | changes


async def stored(stores: Stores, match_id: str = "501") -> Match:
    found = await Fixtures(stores(), START).latest(match_id)
    assert found is not None
    return found


@pytest.fixture
def opened() -> list[Store]:
    """The stores that were opened since a test cleared them."""
    return []


@pytest.fixture
def stores(database: Database, opened: list[Store]) -> Stores:
    return stores_of(database.client, database, opened)


@pytest.fixture
async def provider(service: Service, time: ProviderTime) -> AsyncIterator[SportMonks]:
    async with aiohttp.ClientSession() as session:
        http = SportMonksHttp(session, TOKEN, base_url=service.url, now=time, sleep=time.sleep, retry=QUICKLY)
        yield SportMonks(http, now=time)


@pytest.fixture
def leagues_job(provider: SportMonks, stores: Stores, time: ProviderTime) -> LeagueSyncJob:
    return LeagueSyncJob(provider, stores, "i1", time)


@pytest.fixture
def fixtures_job(provider: SportMonks, stores: Stores, time: ProviderTime) -> FixtureSyncJob:
    return FixtureSyncJob(provider, stores, "i1", time)
