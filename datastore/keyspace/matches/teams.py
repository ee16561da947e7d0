"""The table `cricket-teams`: reference data, at most about a hundred teams."""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Table, Who
from datastore.model.versioning import version_guard

TEAMS = Table(
    name="cricket-teams",
    partition="teamId",
    item_bytes=110,
)

TEAM = AccessPattern(
    id="TM-1",
    question="A team by its id",
    table=TEAMS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=30,
    shared_ms=SHARED_MS,
    fields=("team", "Match.homeTeam", "Match.awayTeam", "TeamSeason.team", "node", "nodes"),
    key="teamId = <teamId>",
)
ALL_TEAMS = AccessPattern(
    id="TM-2",
    question="All teams, cached for 30 seconds",
    table=TEAMS,
    operations=("Scan",),
    who=Who.ANY,
    max_age=30,
    fields=("teams",),
    # The result is cached. A read just after a write must not cache the state before it.
    consistent=True,
)
SYNC_TEAMS = AccessPattern(
    id="TM-3",
    question="Store teams, each replacing any with its id",
    table=TEAMS,
    operations=("BatchWriteItem",),
    who=Who.SYSTEM,
    fields=("syncTeams",),
)
UPDATE_TEAM = AccessPattern(
    id="TM-4",
    question="Change fields of a team",
    table=TEAMS,
    operations=("UpdateItem",),
    who=Who.ADMIN,
    fields=("updateTeam",),
    condition="attribute_exists(teamId)",
    guard=version_guard(),
)

PATTERNS: tuple[AccessPattern, ...] = (TEAM, ALL_TEAMS, SYNC_TEAMS, UPDATE_TEAM)
