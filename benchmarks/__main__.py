"""`python -m benchmarks`: measure, and print one table."""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import clients, data, queries, subscriptions
from benchmarks.measuring import run
from benchmarks.report import Report
from benchmarks.server import serving
from datastore.database import StoreOptions, open_database
from datastore.engine import EngineMissing
from datastore.engine_process import EngineFailed


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured; `effort` scales the calls of a round."""

    rounds: int
    effort: float
    subscribers: int
    seconds: float


FULL = Extent(rounds=7, effort=1.0, subscribers=100, seconds=5.0)
QUICK = Extent(rounds=1, effort=0.1, subscribers=10, seconds=0.5)


async def measure(extent: Extent) -> Report:
    """On an engine in memory that is there for this alone."""
    began = time.perf_counter()
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        await data.fill(database.client)
        url = database.engine.endpoint
        _say("measuring the clients")
        by_client = await clients.measure(database.client, url, extent.rounds, extent.effort)
        async with serving(url) as server:
            _say("measuring the gateway")
            by_query = await queries.measure(server, extent.rounds, extent.effort)
            _say("measuring subscriptions")
            live = await subscriptions.measure(server, database.client, extent.subscribers, extent.seconds)
    return Report(by_client, by_query, live, extent.rounds, time.perf_counter() - began)


def _say(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works: one short round, no figures to trust")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    given = parser.parse_args()
    try:
        report = run(measure(QUICK if given.quick else FULL))
    except (EngineMissing, EngineFailed) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text(), flush=True)
    if given.json is not None:
        given.json.write_bytes(report.json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
