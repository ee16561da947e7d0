"""The command `python -m benchmarks`: measures the parts and prints their tables."""

import argparse
import sys
import time
from collections.abc import Collection, Set
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import clients, data, queries, speed, speed_chart, subscribers
from benchmarks.contenders import Disagreement
from benchmarks.measuring import run
from benchmarks.report import Report
from benchmarks.rivals import PeersMissing
from benchmarks.server import serving
from benchmarks.workloads import WORKLOADS
from datastore.database import StoreOptions, open_database
from datastore.engine.process import EngineFailed
from datastore.engine.programs import EngineMissing


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a run."""

    rounds: int
    #: Scales the number of calls of a round.
    effort: float
    subscribers: subscribers.Extent


FULL = Extent(7, 1.0, subscribers.FULL)
QUICK = Extent(1, 0.1, subscribers.QUICK)

WORKLOAD_NAMES = {workload.name for workload in WORKLOADS}
PARTS = ("clients", "gateway", "subscribers", "workloads")
# These parts need servers in Node, which are installed for them: they run only if they are named.
PEER_PARTS = ("peers", "growth")


async def measure(extent: Extent, parts: Collection[str]) -> Report:
    """Measure the parts, each on an engine of its own, and return the report."""
    began = time.perf_counter()
    report = Report(extent.rounds)
    if not {"clients", "gateway"}.isdisjoint(parts):
        await _measure_gateway(report, extent, parts)
    if "subscribers" in parts:
        _print_progress("measuring subscribers")
        report.subscribers = await subscribers.measure(extent.subscribers)
    if "workloads" in parts:
        _print_progress("measuring the workloads")
        report.workloads = await speed.measure_ours(extent.rounds, extent.effort)
    if "peers" in parts:
        _print_progress("measuring servers side by side")
        report.peers = await speed.measure_peers(extent.rounds, extent.effort)
    if "growth" in parts:
        _print_progress("measuring how the cost grows")
        report.growth = await speed.measure_growth(extent.rounds, extent.effort)
    report.seconds = time.perf_counter() - began
    return report


async def _measure_gateway(report: Report, extent: Extent, parts: Collection[str]) -> None:
    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        await data.fill(database.client)
        url = database.engine.endpoint
        if "clients" in parts:
            _print_progress("measuring the clients")
            report.clients = await clients.measure(database.client, url, extent.rounds, extent.effort)
        async with serving(url) as server:
            if "gateway" in parts:
                _print_progress("measuring the gateway")
                report.queries = await queries.measure(server, extent.rounds, extent.effort)


def _print_progress(activity: str) -> None:
    print(f"{activity} …", file=sys.stderr, flush=True)


async def _profile(names: Set[str], effort: float, viewers: subscribers.Extent) -> None:
    if not names.isdisjoint(WORKLOAD_NAMES):
        async for title, text in speed.profile(names, effort):
            print(f"{title}\n{text}", flush=True)
    if "subscribers" in names:
        print(f"{viewers.subscribers} subscribers\n{await subscribers.profile(viewers)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="check that it works: short rounds, whose figures are not reliable"
    )
    choices = (*PARTS, *PEER_PARTS)
    parser.add_argument("--only", nargs="+", choices=choices, default=PARTS, metavar="PART", help=", ".join(choices))
    parser.add_argument("--rounds", type=int, metavar="N", help="the number of rounds (default: 7, or 1 with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="also draw the CPU of the peers to FILE, as SVG")
    parser.add_argument(
        *("--profile", "-p"),
        nargs="*",
        choices=[*sorted(WORKLOAD_NAMES), "subscribers"],
        metavar="WORKLOAD",
        help="profile the gateway instead: in W1 … W4 (default: all of them) or with subscribers",
    )
    given = parser.parse_args()
    try:
        if given.profile is not None:
            extent = QUICK if given.quick else FULL
            run(_profile({*given.profile} or WORKLOAD_NAMES, 0.3 if given.quick else 1.0, extent.subscribers))
            return 0
        extent = QUICK if given.quick else FULL
        report = run(measure(replace(extent, rounds=given.rounds or extent.rounds), given.only))
    except (EngineMissing, EngineFailed, PeersMissing, Disagreement) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text(), flush=True)
    if given.chart is not None and report.peers:
        given.chart.write_text(speed_chart.chart_svg(report.peers))
    if given.json is not None:
        given.json.write_bytes(report.json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
