"""The table `cricket-fixtures`: every match the system knows about."""

from datastore.model.access_patterns import CROWD_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key
from datastore.model.versioning import REVISION, counted, guard

# What lists show: at most 20 attributes, so without those that others tell. The phase is that of the status, and a
# follow-on shows in the scores. Scorecards stay in the table: they are read when they are selected.
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

# An operator set and cleared no field since the fixture was read: the attribute is a set, and a set is never empty.
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
    question="One match with its scorecards",
    table=FIXTURES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    shared_ms=CROWD_MS,
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
TICK = AccessPattern(
    id="FIX-1",
    question="The fields of a polled match that an operator set",
    table=FIXTURES,
    operations=("GetItem",),
    who=Who.INTERNAL,
    key="matchId = <matchId>",
)
MATCHES = AccessPattern(
    id="FIX-2",
    question="Up to 100 matches by their ids",
    table=FIXTURES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    fields=("matches",),
    key="matchId = <matchId>",
)
BY_LEAGUE = AccessPattern(
    id="FIX-3",
    question="The matches of a league that start within a time, soonest first",
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
    question="Store up to 100 fixtures; of those that are played the live part stays",
    table=FIXTURES,
    # A put replaces the whole item and takes no condition: a stored fixture is updated instead, for an operator may
    # change it meanwhile, and so is a new one that may be played soon.
    operations=("GetItem", "BatchGetItem", "BatchWriteItem", "UpdateItem"),
    who=Who.SYSTEM,
    fields=("syncFixtures",),
    condition="attribute_exists(matchId)",
    consistent=True,
)
SYNC_SOON = AccessPattern(
    id="FIX-4",
    question="Store a fixture that may be played at any moment, unless it was played meanwhile",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(version) OR version = :zero",
    guard=OPERATOR_GUARD,
)
SYNC_STATE = AccessPattern(
    id="FIX-4",
    question="Write how a match stands that nobody polls, unless somebody has written meanwhile",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="version = :seen AND (attribute_not_exists(fence) OR fence = :held)",
    guard=OPERATOR_GUARD,
)
SYNC_FACTS = AccessPattern(
    id="FIX-4",
    question="Write what is known of a match before a ball is bowled, and nothing else",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId)",
    guard=OPERATOR_GUARD,
)
UPDATE_FIXTURE = AccessPattern(
    id="FIX-5",
    question="Change fields of a fixture that is there",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("updateFixture",),
    condition="attribute_exists(matchId)",
    guard=guard(REVISION),
)
WRITE_LIVE = AccessPattern(
    id="FIX-5",
    question="Write how a match stands, unless a later holder of its lock has written",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(matchId) AND (attribute_not_exists(fence) OR fence <= :fence)",
    guard=OPERATOR_GUARD,
)
ARCHIVE_FIXTURE = AccessPattern(
    id="FIX-6",
    question="Mark a match that has left the live scores",
    table=FIXTURES,
    operations=("UpdateItem",),
    who=Who.SYSTEM,
    fields=("archiveFixture",),
    condition="attribute_exists(matchId)",
    update=f"SET archivedAt = :now REMOVE liveUpdatedAt {counted(REVISION)}",
)

PATTERNS = (
    FIXTURE,
    TICK,
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
