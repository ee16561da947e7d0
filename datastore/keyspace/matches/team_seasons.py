"""The table `cricket-team-seasons`: the record of each team in a season of a league."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import BATCH_WRITE, AccessPattern, Table, Who

TEAM_SEASONS = Table(name="cricket-team-seasons", partition="seasonId", sort="teamId")


@item_key(TEAM_SEASONS)
def team_season(season_id: str, team_id: str) -> KeyParts:
    return (season_id,), (team_id,)


TEAMS_OF_SEASON = team_season.query(
    "TS-1",
    "The teams of a season and their records, ordered by team id",
    Who.ANY,
    ("teamSeasons", "Season.teamSeasons"),
    max_age=30,
)
TEAM_SEASON = team_season.read("TS-N1", "The record of a team in a season", Who.ANY, ("node", "nodes"), max_age=30)
SYNC_TEAM_SEASONS = AccessPattern(
    "TS-2",
    "Store the rows of a season, each replacing the previous row of its team",
    TEAM_SEASONS,
    BATCH_WRITE,
    Who.SYSTEM,
    ("syncTeamSeasons",),
)
