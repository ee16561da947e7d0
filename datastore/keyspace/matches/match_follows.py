"""The table `cricket-match-follows`: who follows which match."""

from datastore.declarations import AccessPattern, Table

MATCH_FOLLOWS = Table(
    name="cricket-match-follows",
    partition="matchId",
    sort="userId",
    ttl="expiresAt",
)

PATTERNS: tuple[AccessPattern, ...] = ()
