"""The table `active-matches`: the matches that are polled, and the live state with which the next tick is compared.

Every change of a match's live state adds one to `version`. A poller that takes over a match adds one to `fence`, the
fencing token, and its writes succeed only while the fence has that value.

The index `live-matchId-index` is sparse: an item has the attribute `live` while its match is live. The write that ends
the match or sets it to idle removes the attribute. All matches share one partition of the index. A partition takes
1,000 write units a second, which is 2,000 matches with a new version every two seconds.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import QUERY, SHARED_MS, AccessPattern, Expiry, Index, Table, Who
from datastore.queues import OverflowPolicy

# The value of the attribute `live`: the partition of all live matches in the index.
LIVE = "live"
# The attributes that a list of live matches shows. Lines and balls are read from the table if they are selected.
SUMMARY = (*("leagueCode", "matchPhase", "previousScore", "previousStatus", "status", "ttl", "updatedAt"), "version")

ACTIVE_MATCHES = Table(
    name="active-matches",
    partition="matchId",
    indexes=(Index("live-matchId-index", partition="live", sort="matchId", projection=SUMMARY, item_bytes=700),),
    ttl="ttl",
    expiry=Expiry.NEVER,  # until a match has ended: patterns that may read it later state it
    stream="NEW_AND_OLD_IMAGES",
)


@item_key(ACTIVE_MATCHES)
def active_match(match_id: str) -> KeyParts:
    return (match_id,), ()


STATE = active_match.read(
    "AM-1",
    "The state of an active match that its poller stores",
    Who.SYSTEM,
    ("activeMatch", "Match.activeMatch", "node", "nodes"),
    expiry=Expiry.SOMETIMES,
)
LIVE_SCORE = active_match.read(
    "AM-1",
    "The live score of a match, the public part of its state",
    Who.ANY,
    ("Match.liveScore",),
    max_age=2,
    shared_ms=SHARED_MS,
    expiry=Expiry.SOMETIMES,
)
STATE_FOR_TICK = active_match.read(
    "AM-1", "The state with which a tick is compared", consistent=True, expiry=Expiry.SOMETIMES
)
ALL_ACTIVE = active_match.scan(
    "AM-2",
    "All active matches: polled, idle or recently ended",
    Who.SYSTEM,
    ("activeMatches",),
    expiry=Expiry.SOMETIMES,
)
LIVE_MATCHES = AccessPattern(
    "AM-2",
    "The live matches",
    ACTIVE_MATCHES,
    QUERY,
    Who.ANY,
    ("liveMatches",),
    max_age=2,
    shared_ms=1000,
    index="live-matchId-index",
    key="live = :live",
    # Another program may end a match without removing `live`.
    filter=("#status = :active",),
    expiry=Expiry.SOMETIMES,
)
LIVE_MATCHES_BY_SCAN = active_match.scan(
    "AM-2",
    "The live matches, while their index is missing or still backfilling",
    Who.ANY,
    max_age=2,
    shared_ms=1000,
    filter=("#status = :active",),
    expiry=Expiry.SOMETIMES,
)
LIVE_DETAILS = active_match.read(
    "AM-1",
    "The lines and the last balls of a live match, which the index does not hold",
    Who.ANY,
    ("LiveMatch.liveScore",),
    max_age=2,
    shared_ms=1000,
    expiry=Expiry.SOMETIMES,
)
ADD_TO_LIVE_INDEX = active_match.update(
    "AM-4",
    "Add a live match to the index that another program stored without the attribute `live`",
    condition="#status = :active",
    update="SET live = :live",
)
REMOVE_FROM_LIVE_INDEX = active_match.update(
    "AM-4",
    "Remove a match from the index that another program ended without removing the attribute `live`",
    condition="attribute_exists(matchId) AND #status <> :active",
    update="REMOVE live",
)
RECONCILE = active_match.scan(
    "AM-2", "All active matches, for the orchestrator's reconciliation", consistent=True, expiry=Expiry.SOMETIMES
)
REGISTER = AccessPattern(
    "AM-3",
    "Start to poll a match, from the state of its fixture",
    ACTIVE_MATCHES,
    # The version continues that of the fixture, so that it never decreases.
    ("GetItem", "PutItem"),
    Who.SYSTEM,
    ("registerActiveMatch",),
    condition="attribute_not_exists(matchId) OR #status = :idle",
    consistent=True,
    expiry=Expiry.SOMETIMES,
)
COMMIT = active_match.update(
    "AM-4",
    "Store the state after a tick that changed something, as the next version",
    condition="fence = :fence AND version = :seen AND #status = :active",
)
RECORD_TICK = active_match.update(
    "AM-4",
    "Record a tick that changed nothing",
    condition="fence = :fence AND #status = :active",
    update="SET lastTickAt = :now, live = :live",
)
CLAIM = active_match.update(
    "AM-4",
    "Take over a match that no poller polls",
    condition="fence = :seen AND #status = :active",
    update="SET instanceId = :me, lastTickAt = :now, live = :live ADD fence :one",
)
ADOPT = active_match.update(
    "AM-4",
    "Take over a match that another program registered, and write its whole state",
    condition="attribute_not_exists(version) AND #status = :active",
)
SET_IDLE = active_match.update(
    "AM-4",
    "Set a match to idle that has not ended and is not in the live scores",
    condition="fence = :fence AND #status = :active",
    update="SET #status = :idle REMOVE live ADD fence :one",
)
REOPEN = active_match.update(
    "AM-4",
    "Poll an ended match again, because it continues or its scorers correct it",
    # Items of other programs have no fence.
    condition="(fence = :seen OR attribute_not_exists(fence)) AND #status = :ended",
    update="SET #status = :idle REMOVE #ttl, live ADD fence :one",
)
RELEASE = active_match.update(
    "AM-4",
    "Release a match, for another poller to take over",
    condition="fence = :fence AND #status = :active",
    update="REMOVE instanceId ADD fence :one",
)
FINISH = active_match.update(
    "AM-6",
    "Stop polling a match that has ended, unless another poller took it over",
    condition="fence = :fence OR (attribute_exists(matchId) AND attribute_not_exists(fence))",
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
COOLDOWNS = active_match.update(
    "AM-5",
    # Part of the UpdateItem of AM-4: a notification and its cooldown are written together or not at all.
    "Store the cooldowns of kinds of events, until which they are not sent or are silent; part of AM-4",
)
DEACTIVATE = active_match.update(
    "AM-6",
    "Stop polling a match",
    Who.SYSTEM,
    ("endActiveMatch",),
    condition="attribute_exists(matchId)",
    # The next fence makes the writes of its poller fail.
    update="SET #status = :ended, #ttl = :ttl REMOVE live ADD fence :one",
)
DELETE = active_match.delete(
    "AM-7",
    "Delete the state of a match that is not polled",
    Who.SYSTEM,
    ("deleteActiveMatch",),
    condition="attribute_not_exists(matchId) OR #status <> :active",
)
MATCH_UPDATES = AccessPattern(
    "CRIC-S1",
    "The current state of a match, then every change",
    ACTIVE_MATCHES,
    ("GetItem",),
    Who.ANY,
    ("matchUpdates",),
    key=active_match.documented,
    # Read after the change feed is attached: the state must not miss a change that the feed does not bring.
    consistent=True,
    expiry=Expiry.SOMETIMES,
    when_slow=OverflowPolicy.CLOSE,
    # Each event holds the difference from the previous version, so none may be dropped.
    client_may_choose=False,
)
LIVE_SCORES = active_match.scan(
    "CRIC-S2",
    "The current state of every live match, then every change of any",
    Who.ANY,
    ("liveScores",),
    # Items of other programs may lack the league.
    filter=("#status = :active",),
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
    client_may_choose=False,
    expiry=Expiry.SOMETIMES,
)
