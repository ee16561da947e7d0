"""The constants of `benchmarks.scaling_model`: one function for each, whose docstring names its source.

CPU is in seconds on the machine of docs/benchmarks.md. For another machine, measure the constants again.
"""

from datastore.change_streams.relay.lua import MAX_BYTES, MAX_CHANGES
from datastore.change_streams.shards.listing import LISTING_INTERVALS
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from pipelines.matches.live.orchestrator import RECONCILE_SECONDS, TICK_SECONDS
from server.admission.settings import Capacity

MONTH_SECONDS = 730 * 3600

# --- Measured: docs/scaling.md, "The runs" ----------------------------------------------------------------------------


def delivery_cpu() -> float:
    """Return the CPU of one delivery: 3,000 viewers minus 300 viewers, without their CPU at rest: "The runs"."""
    return 5.84e-6


def event_cpu() -> float:
    """Return the CPU of one event: 300 viewers, without their CPU at rest and their deliveries: "The runs"."""
    return 1.07e-3


def socket_cpu() -> float:
    """Return the CPU of an idle WebSocket for a second, including pings: 10,000 at rest minus 100: "The runs"."""
    return 3.2e-6


def reading_cpu() -> float:
    """Return the CPU share of a process that reads one shard every 20 ms, with 100 viewers at rest: "The runs"."""
    return 0.0153


# --- Measured: docs/benchmarks.md -------------------------------------------------------------------------------------


def received_change_cpu() -> float:
    """Return the CPU of a change received through the bus: "The bus", receiver, 20 changes a second."""
    return 0.1104 / 1000


def following_cpu() -> float:
    """Return the CPU share of a subscribed table without changes: "The bus", receiver, when idle."""
    return 0.0027


def redis_change_cpu() -> float:
    """Return Redis's CPU of a change for each of the two processes on the bus: "The bus", 20 a second."""
    return 0.0744 / 1000 / 2


def redis_following_cpu() -> float:
    """Return Redis's CPU share for each process and subscribed table without changes: "The bus", when idle."""
    return 0.0024 / 2


def query_cpu(workload: str) -> float:
    """Return the CPU of a request with its log line: "Against others", this gateway, logging."""
    return {"W1": 0.214, "W2": 1.147, "W3": 3.979, "W4": 2.617}[workload] / 1000


def changed_tick_cpu() -> float:
    """Return the CPU of a tick that finds a ball: "Live matches"."""
    return 0.00476


def unchanged_tick_cpu() -> float:
    """Return the CPU of a tick that finds no ball: "Live matches"."""
    return 0.00197


def reconcile_cpu() -> float:
    """Return the CPU share of the reconciliations with 200 matches: "Live matches"."""
    return 0.02051 / RECONCILE_SECONDS


def changed_tick_units() -> tuple[float, float]:
    """Return the write and read units of a tick that finds a ball: "DynamoDB calls of one tick"."""
    return 19.5, 2.4


def unchanged_tick_units() -> tuple[float, float]:
    """Return the write and read units of a tick that finds no ball: "DynamoDB calls of one tick"."""
    return 3.0, 1.9


def unchanged_tick_changes() -> float:
    """Return the writes of the tick's time per tick that finds no ball: "DynamoDB calls of one tick"."""
    return 0.2


# --- Measured: elsewhere ----------------------------------------------------------------------------------------------


def charge_cpu() -> float:
    """Return Redis's CPU of a charge of a caller's budget: docs/operations.md, "How much it takes"."""
    return 27e-6


def query_read_units(workload: str) -> float:
    """Return the read units of a request: docs/operations.md, "How much it takes".

    W2 is twice the page of 25 in docs/feed-costs.md, and its author.
    """
    return {"W1": 0.5, "W2": 3.5, "W3": 70.0, "W4": 52.0}[workload]


def joining_read_units() -> float:
    """Return the read units of a viewer that joins: half a unit for each 4 KB of the state, by its declaration."""
    return 0.5 * -(-ACTIVE_MATCHES.item_bytes // 4096)


def change_bytes() -> float:
    """Return the size of a change on the bus, which has both images: docs/operations.md, "Redis for the bus"."""
    return 2.0 * ACTIVE_MATCHES.item_bytes


# --- Set in the code --------------------------------------------------------------------------------------------------


def tick_seconds() -> float:
    """Return the poll interval of a match: pipelines/matches/live/orchestrator.py."""
    return TICK_SECONDS


def sockets_of_a_process() -> int:
    """Return the default of GATEWAY_MAX_WEBSOCKETS: server/admission/settings.py."""
    return Capacity().websockets


def lag_seconds() -> float:
    """Return the event loop lag above which operations are refused: server/admission/settings.py."""
    return Capacity().lag_seconds


def changes_kept() -> tuple[int, int]:
    """Return the most changes and bytes that the bus keeps for a table: datastore/change_streams/relay/lua.py."""
    return MAX_CHANGES, MAX_BYTES


def relayed_changes() -> float:
    """Return the changes per second that one process relays without lag: docs/scaling.md, 100 shards."""
    return 2000.0


def stream_reads() -> float:
    """Return the reads of a shard per second by the leader: runtime/jobs.py, POLL_SECONDS."""
    return 4.0


def listing_seconds() -> float:
    """Return the seconds between listings of a whole stream: datastore/change_streams/shards/listing.py."""
    return LISTING_INTERVALS * 10.0  # `discover_interval` of datastore/change_streams/change_feed.py


def followed_tables() -> int:
    """Return the number of tables with subscriptions: those that are declared with a stream (datastore/keyspace)."""
    return 5


# --- AWS's ------------------------------------------------------------------------------------------------------------


def readers_of_a_shard() -> int:
    """Return the most readers of a shard: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html"""
    return 2


def shards_of_a_table() -> int:
    """Return the open shards of a table: a new table on demand has about four partitions, each with an open shard.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
    """
    return 4


def listings_of_an_account() -> int:
    """Return the most DescribeStream calls per second of an account in a region.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_DescribeStream.html
    """
    return 10


def shards_of_a_page() -> int:
    """Return the most shards in a response of DescribeStream: same page."""
    return 100


def shard_seconds() -> float:
    """Return the time for which a shard is open: about four hours, which AWS states without a guarantee.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
    """
    return 4 * 3600.0


def kept_generations() -> float:
    """Return the listed shards per open shard: those of 24 hours and the open one. https://docs.aws.amazon.com/"""
    return 7.0


def table_units() -> int:
    """Return the read units, and the write units, per second of a table on demand: the initial quota of an account.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
    """
    return 40_000


def price_of_writes() -> float:
    """Return the dollars for a write unit on demand in us-east-1.

    https://aws.amazon.com/dynamodb/pricing/on-demand/
    """
    return 0.625e-6


def price_of_reads() -> float:
    """Return the dollars for a read unit on demand: same page. An eventually consistent read takes half a unit."""
    return 0.125e-6


def price_of_stream_reads() -> float:
    """Return the dollars for a GetRecords: same page. The free 2.5 million a month are ignored."""
    return 0.02 / 100_000


# --- Assumed ----------------------------------------------------------------------------------------------------------


def seconds_between_balls() -> float:
    """Return the seconds between changes of a match.

    An innings of 20 overs takes 85 minutes, or 42 s a ball; with wickets and corrections there is a change every 30 s.
    """
    return 30.0


def session_seconds() -> float:
    """Return the time that a viewer stays. Each reads the match when it joins."""
    return 1800.0


def busy_share() -> float:
    """Return the planned share of one CPU in the busiest minute: docs/operations.md recommends half."""
    return 0.5


def wanted_log_seconds() -> float:
    """Return the time for which a disconnected client must be able to resume."""
    return 120.0


def redis_bytes() -> float:
    """Return the bytes per second that a Redis may send: a network of 10 Gbit/s."""
    return 10e9 / 8
