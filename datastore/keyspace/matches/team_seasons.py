"""The table `cricket-team-seasons`: how each team fares in a season of a league."""

from datastore.declarations import AccessPattern, Table

TEAM_SEASONS = Table(
    name="cricket-team-seasons",
    partition="seasonId",
    sort="teamId",
)

PATTERNS: tuple[AccessPattern, ...] = ()
