"""The table `live-activities`: sessions of Live Activities on iOS devices.

A session is one Live Activity of one match on one device, an item of the table.
"""

from datastore.model.access_patterns import AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key, join
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

LIVE_ACTIVITIES = Table(
    name="live-activities",
    partition="matchId",
    sort="userId#deviceId",
    indexes=(Index("userId-index", partition="userId"),),
    ttl="ttl",
    item_bytes=500,
)


def live_activity(match_id: str, user_id: str, device_id: str) -> Key:
    return Key(match_id, join(user_id, device_id))


def user_prefix(user_id: str) -> str:
    """Return the prefix of the sort keys of a user's sessions."""
    return f"{join(user_id)}#"


ACTIVITIES_OF_MATCH = AccessPattern(
    id="LA-1",
    question="All sessions of a match, of any status",
    table=LIVE_ACTIVITIES,
    operations=("Query",),
    who=Who.SYSTEM,
    fields=("Match.liveActivities",),
    key="matchId = :partition",
    filter=("#ttl > :now",),
)
ACTIVE_OF_MATCH = AccessPattern(
    id="LA-1",
    question="The sessions of a match that receive its updates",
    table=LIVE_ACTIVITIES,
    operations=("Query",),
    who=Who.INTERNAL,
    key="matchId = :partition",
    filter=("#status = :active", "#ttl > :now"),
)
ACTIVITIES_OF_USER = AccessPattern(
    id="LA-2",
    question="All sessions of a user in all matches, unordered",
    table=LIVE_ACTIVITIES,
    operations=("Query",),
    who=Who.USER,
    fields=("liveActivities", "Me.liveActivities"),
    index="userId-index",
    key="userId = :partition",
    filter=("#ttl > :now",),
)
REGISTER_ACTIVITY = AccessPattern(
    id="LA-3",
    question="Start or restart a session of a match that has not ended, on at most 10 devices of a user",
    table=LIVE_ACTIVITIES,
    # GetItem reads the match, and Query the user's sessions of the match, to count the devices.
    operations=("GetItem", "Query", "UpdateItem"),
    who=Who.USER,
    fields=("registerLiveActivity",),
    # The alias stands for `userId#deviceId`.
    key="matchId = :partition AND begins_with(#userId__deviceId, :user)",
    filter=("#ttl > :now",),
    update=(
        "SET userId = :user, deviceId = :device, updateToken = :token, #status = :active, "
        f"sessionStartedAt = :startedAt, #ttl = :ttl, {SET_NEXT_VERSION} REMOVE endedAt, endReason, suspendedAt"
    ),
)
UPDATE_TOKEN = AccessPattern(
    id="LA-4",
    question="Store the new push token of a session that has not ended; a suspended session becomes active",
    table=LIVE_ACTIVITIES,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updateLiveActivityToken",),
    condition="attribute_exists(matchId) AND #status <> :ended AND #ttl > :now",
    guard=version_guard(),
    update=f"SET updateToken = :token, #status = :active REMOVE suspendedAt {increment_clause()}",
)
END_ACTIVITY = AccessPattern(
    id="LA-5",
    question="End a session; an ended session stays unchanged",
    table=LIVE_ACTIVITIES,
    operations=("UpdateItem",),
    who=Who.USER,
    also=(Who.SYSTEM,),
    fields=("endLiveActivity",),
    condition="attribute_exists(matchId) AND #ttl > :now",
    update=(
        "SET #status = :ended, endedAt = if_not_exists(endedAt, :endedAt), "
        f"endReason = if_not_exists(endReason, :reason) {increment_clause()}"
    ),
)
SUSPEND_ACTIVITY = AccessPattern(
    id="LA-6",
    question="Suspend a session that has not ended",
    table=LIVE_ACTIVITIES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("suspendLiveActivity",),
    condition="attribute_exists(matchId) AND #status <> :ended AND #ttl > :now",
    update=f"SET #status = :suspended, suspendedAt = if_not_exists(suspendedAt, :suspendedAt) {increment_clause()}",
)
SUSPEND_REJECTED = AccessPattern(
    id="LA-6",
    question="Suspend a session whose push token was rejected, unless it has a new one",
    table=LIVE_ACTIVITIES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="updateToken = :rejected AND #status <> :ended AND #ttl > :now",
    update=f"SET #status = :suspended, suspendedAt = if_not_exists(suspendedAt, :suspendedAt) {increment_clause()}",
)

PATTERNS = (
    ACTIVITIES_OF_MATCH,
    ACTIVE_OF_MATCH,
    ACTIVITIES_OF_USER,
    REGISTER_ACTIVITY,
    UPDATE_TOKEN,
    END_ACTIVITY,
    SUSPEND_ACTIVITY,
    SUSPEND_REJECTED,
)
