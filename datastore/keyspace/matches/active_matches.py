"""The table `active-matches`: the matches that are polled, and the live state with which the next tick is compared.

Every change of a match's live state adds one to `version`. A poller that takes over a match adds one to `fence`, the
fencing token, and its writes succeed only while the fence has that value.

The index `live-matchId-index` is sparse: an item has the attribute `live` while its match is live. The write that ends
the match or sets it to idle removes the attribute. All matches share one partition of the index. A partition takes
1,000 write units a second, which is 2,000 matches with a new version every two seconds.
"""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key
from datastore.queues import OverflowPolicy

# The value of the attribute `live`: the partition of all live matches in the index.
LIVE = "live"
# The attributes that a list of live matches shows. Lines and balls are read from the table if they are selected.
SUMMARY = (
    "leagueCode",
    "matchPhase",
    "previousScore",
    "previousStatus",
    "status",
    "ttl",
    "updatedAt",
    "version",
)

ACTIVE_MATCHES = Table(
    name="active-matches",
    partition="matchId",
    indexes=(Index("live-matchId-index", partition="live", sort="matchId", projection=SUMMARY, item_bytes=700),),
    ttl="ttl",
    stream="NEW_AND_OLD_IMAGES",
    item_bytes=4500,
)


def active_match(match_id: str) -> Key:
    return Key(match_id)


STATE = AccessPattern(
    id="AM-1",
    question="The state of an active match that its poller stores",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.SYSTEM,
    fields=("activeMatch", "Match.active", "node", "nodes"),
    key="matchId = <matchId>",
)
LIVE_SCORE = AccessPattern(
    id="AM-1",
    question="The live score of a match, the public part of its state",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=SHARED_MS,
    fields=("Match.liveScore",),
    key="matchId = <matchId>",
)
STATE_FOR_TICK = AccessPattern(
    id="AM-1",
    question="The state with which a tick is compared",
    table=ACTIVE_MATCHES,
    operations=("GetItem",),
    who=Who.INTERNAL,
    key="matchId = <matchId>",
    consistent=True,
)
ALL_ACTIVE = AccessPattern(
    id="AM-2",
    question="All active matches: polled, idle or recently ended",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.SYSTEM,
    fields=("activeMatches",),
)
LIVE_MATCHES = AccessPattern(
    id="AM-2",
    question="The live matches",
    table=ACTIVE_MATCHES,
    operations=("Query",),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    fields=("liveMatches",),
    index="live-matchId-index",
    key="live = :live",
    # Another program may end a match without removing `live`.
    filter=("#status = :active",),
)
LIVE_MATCHES_BY_SCAN = AccessPattern(
    id="AM-2",
    question="The live matches, while their index is missing or still backfilling",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    filter=("#status = :active",),
)
LIVE_DETAILS = AccessPattern(
    id="AM-1",
    question="The lines and the last balls of a live match, which the index does not hold",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    fields=("LiveMatch.liveScore",),
    key="matchId = <matchId>",
)
ADD_TO_LIVE_INDEX = AccessPattern(
    id="AM-4",
    question="Add a live match to the index that another program stored without the attribute `live`",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#status = :active",
    update="SET live = :live",
)
REMOVE_FROM_LIVE_INDEX = AccessPattern(
    id="AM-4",
    question="Remove a match from the index that another program ended without removing the attribute `live`",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId) AND #status <> :active",
    update="REMOVE live",
)
RECONCILE = AccessPattern(
    id="AM-2",
    question="All active matches, for the orchestrator's reconciliation",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.INTERNAL,
    consistent=True,
)
REGISTER = AccessPattern(
    id="AM-3",
    question="Start to poll a match, from the state of its fixture",
    table=ACTIVE_MATCHES,
    # The version continues that of the fixture, so that it never decreases.
    operations=("GetItem", "PutItem"),
    who=Who.SYSTEM,
    fields=("registerActiveMatch",),
    # An expired item counts as absent: DynamoDB may take days to delete it.
    condition="attribute_not_exists(matchId) OR #status = :idle OR #ttl <= :now",
    consistent=True,
)
COMMIT = AccessPattern(
    id="AM-4",
    question="Store the state after a tick that changed something, as the next version",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND version = :seen AND #status = :active",
)
RECORD_TICK = AccessPattern(
    id="AM-4",
    question="Record a tick that changed nothing",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="SET lastTickAt = :now, live = :live",
)
CLAIM = AccessPattern(
    id="AM-4",
    question="Take over a match that no poller polls",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :seen AND #status = :active",
    update="SET instanceId = :me, lastTickAt = :now, live = :live ADD fence :one",
)
ADOPT = AccessPattern(
    id="AM-4",
    question="Take over a match that another program registered, and write its whole state",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(version) AND #status = :active",
)
SET_IDLE = AccessPattern(
    id="AM-4",
    question="Set a match to idle that has not ended and is not in the live scores",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="SET #status = :idle REMOVE live ADD fence :one",
)
REOPEN = AccessPattern(
    id="AM-4",
    question="Poll an ended match again, because it continues or its scorers correct it",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    # Items of other programs have no fence.
    condition="(fence = :seen OR attribute_not_exists(fence)) AND #status = :ended",
    update="SET #status = :idle REMOVE #ttl, live ADD fence :one",
)
RELEASE = AccessPattern(
    id="AM-4",
    question="Release a match, for another poller to take over",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="REMOVE instanceId ADD fence :one",
)
FINISH = AccessPattern(
    id="AM-6",
    question="Stop polling a match that has ended, unless another poller took it over",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence OR (attribute_exists(matchId) AND attribute_not_exists(fence))",
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
COOLDOWNS = AccessPattern(
    id="AM-5",
    # Part of the UpdateItem of AM-4: a notification and its cooldown are written together or not at all.
    question="Store the cooldowns of kinds of events, until which they are not sent or are silent; part of AM-4",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
)
DEACTIVATE = AccessPattern(
    id="AM-6",
    question="Stop polling a match",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("deactivateMatch",),
    condition="attribute_exists(matchId)",
    # The next fence makes the writes of its poller fail.
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
DELETE = AccessPattern(
    id="AM-7",
    question="Delete the state of a match that is not polled",
    table=ACTIVE_MATCHES,
    operations=("DeleteItem",),
    who=Who.SYSTEM,
    fields=("deleteActiveMatch",),
    condition="attribute_not_exists(matchId) OR #status <> :active",
)
MATCH_UPDATES = AccessPattern(
    id="CRIC-S1",
    question="The current state of a match, then every change",
    table=ACTIVE_MATCHES,
    operations=("GetItem",),
    who=Who.ANY,
    fields=("matchUpdates",),
    key="matchId = <matchId>",
    # Read after the change feed is attached: the state must not miss a change that the feed does not bring.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
    # Each event holds the difference from the previous version, so none may be dropped.
    client_may_choose=False,
)
LIVE_SCORES = AccessPattern(
    id="CRIC-S2",
    question="The current state of every live match, then every change of any",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.ANY,
    fields=("liveScores",),
    # Items of other programs may lack the league.
    filter=("#status = :active",),
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
    client_may_choose=False,
)

PATTERNS = (
    STATE,
    LIVE_SCORE,
    STATE_FOR_TICK,
    ALL_ACTIVE,
    LIVE_MATCHES,
    LIVE_MATCHES_BY_SCAN,
    LIVE_DETAILS,
    ADD_TO_LIVE_INDEX,
    REMOVE_FROM_LIVE_INDEX,
    RECONCILE,
    REGISTER,
    COMMIT,
    RECORD_TICK,
    CLAIM,
    ADOPT,
    SET_IDLE,
    REOPEN,
    FINISH,
    RELEASE,
    COOLDOWNS,
    DEACTIVATE,
    DELETE,
    MATCH_UPDATES,
    LIVE_SCORES,
)
