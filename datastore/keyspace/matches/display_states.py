"""The table `DisplayStateCache`: what widgets show of a match, computed for each team."""

from datastore.declarations import AccessPattern, Table

DISPLAY_STATES = Table(
    name="DisplayStateCache",
    partition="cacheKey",
    ttl="ttl",
)

PATTERNS: tuple[AccessPattern, ...] = ()
