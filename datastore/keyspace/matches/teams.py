"""The table `cricket-teams`: reference data, a hundred teams or fewer."""

from datastore.model.access_patterns import CROWD_MS, AccessPattern, Table, Who
from datastore.model.versioning import guard

TEAMS = Table(
    name="cricket-teams",
    partition="teamId",
    item_bytes=110,
)

TEAM = AccessPattern(
    id="TM-1",
    question="One team by its id",
    table=TEAMS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=30,
    shared_ms=CROWD_MS,
    fields=("team", "Match.homeTeam", "Match.awayTeam", "TeamSeason.team", "node", "nodes"),
    key="teamId = <teamId>",
)
ALL_TEAMS = AccessPattern(
    id="TM-2",
    question="All teams, remembered for 30 seconds",
    table=TEAMS,
    operations=("Scan",),
    who=Who.ANY,
    max_age=30,
    fields=("teams",),
    # What is read is remembered, and a read just after a write must not remember what was there before.
    consistent=True,
)
SYNC_TEAMS = AccessPattern(
    id="TM-3",
    question="Put teams, each in place of the one with its id",
    table=TEAMS,
    operations=("BatchWriteItem",),
    who=Who.SYSTEM,
    fields=("syncTeams",),
)
UPDATE_TEAM = AccessPattern(
    id="TM-4",
    question="Change some fields of a team that exists",
    table=TEAMS,
    operations=("UpdateItem",),
    who=Who.ADMIN,
    fields=("updateTeam",),
    condition="attribute_exists(teamId)",
    guard=guard(),
)

PATTERNS: tuple[AccessPattern, ...] = (TEAM, ALL_TEAMS, SYNC_TEAMS, UPDATE_TEAM)
