"""The constants of `benchmarks.scaling_model`: each has a comment that names its source.

CPU is in seconds on the machine of docs/benchmarks.md. For another machine, measure the constants again.
"""

from datastore.change_streams.relay.lua import MAX_BYTES, MAX_CHANGES
from datastore.change_streams.shards.listing import LISTING_INTERVALS
from datastore.items.sizes import typical_bytes
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from pipelines.matches.live.orchestrator import PollIntervals
from server.admission.settings import Capacity

MONTH_SECONDS = 730 * 3600

# --- Measured: docs/scaling.md, "The runs" ----------------------------------------------------------------------------

#: The CPU of one delivery: 3,000 viewers minus 300 viewers, without their CPU at rest: "The runs".
DELIVERY_CPU = 5.84e-6
#: The CPU of one event: 300 viewers, without their CPU at rest and their deliveries: "The runs".
EVENT_CPU = 1.07e-3
#: The CPU of an idle WebSocket for a second, including pings: 10,000 at rest minus 100: "The runs".
SOCKET_CPU = 3.2e-6
#: The CPU share of a process that reads one shard every 20 ms, with 100 viewers at rest: "The runs".
READING_CPU = 0.0153

# --- Measured: docs/benchmarks.md -------------------------------------------------------------------------------------

#: The CPU of a change received through the bus: "The bus", receiver, 20 changes a second.
RECEIVED_CHANGE_CPU = 0.1104 / 1000
#: The CPU share of a subscribed table without changes: "The bus", receiver, when idle.
FOLLOWING_CPU = 0.0027
#: Redis's CPU of a change for each of the two processes on the bus: "The bus", 20 a second.
REDIS_CHANGE_CPU = 0.0744 / 1000 / 2
#: Redis's CPU share for each process and subscribed table without changes: "The bus", when idle.
REDIS_FOLLOWING_CPU = 0.0024 / 2
#: The CPU of a request with its log line: "Against others", this gateway, logging.
QUERY_CPU = {"W1": 0.214e-3, "W2": 1.147e-3, "W3": 3.979e-3, "W4": 2.617e-3}
#: The CPU of a tick that finds a ball: "Live matches".
CHANGED_TICK_CPU = 0.00476
#: The CPU of a tick that finds no ball: "Live matches".
UNCHANGED_TICK_CPU = 0.00197
#: The CPU share of the reconciliations with 200 matches: "Live matches".
RECONCILE_CPU = 0.02051 / PollIntervals().reconcile_seconds
#: The write and read units of a tick that finds a ball: "DynamoDB calls of one tick".
CHANGED_TICK_UNITS = 19.5, 2.4
#: The write and read units of a tick that finds no ball: "DynamoDB calls of one tick".
UNCHANGED_TICK_UNITS = 3.0, 1.9
#: The writes of the tick's time per tick that finds no ball: "DynamoDB calls of one tick".
UNCHANGED_TICK_CHANGES = 0.2

# --- Measured: elsewhere ----------------------------------------------------------------------------------------------

#: Redis's CPU of a charge of a caller's budget: docs/resources.md, "How much it takes".
CHARGE_CPU = 27e-6
#: The read units of a request: docs/resources.md, "How much it takes".
#: W2 is twice the page of 25 in docs/feed-costs.md, and its author.
QUERY_READ_UNITS = {"W1": 0.5, "W2": 3.5, "W3": 70.0, "W4": 52.0}
#: The read units of a viewer that joins: half a unit for each 4 KB of the state, by its declaration.
JOINING_READ_UNITS = 0.5 * -(-typical_bytes(ACTIVE_MATCHES) // 4096)
#: The size of a change on the bus, which has both images: docs/resources.md, "Redis for the bus".
CHANGE_BYTES = 2.0 * typical_bytes(ACTIVE_MATCHES)

# --- Set in the code --------------------------------------------------------------------------------------------------

#: The poll interval of a match: pipelines/matches/live/orchestrator.py.
TICK_SECONDS = PollIntervals().tick_seconds
#: The default of GATEWAY_MAX_WEBSOCKETS: server/admission/settings.py.
SOCKETS_OF_A_PROCESS = Capacity().websockets
#: The event loop lag above which operations are refused: server/admission/settings.py.
LAG_SECONDS = Capacity().lag_seconds
#: The most changes and bytes that the bus keeps for a table: datastore/change_streams/relay/lua.py.
CHANGES_KEPT = MAX_CHANGES, MAX_BYTES
#: The changes per second that one process relays without lag: docs/scaling.md, 100 shards.
RELAYED_CHANGES = 2000.0
#: The reads of a shard per second by the leader: runtime/jobs.py, POLL_SECONDS.
STREAM_READS = 4.0
#: The seconds between listings of a whole stream: datastore/change_streams/shards/listing.py.
LISTING_SECONDS = LISTING_INTERVALS * 10.0  # `discover_interval` of datastore/change_streams/change_feed.py
#: The number of tables with subscriptions: those that are declared with a stream (datastore/keyspace).
FOLLOWED_TABLES = 5

# --- AWS's ------------------------------------------------------------------------------------------------------------

#: The most readers of a shard: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
READERS_OF_A_SHARD = 2
#: The open shards of a table: a new table on demand has about four partitions, each with an open shard.
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
SHARDS_OF_A_TABLE = 4
#: The most DescribeStream calls per second of an account in a region.
#: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_DescribeStream.html
LISTINGS_OF_AN_ACCOUNT = 10
#: The most shards in a response of DescribeStream: same page.
SHARDS_OF_A_PAGE = 100
#: The time for which a shard is open: about four hours, which AWS states without a guarantee.
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
SHARD_SECONDS = 4 * 3600.0
#: The listed shards per open shard: those of 24 hours and the open one. https://docs.aws.amazon.com/
KEPT_GENERATIONS = 7.0
#: The read units, and the write units, per second of a table on demand: the initial quota of an account.
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
TABLE_UNITS = 40_000
#: The dollars for a write unit on demand in us-east-1.
#: https://aws.amazon.com/dynamodb/pricing/on-demand/
PRICE_OF_WRITES = 0.625e-6
#: The dollars for a read unit on demand: same page. An eventually consistent read takes half a unit.
PRICE_OF_READS = 0.125e-6
#: The dollars for a GetRecords: same page. The free 2.5 million a month are ignored.
PRICE_OF_STREAM_READS = 0.02 / 100_000

# --- Assumed ----------------------------------------------------------------------------------------------------------

#: The seconds between changes of a match.
#: An innings of 20 overs takes 85 minutes, or 42 s a ball; with wickets and corrections there is a change every 30 s.
SECONDS_BETWEEN_BALLS = 30.0
#: The time that a viewer stays. Each reads the match when it joins.
SESSION_SECONDS = 1800.0
#: The planned share of one CPU in the busiest minute: docs/resources.md recommends half.
BUSY_SHARE = 0.5
#: The time for which a disconnected client must be able to resume.
WANTED_LOG_SECONDS = 120.0
#: The bytes per second that a Redis may send: a network of 10 Gbit/s.
REDIS_BYTES = 10e9 / 8
