"""Prometheus with the alert rules beside the pipelines of the feed, of the search index and of live matches."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from datastore.database import Database
from datastore.model.timestamps import iso
from tests.support.command_line import surroundings
from tests.support.fault_proxy import TRIMMED, Fault, Proxy, Seen, forward, refuse
from tests.support.feed_changes import put_feed_records
from tests.support.feed_items import post_item, user_item
from tests.support.forking import Forked
from tests.support.moments import utc_now
from tests.support.ports import free_port
from tests.support.prometheus import (
    BY_FAULTS_OF_PIPELINES,
    prometheus_program,
    running_prometheus,
)
from tests.support.search_server import SearchServer
from tests.support.sportmonks_samples import TOKEN, Handler, Service, failing, fixture_row, serve_sportmonks

__all__ = ["prometheus_program"]

PIPELINES = ("feed", "search", "cricket")
AWAY = {"FeedPipelineLags", "SearchIndexLags", "CricketProviderAway", "CricketMatchesLate"}
BURIED = {"FeedPipelineBuries", "SearchIndexBuries"}
LOST = {"FeedPipelineLost", "SearchIndexLost"}


def only_operation(operation: str, fault: Fault) -> Fault:
    """Let the requests of an operation meet the fault."""

    async def answer(proxy: Proxy, seen: Seen) -> Any:
        return await (fault if seen.operation == operation else forward)(proxy, seen)

    return answer


class FailingForEver(deque[Handler]):
    """The faults of a provider that is away."""

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Handler:
        return failing(500)


@pytest.fixture
async def search_server() -> AsyncIterator[SearchServer]:
    server = SearchServer()
    await server.start()
    yield server
    await server.stop()


@contextmanager
def pipelines(folder: Path, prefix: str, stores: dict[str, str], services: dict[str, str]) -> Iterator[dict[str, int]]:
    """Run the pipelines, each with its URL of the store. Yield the ports of their metrics by their names."""
    ports = {name: free_port() for name in PIPELINES}
    with ExitStack() as stack:
        for name, port in ports.items():
            given = surroundings(**services, GATEWAY_DATA_DIR=str(folder / name))
            options = ["--store", stores[name], "--prefix", prefix, "--metrics-port", str(port)]
            (log := folder / f"{name}.log").touch()
            process = Forked("gateway.py", ["pipeline", name, *options], given, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield ports


@pytest.mark.timeout(400)
async def test_faults_of_pipelines_make_their_alerts_fire(
    prometheus_program: str, database: Database, engine: str, search_server: SearchServer, tmp_path: Path
) -> None:
    matches = Service()
    matches.responses["livescores"] = [fixture_row(status="1st Innings", starting_at=iso(utc_now()))]
    async with Proxy(engine) as feed, Proxy(engine) as search, serve_sportmonks(matches):
        stores = {"feed": feed.url, "search": search.url, "cricket": engine}
        services = {
            "GATEWAY_SEARCH_URL": search_server.url,
            "SPORTMONKS_URL": matches.url,
            "SPORTMONKS_API_TOKEN": TOKEN,
        }
        with (
            pipelines(tmp_path, database.prefix, stores, services) as ports,
            running_prometheus(prometheus_program, tmp_path, {"pipelines": [*ports.values()]}) as prometheus,
        ):
            await asyncio.to_thread(prometheus.until_scraped, 4)
            await put_feed_records(database, user_item("ada"), post_item("p1"))
            await asyncio.to_thread(prometheus.until_silent, *BY_FAULTS_OF_PIPELINES)

            feed.always = only_operation("GetRecords", refuse(500, "InternalServerError"))
            matches.faults = FailingForEver()
            search_server.failing = 503
            await put_feed_records(database, post_item("p2"))
            await asyncio.to_thread(prometheus.until_firing, *AWAY)

            assert not prometheus.firing() & BURIED
            search_server.failing, search_server.refused_entries["p3"] = None, 400
            feed.always = None
            await put_feed_records(database, {**post_item("p3"), "author_id": 5})
            await asyncio.to_thread(prometheus.until_firing, *BURIED)

            assert not prometheus.firing() & LOST
            feed.always = only_operation("GetRecords", TRIMMED)
            search.always = only_operation("GetRecords", TRIMMED)
            await asyncio.to_thread(prometheus.until_firing, *LOST)
    assert prometheus.fired == BY_FAULTS_OF_PIPELINES
