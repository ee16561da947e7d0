"""The table `cricket-fixture-cache`: the provider's latest data of each match."""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key

FIXTURE_CACHE = Table(
    name="cricket-fixture-cache",
    partition="matchId",
    # The index holds only the ids and expiry times of the cached matches, not their data.
    indexes=(
        Index("leagueId-startingAt-index", partition="leagueId", sort="startingAt", projection=("ttl", "fetchedAt")),
    ),
    ttl="ttl",
    item_bytes=4400,
)


def cached(match_id: str) -> Key:
    return Key(match_id)


CACHED = AccessPattern(
    id="FXC-1",
    question="The provider's latest data of a match: its lineups, and the base of the first tick after a takeover",
    table=FIXTURE_CACHE,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    shared_ms=SHARED_MS,
    fields=("Match.lineups",),
    key="matchId = <matchId>",
)
CACHED_MANY = AccessPattern(
    id="FXC-2",
    question="The provider's latest data of many matches, so that a sync writes changed matches only",
    table=FIXTURE_CACHE,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="matchId = <matchId>",
)
CACHED_OF_LEAGUE = AccessPattern(
    id="FXC-3",
    question="The cached matches of a league, soonest first, so that a sync need not read them",
    table=FIXTURE_CACHE,
    operations=("Query",),
    who=Who.INTERNAL,
    index="leagueId-startingAt-index",
    key="leagueId = :partition",
    filter=("#ttl > :now",),
)
ALL_CACHED = AccessPattern(
    id="FXC-4",
    question="All cached matches, once in a sync, to find the matches that the provider no longer lists",
    table=FIXTURE_CACHE,
    operations=("Scan",),
    who=Who.INTERNAL,
    filter=("#ttl > :now",),
)
CACHE = AccessPattern(
    id="FXC-5",
    question="Cache the provider's data of a match",
    table=FIXTURE_CACHE,
    operations=("PutItem",),
    who=Who.INTERNAL,
)
CACHE_MANY = AccessPattern(
    id="FXC-6",
    question="Cache the provider's data of many matches",
    table=FIXTURE_CACHE,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)

PATTERNS = (CACHED, CACHED_MANY, CACHED_OF_LEAGUE, ALL_CACHED, CACHE, CACHE_MANY)
