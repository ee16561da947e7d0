"""The table `active-matches`: the matches that are polled, and the state that the next tick is compared with.

Every change of a match's live state adds one to `version`. A poller that takes over a match adds one to `fence`, and
its writes succeed only while the fence has that value.

The index `live-matchId-index` is sparse: an item has the attribute `live` while its match is live, and loses it with
the write that ends the match or lets it rest. All matches share one partition of it. That takes 1,000 write units a
second, which is 2,000 matches with a version every two seconds.
"""

from datastore.model.access_patterns import CROWD_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key
from datastore.queues import OverflowPolicy

# The value of the attribute `live`, which is the partition of all live matches in their index.
LIVE = "live"
# What a list of live matches shows. Lines and balls stay in the table: they are read when they are selected.
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
    question="The state of an active match, as its poller keeps it",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.SYSTEM,
    fields=("activeMatch", "Match.active", "node", "nodes"),
    key="matchId = <matchId>",
)
LIVE_SCORE = AccessPattern(
    id="AM-1",
    question="The live score of a match: the public part of its state",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=CROWD_MS,
    fields=("Match.liveScore",),
    key="matchId = <matchId>",
)
TICK = AccessPattern(
    id="AM-1",
    question="The state that a tick is compared with",
    table=ACTIVE_MATCHES,
    operations=("GetItem",),
    who=Who.INTERNAL,
    key="matchId = <matchId>",
    consistent=True,
)
ALL_ACTIVE = AccessPattern(
    id="AM-2",
    question="All matches with a state: polled, resting, or ended a while ago",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.SYSTEM,
    fields=("activeMatches",),
)
LIVE_MATCHES = AccessPattern(
    id="AM-2",
    question="The matches that are live",
    table=ACTIVE_MATCHES,
    operations=("Query",),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    fields=("liveMatches",),
    index="live-matchId-index",
    key="live = :live",
    # A program that does not know the attribute `live` may end a match and leave it.
    filter=("#status = :active",),
)
LIVE_MATCHES_BY_SCAN = AccessPattern(
    id="AM-2",
    question="The matches that are live, while their index is missing or being filled",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    filter=("#status = :active",),
)
LIVE_DETAILS = AccessPattern(
    id="AM-1",
    question="The lines and the last balls of a live match, which its index does not have",
    table=ACTIVE_MATCHES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=2,
    shared_ms=1000,
    fields=("LiveMatch.liveScore",),
    key="matchId = <matchId>",
)
LIST_AS_LIVE = AccessPattern(
    id="AM-4",
    question="Show a live match in the index that a program stored without the attribute of the index",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#status = :active",
    update="SET live = :live",
)
UNLIST = AccessPattern(
    id="AM-4",
    question="Remove a match from the index that a program ended without removing the attribute of the index",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId) AND #status <> :active",
    update="REMOVE live",
)
RECONCILE = AccessPattern(
    id="AM-2",
    question="All matches with a state, as the orchestrator reconciles them",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.INTERNAL,
    consistent=True,
)
REGISTER = AccessPattern(
    id="AM-3",
    question="Begin to poll a match, from where its fixture says it stands",
    table=ACTIVE_MATCHES,
    # The version goes on from the fixture's, so that it never goes back.
    operations=("GetItem", "PutItem"),
    who=Who.SYSTEM,
    fields=("registerActiveMatch",),
    # What has expired is not there any more; DynamoDB may take days to delete it.
    condition="attribute_not_exists(matchId) OR #status = :idle OR #ttl <= :now",
    consistent=True,
)
COMMIT = AccessPattern(
    id="AM-4",
    question="The state after a tick that changed something: the next version",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND version = :seen AND #status = :active",
)
TICKED = AccessPattern(
    id="AM-4",
    question="A tick that changed nothing",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="SET lastTickAt = :now, live = :live",
)
CLAIM = AccessPattern(
    id="AM-4",
    question="Take over a match that nobody polls",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :seen AND #status = :active",
    update="SET instanceId = :me, lastTickAt = :now, live = :live ADD fence :one",
)
ADOPT = AccessPattern(
    id="AM-4",
    question="Take over a match that another program registered: its state is written whole",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(version) AND #status = :active",
)
REST = AccessPattern(
    id="AM-4",
    question="Let a match rest that is not over and not in the live scores",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="SET #status = :idle REMOVE live ADD fence :one",
)
REOPEN = AccessPattern(
    id="AM-4",
    question="Have a match that had ended polled again: it goes on after all, or its scorers correct it",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    # An item of another program has no fence.
    condition="(fence = :seen OR attribute_not_exists(fence)) AND #status = :ended",
    update="SET #status = :idle REMOVE #ttl, live ADD fence :one",
)
LEAVE = AccessPattern(
    id="AM-4",
    question="Leave a match to whoever takes it over",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #status = :active",
    update="REMOVE instanceId ADD fence :one",
)
FINISH = AccessPattern(
    id="AM-6",
    question="End the polling of a match that is over, unless it changed hands",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence OR (attribute_exists(matchId) AND attribute_not_exists(fence))",
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
COOLDOWNS = AccessPattern(
    id="AM-5",
    # Part of the UpdateItem of AM-4: what was told, and that it was, are written together or not at all.
    question="Until when which kinds of events are not told again, or do not ring; written with AM-4",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
)
DEACTIVATE = AccessPattern(
    id="AM-6",
    question="End the polling of a match",
    table=ACTIVE_MATCHES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("deactivateMatch",),
    condition="attribute_exists(matchId)",
    # The fence shuts its poller out.
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
DELETE = AccessPattern(
    id="AM-7",
    question="Remove the state of a match that is not polled",
    table=ACTIVE_MATCHES,
    operations=("DeleteItem",),
    who=Who.SYSTEM,
    fields=("deleteActiveMatch",),
    condition="attribute_not_exists(matchId) OR #status <> :active",
)
MATCH_UPDATES = AccessPattern(
    id="CRIC-S1",
    question="A match as it stands, then every change of it",
    table=ACTIVE_MATCHES,
    operations=("GetItem",),
    who=Who.ANY,
    fields=("matchUpdates",),
    key="matchId = <matchId>",
    # Read after the feed is attached: older than the next change it must not be.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
    # Its events are versions, each of which tells what has changed since the one before: none is left out.
    chooses=False,
)
LIVE_SCORES = AccessPattern(
    id="CRIC-S2",
    question="Every live match as it stands, then every change of any",
    table=ACTIVE_MATCHES,
    operations=("Scan",),
    who=Who.ANY,
    fields=("liveScores",),
    # An item of another program may lack the match's league.
    filter=("#status = :active",),
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
    chooses=False,
)

PATTERNS = (
    STATE,
    LIVE_SCORE,
    TICK,
    ALL_ACTIVE,
    LIVE_MATCHES,
    LIVE_MATCHES_BY_SCAN,
    LIVE_DETAILS,
    LIST_AS_LIVE,
    UNLIST,
    RECONCILE,
    REGISTER,
    COMMIT,
    TICKED,
    CLAIM,
    ADOPT,
    REST,
    REOPEN,
    FINISH,
    LEAVE,
    COOLDOWNS,
    DEACTIVATE,
    DELETE,
    MATCH_UPDATES,
    LIVE_SCORES,
)
