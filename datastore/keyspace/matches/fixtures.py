"""The table `cricket-fixtures`: all matches."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import BATCH_WRITE, GET, QUERY, SHARED_MS, UPDATE, AccessPattern, Index, Table, Who
from datastore.model.versioning import REVISION, increment_clause, version_guard

# The attributes that lists show. DynamoDB allows 20, so derivable ones are absent: the phase follows from the status,
# and a follow-on from the scores. Scorecards are read from the table if they are selected.
SUMMARY = (
    *("leagueId", "homeTeamId", "awayTeamId", "seasonId", "status", "round", "format", "note"),
    *("venue", "toss", "scheduledOvers", "ballsPerOver", "target", "result", "playerOfMatch"),
    *("scores", "version", "updatedAt", "liveUpdatedAt", "archivedAt"),
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
)


@item_key(FIXTURES)
def fixture(match_id: str) -> KeyParts:
    return (match_id,), ()


FIXTURE = fixture.read(
    "FIX-1",
    "A match with its scorecards",
    Who.ANY,
    (
        "match",
        "Match.scorecards",
        "Match.revision",
        "Match.operatorFields",
        "MatchUpdate.match",
        "LiveMatch.match",
        "MatchFollow.match",
        "LiveActivity.match",
        "node",
        "nodes",
    ),
    max_age=5,
    shared_ms=SHARED_MS,
)
FIXTURE_FOR_TICK = fixture.read("FIX-1", "The fields of a polled match that an operator set")
MATCHES = fixture.read("FIX-2", "Up to 100 matches by id", Who.ANY, ("matches",), max_age=5)
BY_LEAGUE = AccessPattern(
    "FIX-3",
    "The matches of a league that start within a time window, soonest first",
    FIXTURES,
    QUERY,
    Who.ANY,
    ("matchesByLeague", "League.matches"),
    max_age=5,
    index="leagueCode-startTime-index",
    key="leagueCode = :partition AND startTime BETWEEN :from AND :to",
)
SYNC_FIXTURES = AccessPattern(
    "FIX-4",
    "Store up to 100 fixtures; a match that is being played keeps its live part",
    FIXTURES,
    # BatchWriteItem replaces whole items without a condition. Fixtures that an operator or a poller may change
    # concurrently, which are stored ones and those played soon, are updated instead.
    GET + BATCH_WRITE + UPDATE,
    Who.SYSTEM,
    ("syncFixtures",),
    condition="attribute_exists(matchId)",
    consistent=True,
)
SYNC_SOON = fixture.update(
    "FIX-4",
    "Store a fixture that is played soon, unless its play has started",
    condition="attribute_not_exists(version) OR version = :zero",
    guard=OPERATOR_GUARD,
)
SYNC_STATE = fixture.update(
    "FIX-4",
    "Store the state of a match that no poller polls, unless it changed since it was read",
    condition="version = :seen AND (attribute_not_exists(fence) OR fence = :held)",
    guard=OPERATOR_GUARD,
)
SYNC_FACTS = fixture.update(
    "FIX-4",
    "Store only the fields of a match that are known before its first ball",
    condition="attribute_exists(matchId)",
    guard=OPERATOR_GUARD,
)
UPDATE_FIXTURE = fixture.update(
    "FIX-5",
    "Change fields of a fixture",
    Who.SYSTEM,
    ("updateFixture",),
    condition="attribute_exists(matchId)",
    guard=version_guard(REVISION),
)
WRITE_LIVE = fixture.update(
    "FIX-5",
    "Store the state of a match, unless a later holder of its lock has written",
    condition="attribute_exists(matchId) AND (attribute_not_exists(fence) OR fence <= :fence)",
    guard=OPERATOR_GUARD,
)
ARCHIVE_FIXTURE = fixture.update(
    "FIX-6",
    "Archive a match that is no longer in the live scores",
    Who.SYSTEM,
    ("archiveFixture",),
    condition="attribute_exists(matchId)",
    update=f"SET archivedAt = :now REMOVE liveUpdatedAt {increment_clause(REVISION)}",
)
