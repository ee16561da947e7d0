"""The table `cricket-teams`: reference data, at most about a hundred teams."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import BATCH_WRITE, SHARED_MS, AccessPattern, Table, Who
from datastore.model.versioning import version_guard

TEAMS = Table(name="cricket-teams", partition="teamId")


@item_key(TEAMS)
def team(team_id: str) -> KeyParts:
    return (team_id,), ()


TEAM = team.read(
    "TM-1",
    "A team by its id",
    Who.ANY,
    ("team", "Match.homeTeam", "Match.awayTeam", "TeamSeason.team", "node", "nodes"),
    max_age=30,
    shared_ms=SHARED_MS,
)
ALL_TEAMS = team.scan(
    "TM-2",
    "All teams, cached for 30 seconds",
    Who.ANY,
    ("teams",),
    max_age=30,
    # The result is cached. A read just after a write must not cache the state before it.
    consistent=True,
)
SYNC_TEAMS = AccessPattern(
    "TM-3", "Store teams, each replacing any with its id", TEAMS, BATCH_WRITE, Who.SYSTEM, ("syncTeams",)
)
UPDATE_TEAM = team.update(
    "TM-4",
    "Change fields of a team",
    Who.ADMIN,
    ("updateTeam",),
    condition="attribute_exists(teamId)",
    guard=version_guard(),
)
