"""What `benchmarks.scaling_model` reckons with: a function for each constant, which names its source.

CPU is in seconds of the machine that docs/benchmarks.md names: on another one, measure them again.
"""

from datastore.change_streams.relay.lua import MAX_BYTES, MAX_CHANGES
from datastore.change_streams.shards.listing import LISTING_INTERVALS
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from pipelines.matches.live.orchestrator import RECONCILE_SECONDS, TICK_SECONDS
from server.admission.settings import Capacity

MONTH_SECONDS = 730 * 3600

# --- Measured: docs/scaling.md, "The runs" ----------------------------------------------------------------------------


def delivery_cpu() -> float:
    """An event to one viewer of many, what 3,000 take more than 300 without what they take at rest: "The runs"."""
    return 5.84e-6


def event_cpu() -> float:
    """An event that is executed once for those who ask alike, what 300 take without rest and deliveries: "The runs"."""
    return 1.07e-3


def socket_cpu() -> float:
    """A second of a WebSocket that is open, which is pinged, what 10,000 take at rest more than 100: "The runs"."""
    return 3.2e-6


def reading_cpu() -> float:
    """The share of a CPU of a process that reads a stream of one shard every 20 ms, 100 viewers at rest: "The runs"."""
    return 0.0153


# --- Measured: docs/benchmarks.md -------------------------------------------------------------------------------------


def received_change_cpu() -> float:
    """A change that comes by the bus: "The bus", receiver, 20 changes a second."""
    return 0.1104 / 1000


def following_cpu() -> float:
    """The share of a CPU that a followed table takes without changes: "The bus", receiver, when idle."""
    return 0.0027


def redis_change_cpu() -> float:
    """A change in Redis for each process that uses the bus, of which there were two: "The bus", 20 a second."""
    return 0.0744 / 1000 / 2


def redis_following_cpu() -> float:
    """The share of Redis's CPU that a process takes for a followed table without changes: "The bus", when idle."""
    return 0.0024 / 2


def query_cpu(workload: str) -> float:
    """A request with its line in the log: "Against others", this gateway, logging."""
    return {"W1": 0.214, "W2": 1.147, "W3": 3.979, "W4": 2.617}[workload] / 1000


def changed_tick_cpu() -> float:
    """A tick of a match that finds a ball: "Live matches"."""
    return 0.00476


def unchanged_tick_cpu() -> float:
    """A tick of a match that finds none: "Live matches"."""
    return 0.00197


def reconcile_cpu() -> float:
    """The share of a CPU that looking for matches to poll takes, with 200 of them: "Live matches"."""
    return 0.02051 / RECONCILE_SECONDS


def changed_tick_units() -> tuple[float, float]:
    """Write and read units of a tick that finds a ball: "DynamoDB calls of one tick"."""
    return 19.5, 2.4


def unchanged_tick_units() -> tuple[float, float]:
    """Write and read units of a tick that finds none: "DynamoDB calls of one tick"."""
    return 3.0, 1.9


def unchanged_tick_changes() -> float:
    """Changes of active-matches for a tick that finds no ball, for its time is noted: "DynamoDB calls of one tick"."""
    return 0.2


# --- Measured: elsewhere ----------------------------------------------------------------------------------------------


def charge_cpu() -> float:
    """A charge of a caller's budget in Redis: docs/operations.md, "How much it takes"."""
    return 27e-6


def query_read_units(workload: str) -> float:
    """Docs/operations.md, "How much it takes"; W2 is twice the page of 25 in docs/feed-costs.md, and its author."""
    return {"W1": 0.5, "W2": 3.5, "W3": 70.0, "W4": 52.0}[workload]


def joining_read_units() -> float:
    """Half a unit for each 4 KB of a match's state, which each viewer reads when it comes: its declaration."""
    return 0.5 * -(-ACTIVE_MATCHES.item_bytes // 4096)


def change_bytes() -> float:
    """A change on the bus has the item before and after: docs/operations.md, "The bus's Redis"."""
    return 2.0 * ACTIVE_MATCHES.item_bytes


# --- Set in the code --------------------------------------------------------------------------------------------------


def tick_seconds() -> float:
    """How often a match is polled: pipelines/matches/live/orchestrator.py."""
    return TICK_SECONDS


def sockets_of_a_process() -> int:
    """GATEWAY_MAX_WEBSOCKETS: server/admission/settings.py."""
    return Capacity().websockets


def lag_seconds() -> float:
    """How late an event loop may be before operations are refused: server/admission/settings.py."""
    return Capacity().lag_seconds


def changes_kept() -> tuple[int, int]:
    """How many changes of a table, and how many bytes, the bus keeps: datastore/change_streams/relay/lua.py."""
    return MAX_CHANGES, MAX_BYTES


def relayed_changes() -> float:
    """Changes of a table a second that one process relays without falling behind: benchmarks/shards.py, 100 shards."""
    return 2000.0


def stream_reads() -> float:
    """Reads of a shard a second for subscribers, by the one process that reads it: runtime/jobs.py, POLL_SECONDS."""
    return 4.0


def listing_seconds() -> float:
    """Seconds between two listings of a whole stream by a process: datastore/change_streams/shards/listing.py."""
    return LISTING_INTERVALS * 10.0  # `discover_interval` of datastore/change_streams/change_feed.py


def followed_tables() -> int:
    """Tables that subscriptions follow: those that are declared with a stream (datastore/keyspace)."""
    return 5


# --- AWS's ------------------------------------------------------------------------------------------------------------


def readers_of_a_shard() -> int:
    """https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html: no more than two."""
    return 2


def shards_of_a_table() -> int:
    """A new table on demand begins with about four partitions, each with a shard that is open.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
    """
    return 4


def listings_of_an_account() -> int:
    """DescribeStream calls a second of an account in a region.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_DescribeStream.html
    """
    return 10


def shards_of_a_page() -> int:
    """The most shards in an answer of DescribeStream: same page."""
    return 100


def shard_seconds() -> float:
    """A shard takes records for about four hours: AWS says so, but promises nothing.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
    """
    return 4 * 3600.0


def kept_generations() -> float:
    """Shards that are listed for each open one: 24 hours of them, and the open one. https://docs.aws.amazon.com/"""
    return 7.0


def table_units() -> int:
    """Read units a second of a table on demand, and write units: the quota that an account has at first.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
    """
    return 40_000


def price_of_writes() -> float:
    """Dollars for a write unit on demand in us-east-1: https://aws.amazon.com/dynamodb/pricing/on-demand/."""
    return 0.625e-6


def price_of_reads() -> float:
    """Dollars for a read unit on demand in us-east-1, of which an eventually consistent read takes half: same page."""
    return 0.125e-6


def price_of_stream_reads() -> float:
    """Dollars for a GetRecords: same page. (The first 2.5 million a month are free, which is left out.)"""
    return 0.02 / 100_000


# --- Assumed ----------------------------------------------------------------------------------------------------------


def seconds_between_balls() -> float:
    """An innings of 20 overs takes 85 minutes, or 42 s a ball; with wickets and corrections a change each 30 s."""
    return 30.0


def session_seconds() -> float:
    """How long a viewer stays: each reads the match when it comes."""
    return 1800.0


def busy_share() -> float:
    """Of one CPU at the busiest minute: docs/operations.md says to plan for half."""
    return 0.5


def wanted_log_seconds() -> float:
    """For how long a client may be away and go on where it was."""
    return 120.0


def redis_bytes() -> float:
    """Bytes a second that a Redis may send: a network of 10 Gbit/s."""
    return 10e9 / 8
