"""The table `cricket-teams`: reference data, a hundred teams or fewer."""

from datastore.declarations import AccessPattern, Table

TEAMS = Table(
    name="cricket-teams",
    partition="teamId",
)

PATTERNS: tuple[AccessPattern, ...] = ()
