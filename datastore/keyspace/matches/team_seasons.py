"""The table `cricket-team-seasons`: how each team fares in a season of a league."""

from datastore.model.access_patterns import AccessPattern, Table, Who

TEAM_SEASONS = Table(
    name="cricket-team-seasons",
    partition="seasonId",
    sort="teamId",
    item_bytes=230,
)

TEAMS_OF_SEASON = AccessPattern(
    id="TS-1",
    question="The teams of a season and how they fare, by their ids",
    table=TEAM_SEASONS,
    operations=("Query",),
    who=Who.ANY,
    max_age=30,
    fields=("seasonTeams", "Season.teams"),
    key="seasonId = :partition",
)
SYNC_TEAM_SEASONS = AccessPattern(
    id="TS-2",
    question="Put the rows of a season, each in place of the team's last one",
    table=TEAM_SEASONS,
    operations=("BatchWriteItem",),
    who=Who.SYSTEM,
    fields=("syncTeamSeasons",),
)

PATTERNS: tuple[AccessPattern, ...] = (TEAMS_OF_SEASON, SYNC_TEAM_SEASONS)
