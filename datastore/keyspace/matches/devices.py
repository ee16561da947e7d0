"""The table `cricket-devices`: where push notifications of a user go."""

from datastore.declarations import AccessPattern, Table

DEVICES = Table(
    name="cricket-devices",
    partition="userId",
    sort="deviceToken",
    ttl="ttl",
)

PATTERNS: tuple[AccessPattern, ...] = ()
