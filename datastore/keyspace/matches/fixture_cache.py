"""The table `cricket-fixture-cache`: the provider's latest data of each match."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import BATCH_WRITE, QUERY, SHARED_MS, AccessPattern, Index, Table, Who

FIXTURE_CACHE = Table(
    name="cricket-fixture-cache",
    partition="matchId",
    # The index holds only the ids and expiry times of the cached matches, not their data.
    indexes=(
        Index("leagueId-startingAt-index", partition="leagueId", sort="startingAt", projection=("ttl", "fetchedAt")),
    ),
    ttl="ttl",
)


@item_key(FIXTURE_CACHE)
def cached(match_id: str) -> KeyParts:
    return (match_id,), ()


CACHED = cached.read(
    "FXC-1",
    "The provider's latest data of a match: its lineups, and the base of the first tick after a takeover",
    Who.ANY,
    ("Match.lineups",),
    max_age=5,
    shared_ms=SHARED_MS,
)
CACHED_MANY = cached.read(
    "FXC-2", "The provider's latest data of many matches, so that a sync writes changed matches only"
)
CACHED_OF_LEAGUE = AccessPattern(
    "FXC-3",
    "The cached matches of a league, soonest first, so that a sync need not read them",
    FIXTURE_CACHE,
    QUERY,
    index="leagueId-startingAt-index",
    key="leagueId = :partition",
)
ALL_CACHED = cached.scan(
    "FXC-4", "All cached matches, once in a sync, to find the matches that the provider no longer lists"
)
CACHE = cached.put("FXC-5", "Cache the provider's data of a match")
CACHE_MANY = AccessPattern("FXC-6", "Cache the provider's data of many matches", FIXTURE_CACHE, BATCH_WRITE)
