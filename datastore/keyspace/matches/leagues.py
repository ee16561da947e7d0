"""The table `cricket-leagues`: reference data, about thirty leagues."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import SHARED_MS, Table, Who
from datastore.model.versioning import version_guard

LEAGUES = Table(name="cricket-leagues", partition="leagueId")


@item_key(LEAGUES)
def league(league_id: str) -> KeyParts:
    return (league_id,), ()


LEAGUE = league.read(
    "LG-1", "A league by its id", Who.ANY, ("league", "Match.league", "node", "nodes"), max_age=30, shared_ms=SHARED_MS
)
ALL_LEAGUES = league.scan(
    "LG-2",
    "All leagues, cached for 30 seconds",
    Who.ANY,
    ("leagues",),
    max_age=30,
    # The result is cached. A read just after a write must not cache the state before it.
    consistent=True,
)
ACTIVE_LEAGUES = league.scan(
    "LG-3",
    "The active leagues, cached for 30 seconds",
    Who.ANY,
    ("leagues",),
    max_age=30,
    filter=("#active = :active",),
    consistent=True,
)
PUT_LEAGUE = league.put(
    "LG-4",
    "Store a league, replacing any with its id",
    Who.SYSTEM,
    ("putLeague",),
    # A put replaces the version too, so the new one must be greater.
    condition="attribute_not_exists(#version) OR attribute_type(#version, :null_type) OR #version < :version",
)
UPDATE_LEAGUE = league.update(
    "LG-5",
    "Change fields of a league",
    Who.ADMIN,
    ("updateLeague",),
    condition="attribute_exists(leagueId)",
    guard=version_guard(),
)
DELETE_LEAGUE = league.delete("LG-6", "Delete a league", Who.ADMIN, ("deleteLeague",))
