"""The table `cricket-team-seasons`: the record of each team in a season of a league."""

from datastore.model.access_patterns import AccessPattern, Table, Who

TEAM_SEASONS = Table(
    name="cricket-team-seasons",
    partition="seasonId",
    sort="teamId",
    item_bytes=230,
)

TEAMS_OF_SEASON = AccessPattern(
    id="TS-1",
    question="The teams of a season and their records, ordered by team id",
    table=TEAM_SEASONS,
    operations=("Query",),
    who=Who.ANY,
    max_age=30,
    fields=("seasonTeams", "Season.teams"),
    key="seasonId = :partition",
)
SYNC_TEAM_SEASONS = AccessPattern(
    id="TS-2",
    question="Store the rows of a season, each replacing the previous row of its team",
    table=TEAM_SEASONS,
    operations=("BatchWriteItem",),
    who=Who.SYSTEM,
    fields=("syncTeamSeasons",),
)

PATTERNS: tuple[AccessPattern, ...] = (TEAMS_OF_SEASON, SYNC_TEAM_SEASONS)
