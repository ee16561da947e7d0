"""Estimate the resources for a number of viewers and queries, and the limit that is exceeded first.

`python -m benchmarks.scaling_model` prints the report. The model multiplies the constants of
`benchmarks.scaling_constants` and measures nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import scaling_constants as constants
from benchmarks.text_table import table

MATCHES = 200
SPARE, LEAST = 1, 2
# The report shows a limit from this utilization on; at 1 the limit is reached.
NEAR = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """A number of viewers, spread evenly over live matches, and queries a second of one workload."""

    name: str
    viewers: int = 0
    matches: int = 0
    queries: float = 0.0
    workload: str = "W1"

    @property
    def changed(self) -> float:
        """Polls per second that find a new ball, which are the events of all matches."""
        return self.matches / constants.seconds_between_balls()

    @property
    def unchanged(self) -> float:
        return self.matches / constants.tick_seconds() - self.changed

    @property
    def changes(self) -> float:
        """Changes of active-matches per second; each gateway receives all of them."""
        return self.changed + self.unchanged * constants.unchanged_tick_changes()

    @property
    def deliveries(self) -> float:
        return self.viewers / constants.seconds_between_balls()


@dataclass(frozen=True, slots=True)
class Limit:
    """The utilization of a limit (1 is all of it), and what the operator can do when it is reached."""

    name: str
    share: float
    then: str


LOADS = (
    Load("10,000 viewers", 10_000, MATCHES),
    Load("100,000 viewers", 100_000, MATCHES),
    Load("1,000,000 viewers", 1_000_000, MATCHES),
    *[
        Load(f"10,000 queries/s of {workload}", queries=10_000, workload=workload)
        for workload in ("W1", "W2", "W3", "W4")
    ],
)


def gateways(load: Load) -> int:
    """Return the number of serving processes: enough for the sockets and for the CPU, and a spare one."""
    for_sockets = math.ceil(load.viewers / constants.sockets_of_a_process())
    for_cpu = math.ceil(shared_cpu(load) / (constants.busy_share() - own_cpu(load)))
    return max(LEAST, SPARE + max(for_sockets, for_cpu))


def shared_cpu(load: Load) -> float:
    """Return the CPUs of work that is divided among the gateways: deliveries, sockets and queries."""
    viewers = load.deliveries * constants.delivery_cpu() + load.viewers * constants.socket_cpu()
    return viewers + load.queries * constants.query_cpu(load.workload)


def own_cpu(load: Load) -> float:
    """Return the CPU share that a gateway uses for any number of clients: it receives and executes each event."""
    following = constants.followed_tables() * constants.following_cpu() if load.viewers else 0.0
    return following + load.changes * constants.received_change_cpu() + load.changed * constants.event_cpu()


def gateway_cpu(load: Load) -> float:
    """Return the CPUs of all gateways together."""
    return gateways(load) * own_cpu(load) + shared_cpu(load)


def process_cpu(viewers: int, events: float) -> float:
    """Return the CPU share of one gateway process that reads the stream itself and serves `viewers` of one match.

    `events` are events of that match a second.
    """
    per_viewer = constants.socket_cpu() + events * constants.delivery_cpu()
    return constants.reading_cpu() + events * constants.event_cpu() + viewers * per_viewer


def poller_cpu(load: Load) -> float:
    """Return the CPU share of the process that polls the matches."""
    ticks = load.changed * constants.changed_tick_cpu() + load.unchanged * constants.unchanged_tick_cpu()
    return ticks + load.matches / MATCHES * constants.reconcile_cpu()


def write_units(load: Load) -> float:
    """Return the write units a second of all tables."""
    return load.changed * constants.changed_tick_units()[0] + load.unchanged * constants.unchanged_tick_units()[0]


def read_units(load: Load) -> float:
    """Return the read units a second of all tables."""
    ticks = load.changed * constants.changed_tick_units()[1] + load.unchanged * constants.unchanged_tick_units()[1]
    joining = load.viewers / constants.session_seconds() * constants.joining_read_units()
    return ticks + joining + load.queries * constants.query_read_units(load.workload)


def stream_reads(load: Load) -> float:
    """Return the GetRecords calls a second with a bus: one process reads each table."""
    tables = constants.followed_tables() if load.viewers else 0
    return tables * constants.shards_of_a_table() * constants.stream_reads()


def listing_calls(load: Load) -> float:
    """Return the DescribeStream calls a second without a bus: each gateway lists each table."""
    if not load.viewers:
        return 0.0
    shards = constants.shards_of_a_table()
    pages = math.ceil(shards * constants.kept_generations() / constants.shards_of_a_page())
    listings = pages / constants.listing_seconds()
    children = shards / constants.shard_seconds()
    return gateways(load) * constants.followed_tables() * (listings + children)


def bus_cpu(load: Load) -> float:
    """Return the CPU share of the bus's Redis."""
    tables = constants.followed_tables() if load.viewers else 0
    each = tables * constants.redis_following_cpu() + load.changes * constants.redis_change_cpu()
    return gateways(load) * each


def bus_bytes(load: Load) -> float:
    """Return the bytes a second that the bus's Redis sends."""
    return gateways(load) * load.changes * constants.change_bytes()


def log_seconds(load: Load) -> float:
    """Return the seconds for which the bus keeps the changes of active-matches."""
    if not load.changes:
        return math.inf
    changes, size = constants.changes_kept()
    return min(changes / load.changes, size / (load.changes * constants.change_bytes()))


def burst_seconds(load: Load) -> float:
    """Return the seconds of CPU that a gateway needs for one ball when all its viewers follow the same match."""
    return load.viewers / gateways(load) * constants.delivery_cpu()


def dollars(load: Load) -> dict[str, float]:
    """Return DynamoDB's price for a month of constant load in dollars, without instances, Redis and traffic."""
    month = constants.MONTH_SECONDS
    return {
        "writes": write_units(load) * month * constants.price_of_writes(),
        "reads": read_units(load) * month * constants.price_of_reads(),
        "streams": stream_reads(load) * month * constants.price_of_stream_reads(),
    }


def limits(load: Load) -> list[Limit]:
    """Return the limits, the one with the highest utilization first."""
    found = [
        Limit(
            "readers of a shard, without a bus",
            gateways(load) / constants.readers_of_a_shard() if load.viewers else 0.0,
            "set GATEWAY_BUS (assumed elsewhere in this report), or use Kinesis Data Streams with enhanced fan-out",
        ),
        Limit(
            "DescribeStream of an account, without a bus",
            listing_calls(load) / constants.listings_of_an_account(),
            "set GATEWAY_BUS: one process lists each table",
        ),
        Limit(
            "two minutes of the bus's log",
            constants.wanted_log_seconds() / log_seconds(load),
            "clients that were away for longer are served from the stream, or get a RESYNC: keep more bytes",
        ),
        Limit(
            "changes of a table a second, relayed by one process",
            load.changes / constants.relayed_changes(),
            "Kinesis Data Streams with enhanced fan-out; a relay for each shard is not built",
        ),
        Limit(
            "CPU of the bus's Redis",
            bus_cpu(load),
            "one reader of the bus for each host in place of each process, or a Redis for each table: neither is built",
        ),
        Limit(
            "network of the bus's Redis",
            bus_bytes(load) / constants.redis_bytes(),
            "one reader of the bus for each host, or replicas that are read: neither is built",
        ),
        Limit(
            "CPU of the process that polls matches",
            poller_cpu(load) / constants.busy_share(),
            "a second `pipeline cricket`: the processes divide the matches by locks",
        ),
        Limit(
            "event loop, all viewers of a process in one match",
            burst_seconds(load) / constants.lag_seconds(),
            "fewer sockets for each process (GATEWAY_MAX_WEBSOCKETS), and more processes",
        ),
        Limit(
            "CPU of the budgets' Redis",
            load.queries * constants.charge_cpu(),
            "a Redis cluster, or budgets for each process (no GATEWAY_REDIS_URL)",
        ),
        Limit(
            "read units of a table a second, AWS's first quota",
            read_units(load) / constants.table_units(),
            "shared reads and smaller pages, then a higher quota from AWS",
        ),
        Limit(
            "write units of a table a second, AWS's first quota",
            write_units(load) / constants.table_units(),
            "a higher quota from AWS",
        ),
    ]
    return sorted(found, key=lambda limit: -limit.share)


HEAD = ("load", "gateways", "CPUs", "bus MB/s", "bus CPU %", "stream reads/s", "RU/s", "WU/s", "$ a month")


def text(loads: Sequence[Load] = LOADS) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{MATCHES} live matches; $ are DynamoDB's on demand, day and night"
    yield from table(HEAD, [_row(load) for load in loads])
    for load in loads:
        yield ""
        yield from _limits_of(load)


def _row(load: Load) -> list[str]:
    return [
        load.name,
        f"{gateways(load)}",
        f"{gateway_cpu(load):.1f}",
        f"{bus_bytes(load) / 1e6:.1f}",
        f"{100 * bus_cpu(load):.0f}",
        f"{stream_reads(load):.0f}",
        f"{read_units(load):.0f}",
        f"{write_units(load):.0f}",
        f"{sum(dollars(load).values()):.0f}",
    ]


def _limits_of(load: Load) -> Iterator[str]:
    near = [limit for limit in limits(load) if limit.share >= NEAR]
    parts = ", ".join(f"{name} ${value:,.0f}" for name, value in dollars(load).items() if value >= 1)
    yield f"{load.name}: {parts}"
    if not near:
        yield "  nothing is near its limit"
    for limit in near:
        word = "breaks" if limit.share >= 1 else "holds "
        yield f"  {word} {100 * limit.share:>5.0f} %  {limit.name}: {limit.then}"


if __name__ == "__main__":
    print("\n".join(text()))
