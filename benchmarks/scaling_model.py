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
        return self.matches / constants.SECONDS_BETWEEN_BALLS

    @property
    def unchanged(self) -> float:
        return self.matches / constants.TICK_SECONDS - self.changed

    @property
    def changes(self) -> float:
        """Changes of active-matches per second; each gateway receives all of them."""
        return self.changed + self.unchanged * constants.UNCHANGED_TICK_CHANGES

    @property
    def deliveries(self) -> float:
        return self.viewers / constants.SECONDS_BETWEEN_BALLS


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
    for_sockets = math.ceil(load.viewers / constants.SOCKETS_OF_A_PROCESS)
    for_cpu = math.ceil(shared_cpu(load) / (constants.BUSY_SHARE - own_cpu(load)))
    return max(LEAST, SPARE + max(for_sockets, for_cpu))


def shared_cpu(load: Load) -> float:
    """Return the CPUs of work that is divided among the gateways: deliveries, sockets and queries."""
    viewers = load.deliveries * constants.DELIVERY_CPU + load.viewers * constants.SOCKET_CPU
    return viewers + load.queries * constants.QUERY_CPU[load.workload]


def own_cpu(load: Load) -> float:
    """Return the CPU share that a gateway uses for any number of clients: it receives and executes each event."""
    following = constants.FOLLOWED_TABLES * constants.FOLLOWING_CPU if load.viewers else 0.0
    return following + load.changes * constants.RECEIVED_CHANGE_CPU + load.changed * constants.EVENT_CPU


def gateway_cpu(load: Load) -> float:
    """Return the CPUs of all gateways together."""
    return gateways(load) * own_cpu(load) + shared_cpu(load)


def process_cpu(viewers: int, events: float) -> float:
    """Return the CPU share of one gateway process that reads the stream itself and serves `viewers` of one match.

    `events` are events of that match a second.
    """
    per_viewer = constants.SOCKET_CPU + events * constants.DELIVERY_CPU
    return constants.READING_CPU + events * constants.EVENT_CPU + viewers * per_viewer


def poller_cpu(load: Load) -> float:
    """Return the CPU share of the process that polls the matches."""
    ticks = load.changed * constants.CHANGED_TICK_CPU + load.unchanged * constants.UNCHANGED_TICK_CPU
    return ticks + load.matches / MATCHES * constants.RECONCILE_CPU


def write_units(load: Load) -> float:
    """Return the write units a second of all tables."""
    return load.changed * constants.CHANGED_TICK_UNITS[0] + load.unchanged * constants.UNCHANGED_TICK_UNITS[0]


def read_units(load: Load) -> float:
    """Return the read units a second of all tables."""
    ticks = load.changed * constants.CHANGED_TICK_UNITS[1] + load.unchanged * constants.UNCHANGED_TICK_UNITS[1]
    joining = load.viewers / constants.SESSION_SECONDS * constants.JOINING_READ_UNITS
    return ticks + joining + load.queries * constants.QUERY_READ_UNITS[load.workload]


def stream_reads(load: Load) -> float:
    """Return the GetRecords calls a second with a bus: one process reads each table."""
    tables = constants.FOLLOWED_TABLES if load.viewers else 0
    return tables * constants.SHARDS_OF_A_TABLE * constants.STREAM_READS


def listing_calls(load: Load) -> float:
    """Return the DescribeStream calls a second without a bus: each gateway lists each table."""
    if not load.viewers:
        return 0.0
    shards = constants.SHARDS_OF_A_TABLE
    pages = math.ceil(shards * constants.KEPT_GENERATIONS / constants.SHARDS_OF_A_PAGE)
    listings = pages / constants.LISTING_SECONDS
    children = shards / constants.SHARD_SECONDS
    return gateways(load) * constants.FOLLOWED_TABLES * (listings + children)


def bus_cpu(load: Load) -> float:
    """Return the CPU share of the bus's Redis."""
    tables = constants.FOLLOWED_TABLES if load.viewers else 0
    each = tables * constants.REDIS_FOLLOWING_CPU + load.changes * constants.REDIS_CHANGE_CPU
    return gateways(load) * each


def bus_bytes(load: Load) -> float:
    """Return the bytes a second that the bus's Redis sends."""
    return gateways(load) * load.changes * constants.CHANGE_BYTES


def log_seconds(load: Load) -> float:
    """Return the seconds for which the bus keeps the changes of active-matches."""
    if not load.changes:
        return math.inf
    changes, size = constants.CHANGES_KEPT
    return min(changes / load.changes, size / (load.changes * constants.CHANGE_BYTES))


def burst_seconds(load: Load) -> float:
    """Return the seconds of CPU that a gateway needs for one ball when all its viewers follow the same match."""
    return load.viewers / gateways(load) * constants.DELIVERY_CPU


def dollars(load: Load) -> dict[str, float]:
    """Return DynamoDB's price for a month of constant load in dollars, without instances, Redis and traffic."""
    month = constants.MONTH_SECONDS
    return {
        "writes": write_units(load) * month * constants.PRICE_OF_WRITES,
        "reads": read_units(load) * month * constants.PRICE_OF_READS,
        "streams": stream_reads(load) * month * constants.PRICE_OF_STREAM_READS,
    }


def limits(load: Load) -> list[Limit]:
    """Return the limits, the one with the highest utilization first."""
    found = [
        Limit(
            "readers of a shard, without a bus",
            gateways(load) / constants.READERS_OF_A_SHARD if load.viewers else 0.0,
            "set GATEWAY_BUS (assumed elsewhere in this report), or use Kinesis Data Streams with enhanced fan-out",
        ),
        Limit(
            "DescribeStream of an account, without a bus",
            listing_calls(load) / constants.LISTINGS_OF_AN_ACCOUNT,
            "set GATEWAY_BUS: one process lists each table",
        ),
        Limit(
            "two minutes of the bus's log",
            constants.WANTED_LOG_SECONDS / log_seconds(load),
            "clients that were away for longer are served from the stream, or get a RESYNC: keep more bytes",
        ),
        Limit(
            "changes of a table a second, relayed by one process",
            load.changes / constants.RELAYED_CHANGES,
            "Kinesis Data Streams with enhanced fan-out; a relay for each shard is not built",
        ),
        Limit(
            "CPU of the bus's Redis",
            bus_cpu(load),
            "one reader of the bus for each host in place of each process, or a Redis for each table: neither is built",
        ),
        Limit(
            "network of the bus's Redis",
            bus_bytes(load) / constants.REDIS_BYTES,
            "one reader of the bus for each host, or replicas that are read: neither is built",
        ),
        Limit(
            "CPU of the process that polls matches",
            poller_cpu(load) / constants.BUSY_SHARE,
            "a second `pipeline cricket`: the processes divide the matches by locks",
        ),
        Limit(
            "event loop, all viewers of a process in one match",
            burst_seconds(load) / constants.LAG_SECONDS,
            "fewer sockets for each process (GATEWAY_MAX_WEBSOCKETS), and more processes",
        ),
        Limit(
            "CPU of the budgets' Redis",
            load.queries * constants.CHARGE_CPU,
            "a Redis cluster, or budgets for each process (no GATEWAY_REDIS_URL)",
        ),
        Limit(
            "read units of a table a second, AWS's first quota",
            read_units(load) / constants.TABLE_UNITS,
            "shared reads and smaller pages, then a higher quota from AWS",
        ),
        Limit(
            "write units of a table a second, AWS's first quota",
            write_units(load) / constants.TABLE_UNITS,
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
