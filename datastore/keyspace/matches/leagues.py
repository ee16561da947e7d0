"""The table `cricket-leagues`: reference data, some thirty leagues."""

from datastore.declarations import AccessPattern, Table

LEAGUES = Table(
    name="cricket-leagues",
    partition="leagueId",
)

PATTERNS: tuple[AccessPattern, ...] = ()
