"""The objects of a process while it serves."""

import asyncio
import sys
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import Gauge

from datastore.database import StoreOptions
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.model.timestamps import day_bucket
from datastore.session.pagination import Span
from pipelines.consumer.metrics import StreamMetrics
from runtime.container import Gateway, ProcessPart
from runtime.jobs import metrics_served, pipeline_pace, serve_metrics
from server.settings import Settings
from tests.support.ports import free_port
from tests.support.served import SECRET, Clock
from tests.support.store_engines import ROOT
from tests.support.usgs_samples import Handler, feature, feed_bytes, feed_server, hang_response

# A worker that serves a local store. It prints the modules that it has loaded.
SERVE = """
import asyncio, sys
from runtime.supervisor.worker_process import ProcessPart, Settings, StoreOptions, serving_gateway

async def serve():
    store = StoreOptions(store=sys.argv[1], prefix=sys.argv[2])
    async with serving_gateway(Settings(secret="x" * 32), store, ProcessPart.SERVING).running():
        print(*sys.modules)

asyncio.run(serve())
"""
# What takes memory and is needed for AWS, Redis, requests to other services, MCP, the command line, or tests.
UNUSED = {
    *("aiohttp", "boto3", "hypothesis", "mcp", "pydantic", "redis", "rich", "runtime.cli", "runtime.scaffold"),
    *("s3transfer", "typer", "urllib3"),
}


@pytest.mark.process
async def test_a_process_that_serves_a_local_store_loads_no_unused_module(store_options: StoreOptions) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, store_options.store, store_options.prefix),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    loaded = set(printed.decode().split())
    assert process.returncode == 0
    assert "strawberry" in loaded
    assert UNUSED & loaded == set()


@pytest.mark.parametrize(
    ("store", "offered"),
    [
        ("embedded", ["Demo user", "Admin", "System"]),
        ("http://127.0.0.1:1", ["Demo user", "Admin", "System"]),
        ("aws", []),
    ],
)
def test_the_demo_offers_tokens_but_never_for_aws(store: str, offered: list[str]) -> None:
    gateway = Gateway(Settings(secret=SECRET, demo=True), StoreOptions(store))
    assert [token["name"] for token in gateway.server.demo_tokens()] == offered


@pytest.mark.parametrize(
    ("store", "interval", "seconds"),
    [("embedded", 0.25, 0.25), ("http://127.0.0.1:1", 0.1, 0.1), ("aws", 0.25, 1.0), ("aws", 5.0, 5.0)],
)
def test_the_pipeline_reads_a_shard_of_aws_once_a_second_at_most(store: str, interval: float, seconds: float) -> None:
    assert pipeline_pace(StoreOptions(store).in_aws, interval).poll_seconds == seconds


@pytest.mark.proof
@pytest.mark.process
async def test_background_jobs_run_in_one_of_several_processes() -> None:
    found: dict[ProcessPart, list[str]] = {}
    settings = Settings(secret=SECRET, demo=True, matches="demo", feed_pipeline=True, ingest="all_hour")
    for part in ProcessPart:
        async with Gateway(settings, StoreOptions(), part=part).running(jobs=False) as gateway:
            jobs = [job.func if isinstance(job, partial) else job for job in gateway._jobs()]
            found[part] = [job.__qualname__ for job in jobs]
    assert len(found[ProcessPart.JOBS]) == 9
    # Each process that serves compares its settings with those of the other gateways.
    assert found[ProcessPart.SERVING] == ["SettingsAgreement.watch"]
    assert found[ProcessPart.WHOLE] == [*found[ProcessPart.SERVING], *found[ProcessPart.JOBS]]


async def test_the_port_for_metrics_is_taken_over_from_a_process_that_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runtime.jobs.METRICS_PAUSE_SECONDS", 0.01)
    before, after, port, host = StreamMetrics(), StreamMetrics(), free_port(), "127.0.0.1"
    caplog.set_level("INFO")
    with metrics_served(before, port, host):
        serving = asyncio.create_task(serve_metrics(after, port, host))
        while "Retrying every 0.01 s" not in caplog.text:  # noqa: ASYNC110 - a log line sets no event
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert caplog.text.count("Retrying every 0.01 s") == 1
    Gauge("of_who_takes_over", "For this test.", registry=after.registry)
    async with aiohttp.ClientSession() as session, asyncio.timeout(50):
        while "of_who_takes_over" not in await _figures(session, port):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    serving.cancel()


async def _figures(session: aiohttp.ClientSession, port: int) -> str:
    try:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            return await response.text()
    except aiohttp.ClientConnectionError:
        return ""


# A stop while a client's ingest runs


async def log_after_stop(settings: Settings, options: StoreOptions, answer: Handler) -> list[dict[str, Any]]:
    """Start an ingest as a client that leaves, stop the gateway while it waits for the feed, and return the log."""
    asked = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await answer(request)

    async with feed_server(handler) as url:
        async with Gateway(settings, options, now=Clock()).running(jobs=False) as gateway:
            assert gateway.database is not None
            await gateway.database.create_tables()
            assert gateway.services is not None
            client = asyncio.ensure_future(gateway.services.ingest(url))
            await asyncio.wait_for(asked.wait(), 50)
            client.cancel()
        return await logs_of_today(settings, options)


async def logs_of_today(settings: Settings, options: StoreOptions) -> list[dict[str, Any]]:
    now = Clock()()
    async with Gateway(settings, options, now=Clock()).running(jobs=False) as gateway:
        page = await Earthquakes(gateway.open_store(), now).logs_of(day_bucket(now), Span(10))
    return list(page.items)


async def test_an_ingest_that_a_client_began_ends_before_the_store_closes(
    settings: Settings, store_options: StoreOptions
) -> None:
    async def soon(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.Response(body=feed_bytes(feature(id="late")))

    (entry,) = await log_after_stop(settings, store_options, soon)
    assert (entry["status"], entry["upserted"]) == (200, 1)


async def test_an_ingest_that_does_not_end_is_cancelled_and_logged(
    settings: Settings, store_options: StoreOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.earthquakes.client_ingests.STOP_SECONDS", 0.1)
    (entry,) = await log_after_stop(settings, store_options, hang_response)
    assert entry["error"] == "CANCELLED"
