"""The table `live-activities`: sessions of Live Activities on iOS devices."""

from datastore.declarations import AccessPattern, Index, Table

LIVE_ACTIVITIES = Table(
    name="live-activities",
    partition="matchId",
    sort="userId#deviceId",
    indexes=(Index("userId-index", partition="userId"),),
    ttl="ttl",
)

PATTERNS: tuple[AccessPattern, ...] = ()
