"""The table `cricket-fixtures`: all matches."""

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key
from datastore.model.versioning import REVISION, increment_clause, version_guard

# The attributes that lists show. DynamoDB allows 20, so derivable ones are absent: the phase follows from the status,
# and a follow-on from the scores. Scorecards are read from the table if they are selected.
SUMMARY = (
    "leagueId",
    "homeTeamId",
    "awayTeamId",
    "seasonId",
    "status",
    "round",
    "format",
    "note",
    "venue",
    "toss",
    "scheduledOvers",
    "ballsPerOver",
    "target",
    "result",
    "playerOfMatch",
    "scores",
    "version",
    "updatedAt",
    "liveUpdatedAt",
    "archivedAt",
)

# No operator set or cleared a field since the fixture was read. The attribute is a set, and a set is never empty.
OPERATOR_GUARD = (
    "operatorFields = :operator",
    "(attribute_not_exists(operatorFields) OR attribute_type(operatorFields, :absent))",
)

FIXTURES = Table(
    name="cricket-fixtures",
    partition="matchId",
    stream="NEW_AND_OLD_IMAGES",
    indexes=(Index("leagueCode-startTime-index", partition="leagueCode", sort="startTime", projection=SUMMARY),),
    item_bytes=4500,
)


def fixture(match_id: str) -> Key:
    return Key(match_id)


FIXTURE = AccessPattern(
    id="FIX-1",
    question="A match with its scorecards",
    table=FIXTURES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    shared_ms=SHARED_MS,
    fields=(
        "match",
        "Match.scorecards",
        "MatchUpdate.match",
        "LiveMatch.match",
        "MatchFollow.match",
        "LiveActivity.match",
        "node",
        "nodes",
    ),
    key="matchId = <matchId>",
)
FIXTURE_FOR_TICK = AccessPattern(
    id="FIX-1",
    question="The fields of a polled match that an operator set",
    table=FIXTURES,
    operations=("GetItem",),
    who=Who.INTERNAL,
    key="matchId = <matchId>",
)
MATCHES = AccessPattern(
    id="FIX-2",
    question="Up to 100 matches by id",
    table=FIXTURES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    fields=("matches",),
    key="matchId = <matchId>",
)
BY_LEAGUE = AccessPattern(
    id="FIX-3",
    question="The matches of a league that start within a time window, soonest first",
    table=FIXTURES,
    operations=("Query",),
    who=Who.ANY,
    max_age=5,
    fields=("matchesByLeague",),
    index="leagueCode-startTime-index",
    key="leagueCode = :partition AND startTime BETWEEN :from AND :to",
)
SYNC_FIXTURES = AccessPattern(
    id="FIX-4",
    question="Store up to 100 fixtures; a match that is being played keeps its live part",
    table=FIXTURES,
    # BatchWriteItem replaces whole items without a condition. Fixtures that an operator or a poller may change
    # concurrently, which are stored ones and those played soon, are updated instead.
    operations=("GetItem", "BatchGetItem", "BatchWriteItem", "UpdateItem"),
    who=Who.SYSTEM,
    fields=("syncFixtures",),
    condition="attribute_exists(matchId)",
    consistent=True,
)
SYNC_SOON = AccessPattern(
    id="FIX-4",
    question="Store a fixture that is played soon, unless its play has started",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(version) OR version = :zero",
    guard=OPERATOR_GUARD,
)
SYNC_STATE = AccessPattern(
    id="FIX-4",
    question="Store the state of a match that no poller polls, unless it changed since it was read",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="version = :seen AND (attribute_not_exists(fence) OR fence = :held)",
    guard=OPERATOR_GUARD,
)
SYNC_FACTS = AccessPattern(
    id="FIX-4",
    question="Store only the fields of a match that are known before its first ball",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId)",
    guard=OPERATOR_GUARD,
)
UPDATE_FIXTURE = AccessPattern(
    id="FIX-5",
    question="Change fields of a fixture",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("updateFixture",),
    condition="attribute_exists(matchId)",
    guard=version_guard(REVISION),
)
WRITE_LIVE = AccessPattern(
    id="FIX-5",
    question="Store the state of a match, unless a later holder of its lock has written",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId) AND (attribute_not_exists(fence) OR fence <= :fence)",
    guard=OPERATOR_GUARD,
)
ARCHIVE_FIXTURE = AccessPattern(
    id="FIX-6",
    question="Archive a match that is no longer in the live scores",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("archiveFixture",),
    condition="attribute_exists(matchId)",
    update=f"SET archivedAt = :now REMOVE liveUpdatedAt {increment_clause(REVISION)}",
)

PATTERNS = (
    FIXTURE,
    FIXTURE_FOR_TICK,
    MATCHES,
    BY_LEAGUE,
    SYNC_FIXTURES,
    SYNC_SOON,
    SYNC_STATE,
    SYNC_FACTS,
    UPDATE_FIXTURE,
    WRITE_LIVE,
    ARCHIVE_FIXTURE,
)
