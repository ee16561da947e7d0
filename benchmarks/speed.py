"""The cost of W1 … W4 on the gateway and on other servers, its growth with the size, and profiles."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from benchmarks import rivals, workload_data
from benchmarks.contenders import CONCURRENCY, LOGGING, OURS, SECRET, Result, measure
from benchmarks.load import closed_loop, requests
from benchmarks.server import serving
from benchmarks.workloads import GROWTH, WORKLOADS
from datastore.database import StoreOptions, open_database


@asynccontextmanager
async def filled_store() -> AsyncIterator[str]:
    """Run an engine with the data of the workloads, and yield its URL."""
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        await workload_data.fill(database.client)
        yield database.engine.endpoint


async def measure_ours(rounds: int, effort: float) -> list[Result]:
    async with filled_store() as store_url:
        return await measure([OURS], WORKLOADS, store_url, rounds, effort, (1, CONCURRENCY))


async def measure_peers(rounds: int, effort: float) -> list[Result]:
    """Compare all servers. Raises `PeersMissing`, and `Disagreement` if two servers differ in data or calls."""
    await rivals.install()
    contenders = [OURS, LOGGING, *rivals.PEERS]
    async with filled_store() as store_url:
        return await measure(contenders, WORKLOADS, store_url, rounds, effort)


async def measure_growth(rounds: int, effort: float) -> list[Result]:
    """Measure W2 by its size, and with new documents."""
    await rivals.install()
    contenders = [OURS, rivals.APOLLO, rivals.YOGA, rivals.YOGA_OWN]
    async with filled_store() as store_url:
        return await measure(contenders, GROWTH, store_url, rounds, effort)


async def profile(names: Iterable[str], effort: float) -> AsyncIterator[tuple[str, str]]:
    """Yield the title and the profile of each named workload, as text."""
    async with filled_store() as store_url, serving(store_url, secret=SECRET, options=["--profile"]) as server:
        headers = {"Authorization": f"Bearer {server.sign(workload_data.VIEWER)}"}
        for workload in WORKLOADS:
            if workload.name not in names:
                continue
            total = max(int(workload.requests * effort), CONCURRENCY)
            for _ in range(2):  # the first run warms up
                encoded = requests(server.url.partition("//")[2], headers, workload)
                async with server.http.get(f"{server.url}/profile") as response:
                    await response.read()
                await closed_loop(server.url, encoded, total, CONCURRENCY)
            async with server.http.get(f"{server.url}/profile") as response:
                yield f"{workload.name}: {total} requests, {CONCURRENCY} at a time", await response.text()
