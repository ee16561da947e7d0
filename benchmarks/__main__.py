"""`python -m benchmarks`: measure, and print one table."""

import argparse
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    clients,
    data,
    documents,
    fan_out,
    feed_stream,
    feeds,
    matches,
    naive_tick,
    photos,
    queries,
    subscriptions,
)
from benchmarks.measuring import run
from benchmarks.photos_report import FullReport
from benchmarks.report import Report
from benchmarks.server import serving
from datastore.database import StoreOptions, open_database
from datastore.engine import EngineMissing
from datastore.engine_process import EngineFailed


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured; `effort` scales the calls of a round. Ticks are measured for `tick_seconds` a round.

    A post goes to so many `followers`, and so many `operations` wait for the feed's pipeline.
    """

    rounds: int
    effort: float
    subscribers: int
    seconds: float
    matches: tuple[int, ...]
    tick_rounds: int
    tick_seconds: float
    news_seconds: float
    viewers: int
    viewed_seconds: float
    followers: int
    operations: int


FULL = Extent(7, 1.0, 100, 5.0, (20, 200), 2, 30.0, 12.0, 1000, 10.0, 10_000, 3000)
QUICK = Extent(1, 0.1, 10, 0.5, (5,), 1, 6.0, 4.0, 20, 2.0, 300, 200)

PARTS = (
    *("clients", "gateway", "subscriptions"),
    *("ticks", "naive", "news", "viewers"),
    *("feed", "fanout", "pipeline"),
    *("photos", "documents"),
)


async def measure(extent: Extent, parts: Collection[str]) -> FullReport:
    """On engines that are there for this alone."""
    began = time.perf_counter()
    report = FullReport(extent.rounds)
    if not {"clients", "gateway", "subscriptions"}.isdisjoint(parts):
        await _measure_gateway(report, extent, parts)
    await _measure_matches(report, extent, parts)
    await _measure_feed(report, extent, parts)
    if "photos" in parts:
        _say("measuring the photo library")
        report.photos = await photos.measure(extent.rounds, extent.effort)
    if "documents" in parts:
        _say("measuring hostile documents")
        report.documents = documents.measure(extent.rounds)
    report.seconds = time.perf_counter() - began
    return report


async def _measure_gateway(report: Report, extent: Extent, parts: Collection[str]) -> None:
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        await data.fill(database.client)
        url = database.engine.endpoint
        if "clients" in parts:
            _say("measuring the clients")
            report.clients = await clients.measure(database.client, url, extent.rounds, extent.effort)
        async with serving(url) as server:
            if "gateway" in parts:
                _say("measuring the gateway")
                report.queries = await queries.measure(server, extent.rounds, extent.effort)
            if "subscriptions" in parts:
                _say("measuring subscriptions")
                feed = subscriptions.sightings(database.client)
                report.subscriptions = await subscriptions.measure(server, feed, extent.subscribers, extent.seconds)


async def _measure_matches(report: Report, extent: Extent, parts: Collection[str]) -> None:
    if "ticks" in parts:
        _say("measuring ticks")
        report.ticks = await matches.measure_ticks(max(extent.matches), extent.tick_rounds, extent.tick_seconds)
    if "naive" in parts:
        _say("measuring naive ticks")
        report.naive = await naive_tick.measure(extent.rounds)
    if "news" in parts:
        _say("measuring how long news take")
        report.news = [one for many in extent.matches for one in await matches.measure_news(many, extent.news_seconds)]
    if "viewers" in parts:
        _say("measuring viewers")
        report.viewers = await matches.measure_viewers(extent.viewers, extent.viewed_seconds)


async def _measure_feed(report: Report, extent: Extent, parts: Collection[str]) -> None:
    if "feed" in parts:
        _say("measuring the feed's queries")
        report.feed = await feeds.measure(extent.rounds, extent.effort)
    if "fanout" in parts:
        _say("measuring the fan-out")
        report.fan_out = await fan_out.measure(extent.followers, extent.rounds, extent.effort)
    if "pipeline" in parts:
        _say("measuring the feed's pipeline")
        report.stream = await feed_stream.measure(extent.operations)


def _say(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works: short rounds, no figures to trust")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    given = parser.parse_args()
    try:
        report = run(measure(QUICK if given.quick else FULL, given.only))
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
