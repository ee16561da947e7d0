"""The table `live-activities`: sessions of Live Activities on iOS devices.

A session is one Live Activity of one match on one device, an item of the table.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import QUERY, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import join
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

LIVE_ACTIVITIES = Table(
    name="live-activities",
    partition="matchId",
    sort="userId#deviceId",
    indexes=(Index("userId-index", partition="userId"),),
    ttl="ttl",
)


@item_key(LIVE_ACTIVITIES)
def live_activity(match_id: str, user_id: str, device_id: str) -> KeyParts:
    return (match_id,), (user_id, device_id)


def user_prefix(user_id: str) -> str:
    """Return the prefix of the sort keys of a user's sessions."""
    return f"{join(user_id)}#"


ACTIVITIES_OF_MATCH = live_activity.query(
    "LA-1", "All sessions of a match, of any status", Who.SYSTEM, ("Match.liveActivities",)
)
ACTIVE_OF_MATCH = live_activity.query(
    "LA-1", "The sessions of a match that receive its updates", filter=("#status = :active",)
)
ACTIVITIES_OF_USER = AccessPattern(
    "LA-2",
    "All sessions of a user in all matches, unordered",
    LIVE_ACTIVITIES,
    QUERY,
    Who.USER,
    ("liveActivities", "Me.liveActivities"),
    index="userId-index",
    key="userId = :partition",
)
ACTIVITY = live_activity.read("LA-N1", "A session by its full key", Who.USER, ("node", "nodes"))
REGISTER_ACTIVITY = AccessPattern(
    "LA-3",
    "Start or restart a session of a match that has not ended, on at most 10 devices of a user",
    LIVE_ACTIVITIES,
    # GetItem reads the match, and Query the user's sessions of the match, to count the devices.
    ("GetItem", "Query", "UpdateItem"),
    Who.USER,
    ("registerLiveActivity",),
    # The alias stands for `userId#deviceId`.
    key="matchId = :partition AND begins_with(#userId__deviceId, :user)",
    update=(
        "SET userId = :user, deviceId = :device, updateToken = :token, #status = :active, "
        f"sessionStartedAt = :startedAt, #ttl = :ttl, {SET_NEXT_VERSION} REMOVE endedAt, endReason, suspendedAt"
    ),
)
UPDATE_TOKEN = live_activity.update(
    "LA-4",
    "Store the new push token of a session that has not ended; a suspended session becomes active",
    Who.USER,
    ("updateLiveActivity",),
    condition="attribute_exists(matchId) AND #status <> :ended",
    guard=version_guard(),
    update=f"SET updateToken = :token, #status = :active REMOVE suspendedAt {increment_clause()}",
)
END_ACTIVITY = live_activity.update(
    "LA-5",
    "End a session; an ended session stays unchanged",
    Who.USER,
    ("endLiveActivity",),
    also=(Who.SYSTEM,),
    condition="attribute_exists(matchId) AND #status <> :ended",
    guard=version_guard(),
    update=f"SET #status = :ended, endedAt = :endedAt, endReason = :reason {increment_clause()}",
)
SUSPEND_ACTIVITY = live_activity.update(
    "LA-6",
    "Suspend a session that has not ended",
    Who.SYSTEM,
    ("suspendLiveActivity",),
    condition="attribute_exists(matchId) AND #status <> :ended",
    update=f"SET #status = :suspended, suspendedAt = if_not_exists(suspendedAt, :suspendedAt) {increment_clause()}",
)
SUSPEND_REJECTED = live_activity.update(
    "LA-6",
    "Suspend a session whose push token was rejected, unless it has a new one",
    condition="updateToken = :rejected AND #status <> :ended",
    update=f"SET #status = :suspended, suspendedAt = if_not_exists(suspendedAt, :suspendedAt) {increment_clause()}",
)
