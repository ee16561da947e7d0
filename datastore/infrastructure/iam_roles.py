"""The IAM role of each process: its access patterns, streams and files, from which its policy is derived."""

from dataclasses import dataclass
from enum import StrEnum

from datastore.keyspace import PATTERNS, TABLES, earthquake_statistics, earthquakes
from datastore.keyspace.feeds import follows, home_feeds, leaderboards, notifications, pipeline, posts, search, users
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.gateway import idempotency_records, persisted_documents
from datastore.keyspace.matches import (
    active_matches,
    devices,
    display_states,
    fixture_cache,
    fixtures,
    leagues,
    live_activities,
    locks,
    match_follows,
    team_seasons,
    teams,
)
from datastore.keyspace.photos import faces, livestreams, persons, stripping, uploads
from datastore.model.access_patterns import AccessPattern, Table, Who


class FileAction(StrEnum):
    """An action on the photo bucket. S3 reports a missing file as missing only to a role that may list."""

    GET = "s3:GetObject"
    PUT = "s3:PutObject"
    DELETE = "s3:DeleteObject"
    LIST = "s3:ListBucket"


@dataclass(frozen=True, slots=True, eq=False)
class IamRole:
    """A role of a process. A process with several tasks has several roles."""

    name: str
    summary: str
    patterns: tuple[AccessPattern, ...] = ()
    #: The tables whose streams the process reads.
    streams: tuple[Table, ...] = ()
    #: The tables whose streams AWS Lambda reads for the process.
    triggers: tuple[Table, ...] = ()
    #: The tables for which the process calls DescribeTable.
    described: tuple[Table, ...] = ()
    #: The tables that the process creates.
    created: tuple[Table, ...] = ()
    #: The actions of the process on the photo bucket.
    files: tuple[FileAction, ...] = ()


_INGEST = (
    earthquakes.STORED_IDS,
    earthquakes.INSERT_WITH_ALIASES,
    earthquakes.ADD_ALIAS,
    earthquakes.NEWEST,
    earthquakes.REVISE,
    earthquakes.INGEST_STATE,
    earthquakes.WRITE_LOG,
    earthquake_statistics.RAISE_BOUND,
    earthquake_statistics.RAISE_OTHER_BOUND,
)
# The internal patterns that fields use besides their own, and those of the gateway's periodic tasks, idempotency
# records and request logs.
_INDIRECT = (
    *uploads.PATTERNS,
    *persons.PATTERNS,
    *faces.PATTERNS,
    *livestreams.PATTERNS,
    *_INGEST,
    earthquake_statistics.COVERAGE,
    active_matches.STATE_FOR_TICK,
    fixtures.SYNC_SOON,
    fixtures.SYNC_STATE,
    fixtures.SYNC_FACTS,
    display_states.CACHE_STATE,
    devices.REPLACE_DEVICE,
    *idempotency_records.PATTERNS,
    persisted_documents.DOCUMENT,
)
_FEED_HANDLERS = (
    users.AUTHOR,
    users.START_MERGING,
    users.COMPLETE_MERGING,
    posts.POST_EXISTS,
    posts.POST_OF_ITEMS,
    posts.POSTS_SINCE,
    posts.ITEMS_OF_DELETED_POST,
    posts.DELETE_ITEMS_OF_POST,
    follows.EDGES,
    follows.RECHECK_EDGES,
    follows.FOLLOW_EXISTS,
    follows.ADOPT_EDGE,
    follows.MARK_MORE_EDGES,
    follows.DELETE_FOLLOWING,
    home_feeds.FAN_OUT,
    home_feeds.ENTRIES_BY_AUTHOR,
    notifications.RECIPIENT,
    notifications.NOTIFICATIONS_OF_POST,
    notifications.RETRACT,
    leaderboards.COUNTERS,
    leaderboards.ALL_COUNTERS,
    leaderboards.PUT_BOARD,
    pipeline.APPLY,
    pipeline.PUT_DEAD_LETTER,
    pipeline.PROGRESS,
    pipeline.SAVE_PROGRESS,
)
_LEASES = (
    pipeline.LEASES,
    pipeline.TAKE_LEASE,
    pipeline.RENEW_LEASE,
    pipeline.CHECKPOINT,
    pipeline.END_SHARD,
    pipeline.RELEASE_LEASE,
)
_SEARCH = (search.INDEXED_POST, search.SCAN_INDEXED, pipeline.PUT_DEAD_LETTER)
_LIVE_MATCHES = (
    active_matches.STATE,
    active_matches.STATE_FOR_TICK,
    active_matches.RECONCILE,
    active_matches.ADD_TO_LIVE_INDEX,
    active_matches.REMOVE_FROM_LIVE_INDEX,
    active_matches.REGISTER,
    active_matches.COMMIT,
    active_matches.RECORD_TICK,
    active_matches.CLAIM,
    active_matches.ADOPT,
    active_matches.SET_IDLE,
    active_matches.REOPEN,
    active_matches.RELEASE,
    active_matches.FINISH,
    active_matches.COOLDOWNS,
    fixtures.FIXTURE,
    fixtures.FIXTURE_FOR_TICK,
    fixtures.SYNC_FIXTURES,
    fixtures.SYNC_SOON,
    fixtures.SYNC_STATE,
    fixtures.SYNC_FACTS,
    fixtures.UPDATE_FIXTURE,
    fixtures.WRITE_LIVE,
    fixtures.ARCHIVE_FIXTURE,
    *fixture_cache.PATTERNS,
    leagues.LEAGUE,
    leagues.ALL_LEAGUES,
    leagues.ACTIVE_LEAGUES,
    leagues.PUT_LEAGUE,
    teams.TEAM,
    teams.ALL_TEAMS,
    teams.SYNC_TEAMS,
    *team_seasons.PATTERNS,
    *display_states.PATTERNS,
    locks.ACQUIRE,
    locks.EXTEND,
    locks.RELEASE,
    devices.DEVICE_OF_USER,
    devices.REMOVE_PUSH_TO_START,
    live_activities.ACTIVE_OF_MATCH,
    live_activities.SUSPEND_REJECTED,
    live_activities.END_ACTIVITY,
    match_follows.FOLLOWERS,
    match_follows.REMOVE_FOLLOWS,
)

GATEWAY = IamRole(
    "gateway",
    "`serve`: the API, its subscriptions and the expiry of uploads",
    patterns=tuple(dict.fromkeys((*(each for each in PATTERNS if each.who is not Who.INTERNAL), *_INDIRECT))),
    streams=tuple(table for table in TABLES if table.stream),
    described=TABLES,
    files=tuple(FileAction),
)
PIPELINE_FEED = IamRole(
    "pipeline-feed",
    "`pipeline feed`, or `serve --feed-pipeline`: processes the feed's changes",
    patterns=tuple(dict.fromkeys((*_FEED_HANDLERS, *_LEASES, *_SEARCH))),
    streams=(FEED,),
    described=(FEED,),
)
PIPELINE_SEARCH = IamRole(
    "pipeline-search",
    "`pipeline search` and `search rebuild`: updates the search index, as `pipeline feed` does too",
    patterns=(*_SEARCH, *_LEASES),
    streams=(FEED,),
    described=(FEED,),
)
PIPELINE_EARTHQUAKES = IamRole(
    "pipeline-earthquakes",
    "`pipeline earthquakes` and `statistics rebuild`, or `serve --feed-pipeline`: counts earthquakes by day",
    patterns=(*earthquake_statistics.PATTERNS, *_LEASES, pipeline.PUT_DEAD_LETTER),
    streams=(earthquakes.EARTHQUAKES,),
    described=(earthquakes.EARTHQUAKES,),
)
LAMBDA_FEED = IamRole(
    "lambda-feed",
    "`pipeline feed` as a Lambda function, which also needs AWSLambdaBasicExecutionRole for its log",
    patterns=_FEED_HANDLERS,
    triggers=(FEED,),
)
PIPELINE_MATCHES = IamRole(
    "pipeline-matches",
    "`pipeline cricket` and `replay`, or `serve --matches`: polls live matches",
    patterns=_LIVE_MATCHES,
)
INGEST = IamRole(
    "ingest",
    "`ingest earthquakes`: stores earthquakes, which `serve` can do without this role",
    patterns=(
        earthquakes.INSERT_EVENT,
        *_INGEST,
    ),
)
DEAD_LETTERS = IamRole(
    "dead-letters",
    "`dlq`: lists dead letters and redrives them",
    patterns=(*_FEED_HANDLERS, search.INDEXED_POST, pipeline.DEAD_LETTERS, pipeline.DELETE_DEAD_LETTER),
)
FOLLOWS = IamRole(
    "follows",
    "`follows repair`: completes follows that other programs stored",
    patterns=(
        follows.SCAN_EDGES,
        follows.FOLLOW_EXISTS,
        follows.EDGES,
        follows.ADOPT_EDGE,
        follows.MARK_MORE_EDGES,
        follows.DELETE_FOLLOWING,
    ),
)
DOCUMENTS = IamRole(
    "documents",
    "`documents put`, `list` and `delete`: manages persisted documents",
    patterns=(persisted_documents.PUT_DOCUMENT, persisted_documents.ALL_DOCUMENTS, persisted_documents.DELETE_DOCUMENT),
)
PHOTOS = IamRole(
    "photos",
    "`photos strip`: removes the metadata from stored files",
    patterns=stripping.PATTERNS,
    files=tuple(FileAction),
)
TABLES_ROLE = IamRole("tables", "`tables create` and `describe`", described=TABLES, created=TABLES)

ROLES = (
    GATEWAY,
    PIPELINE_FEED,
    PIPELINE_EARTHQUAKES,
    PIPELINE_SEARCH,
    LAMBDA_FEED,
    PIPELINE_MATCHES,
    INGEST,
    DEAD_LETTERS,
    FOLLOWS,
    DOCUMENTS,
    PHOTOS,
    TABLES_ROLE,
)
