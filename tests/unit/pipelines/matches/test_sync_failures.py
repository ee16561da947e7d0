"""Failures and locks of the sync jobs."""

from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.keyspace.matches.locks import job_lock
from datastore.matches.fixtures import Fixtures
from datastore.matches.locks import Locks, all_locks
from datastore.matches.teams import Teams
from pipelines.matches.providers.sportmonks.provider import SportMonks
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncJob, SyncResult, TeamSyncJob
from tests.support.fault_proxy import Fault, Proxy, Seen, refuse
from tests.support.match_sync import (
    LEAGUES,
    QUICKLY,
    Stores,
    fixtures_job,
    leagues_job,
    opened,
    provider,
    put_league,
    stores,
    stores_of,
    team,
)
from tests.support.sportmonks_provider import service, time
from tests.support.sportmonks_samples import (
    START,
    Json,
    ProviderTime,
    Service,
    failing,
    fixture_row,
    page_body,
)

__all__ = ["fixtures_job", "leagues_job", "opened", "provider", "service", "stores", "time"]


# Failures
async def test_a_provider_failure_ends_the_run_and_earlier_writes_remain(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    await put_league(stores)

    def respond(request: web.Request) -> Json:
        number = int(request.query["page"])
        if number == 2:
            service.faults += [failing(500)] * 9
        return page_body([fixture_row(n) for n in range(number * 100, number * 100 + 100)], number, 4)

    service.responses["fixtures"] = respond
    result = await fixtures_job.run()

    assert result == SyncResult(fetched=200, written=200, error="ProviderUnavailable")
    assert "Sync of fixtures ended early: SportMonks fixtures: HTTP 500." in caplog.text
    assert await Fixtures(stores(), START).by_id("299") is not None
    assert await all_locks(stores()) == []


@pytest.mark.parametrize("kind", [LeagueSyncJob, TeamSyncJob])
@pytest.mark.parametrize(
    ("status", "error"), [(401, "ProviderRefused"), (429, "ProviderUnavailable"), (200, "Malformed")]
)
async def test_every_kind_of_failure_is_in_the_result(
    provider: SportMonks,
    service: Service,
    stores: Stores,
    time: ProviderTime,
    kind: type[SyncJob],
    status: int,
    error: str,
) -> None:
    service.faults.append(failing(status))
    assert await kind(provider, stores, "i1", time).run() == SyncResult(error=error)
    assert await all_locks(stores()) == []


def leaving(number: int) -> Fault:
    """Return a fault that leaves the last `number` requests of a batch unprocessed."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation != "BatchWriteItem":
            _, headers, content = await proxy.ask(seen)
            return web.Response(body=content, headers=headers)
        ((table, requests),) = seen.body["RequestItems"].items()
        answered: dict[str, Any] = {}
        if done := requests[:-number]:
            seen.body["RequestItems"] = {table: done}
            answered = orjson.loads((await proxy.ask(seen))[2])
        return web.Response(body=orjson.dumps(answered | {"UnprocessedItems": {table: requests[-number:]}}))

    return answer


async def test_unprocessed_items_are_retried(
    provider: SportMonks,
    service: Service,
    database: Database,
    stores: Stores,
    proxy: Proxy,
    client: Client,
    time: ProviderTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    service.responses["teams"] = [team(number) for number in range(1, 31)]
    job = TeamSyncJob(provider, stores_of(client, database, []), "i1", time)
    proxy.faults += [leaving(7)] * 5  # lock, scan, two batches, and the retry of one of them

    assert await job.run() == SyncResult(fetched=30, written=30)

    written = [seen.body["RequestItems"] for seen in proxy.seen if seen.operation == "BatchWriteItem"]
    assert len(written) == 5
    assert all(len(requests) <= 25 for items in written for requests in items.values())
    assert len(await Teams(stores(), START).all()) == 30


async def test_lasting_unprocessed_items_end_the_run_and_the_next_run_writes_them(
    provider: SportMonks,
    service: Service,
    database: Database,
    stores: Stores,
    proxy: Proxy,
    client: Client,
    time: ProviderTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    service.responses["teams"] = [team(number) for number in range(1, 31)]
    job = TeamSyncJob(provider, stores_of(client, database, []), "i1", time)
    proxy.always = leaving(1)
    assert await job.run() == SyncResult(fetched=30, error="Throttled")
    assert len(await Teams(stores(), START).all()) == 28

    proxy.always = None
    assert await job.run() == SyncResult(fetched=30, written=2)


async def test_a_store_that_fails_ends_the_run(
    provider: SportMonks, service: Service, database: Database, proxy: Proxy, client: Client, time: ProviderTime
) -> None:
    service.responses["leagues"] = LEAGUES
    job = LeagueSyncJob(provider, stores_of(client, database, []), "i1", time)

    async def locks_only(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if "cricket-locks" not in seen.body.get("TableName", ""):
            return await refuse(400, "ProvisionedThroughputExceededException")(proxy, seen)
        _, headers, content = await proxy.ask(seen)
        return web.Response(body=content, headers=headers)

    proxy.always = locks_only
    assert await job.run() == SyncResult(fetched=2, error="Throttled")


# Locks
async def test_one_instance_at_a_time_runs_a_job(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores, time: ProviderTime
) -> None:
    service.responses["leagues"] = LEAGUES
    other = Locks(stores(), "i2", time())
    assert await other.acquire(job_lock("leagues"), 60)

    assert await leagues_job.run() == SyncResult(locked=True)
    assert service.requests == []

    assert await other.release(job_lock("leagues"))
    assert await leagues_job.run() == SyncResult(fetched=2, written=2)
    assert await all_locks(stores()) == []


@pytest.mark.proof
async def test_a_long_run_extends_its_lock(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, time: ProviderTime
) -> None:
    await put_league(stores)
    tried: list[bool] = []

    async def respond_slowly(request: web.Request) -> web.StreamResponse:
        time.forward(100)
        tried.append(await Locks(stores(), "i2", time()).acquire(job_lock("fixtures"), 60))
        number = int(request.query["page"])
        return web.json_response(
            page_body([fixture_row(n) for n in range(number * 100, number * 100 + 100)], number, 6)
        )

    service.faults += [respond_slowly] * 6
    assert await fixtures_job.run() == SyncResult(fetched=600, written=600)
    assert tried == [False] * 6


async def test_a_run_that_lost_its_lock_stops(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, time: ProviderTime
) -> None:
    await put_league(stores)

    async def respond_too_slowly(request: web.Request) -> web.StreamResponse:
        number = int(request.query["page"])
        if number == 2:
            time.forward(300)
            assert await Locks(stores(), "i2", time()).acquire(job_lock("fixtures"), 60)
        return web.json_response(
            page_body([fixture_row(n) for n in range(number * 100, number * 100 + 100)], number, 6)
        )

    service.faults += [respond_too_slowly] * 6
    assert await fixtures_job.run() == SyncResult(fetched=100, written=100, error="LockLost")
    assert [(lock.name, lock.owner) for lock in await all_locks(stores())] == [("job:fixtures", "i2")]
    assert await Fixtures(stores(), START).by_id("200") is None
