"""The table `cricket-leagues`: reference data, about thirty leagues."""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Table, Who
from datastore.model.versioning import version_guard

LEAGUES = Table(
    name="cricket-leagues",
    partition="leagueId",
    item_bytes=200,
)

LEAGUE = AccessPattern(
    id="LG-1",
    question="A league by its id",
    table=LEAGUES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=30,
    shared_ms=SHARED_MS,
    fields=("league", "Match.league", "node", "nodes"),
    key="leagueId = <leagueId>",
)
ALL_LEAGUES = AccessPattern(
    id="LG-2",
    question="All leagues, cached for 30 seconds",
    table=LEAGUES,
    operations=("Scan",),
    who=Who.ANY,
    max_age=30,
    fields=("leagues",),
    # The result is cached. A read just after a write must not cache the state before it.
    consistent=True,
)
ACTIVE_LEAGUES = AccessPattern(
    id="LG-3",
    question="The active leagues, cached for 30 seconds",
    table=LEAGUES,
    operations=("Scan",),
    who=Who.ANY,
    max_age=30,
    fields=("leagues",),
    filter=("#active = :active",),
    consistent=True,
)
PUT_LEAGUE = AccessPattern(
    id="LG-4",
    question="Store a league, replacing any with its id",
    table=LEAGUES,
    operations=("PutItem",),
    who=Who.SYSTEM,
    fields=("putLeague",),
    # A put replaces the version too, so the new one must be greater.
    condition="attribute_not_exists(#version) OR attribute_type(#version, :null_type) OR #version < :version",
)
UPDATE_LEAGUE = AccessPattern(
    id="LG-5",
    question="Change fields of a league",
    table=LEAGUES,
    operations=("UpdateItem",),
    who=Who.ADMIN,
    fields=("updateLeague",),
    condition="attribute_exists(leagueId)",
    guard=version_guard(),
)
DELETE_LEAGUE = AccessPattern(
    id="LG-6",
    question="Delete a league",
    table=LEAGUES,
    operations=("DeleteItem",),
    who=Who.ADMIN,
    fields=("deleteLeague",),
)

PATTERNS: tuple[AccessPattern, ...] = (
    LEAGUE,
    ALL_LEAGUES,
    ACTIVE_LEAGUES,
    PUT_LEAGUE,
    UPDATE_LEAGUE,
    DELETE_LEAGUE,
)
