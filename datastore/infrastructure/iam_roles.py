"""Which process uses which access patterns: what its rights in AWS are derived from."""

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


class Files(StrEnum):
    """What is done to files in the bucket of photos. S3 says of a file that is not there only who may list."""

    GET = "s3:GetObject"
    PUT = "s3:PutObject"
    DELETE = "s3:DeleteObject"
    LIST = "s3:ListBucket"


@dataclass(frozen=True, slots=True, eq=False)
class IamRole:
    """A process, or what it is started for: one that does several things has several roles.

    `follows` are tables whose streams it reads, `described` those that it asks DescribeTable for, `made` those that it
    creates. `triggered` are tables whose streams AWS Lambda reads for it. `files` is what it does to those in the
    bucket of photos.
    """

    name: str
    summary: str
    patterns: tuple[AccessPattern, ...] = ()
    follows: tuple[Table, ...] = ()
    triggered: tuple[Table, ...] = ()
    described: tuple[Table, ...] = ()
    made: tuple[Table, ...] = ()
    files: tuple[Files, ...] = ()


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
# What fields come to beside their own patterns, and what a gateway does on its own: it looks after uploads, keeps
# answers and logs.
_BEHIND_FIELDS = (
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
    "`serve`: the API and its subscriptions, with what looks after uploads",
    patterns=tuple(dict.fromkeys((*(one for one in PATTERNS if one.who is not Who.INTERNAL), *_BEHIND_FIELDS))),
    follows=tuple(table for table in TABLES if table.stream),
    described=TABLES,
    files=tuple(Files),
)
PIPELINE_FEED = IamRole(
    "pipeline-feed",
    "`pipeline feed`, or `serve --feed-pipeline`: handles the feed's changes",
    patterns=tuple(dict.fromkeys((*_FEED_HANDLERS, *_LEASES, *_SEARCH))),
    follows=(FEED,),
    described=(FEED,),
)
PIPELINE_SEARCH = IamRole(
    "pipeline-search",
    "`pipeline search` and `search rebuild`: keeps the search index; `pipeline feed` does so too",
    patterns=(*_SEARCH, *_LEASES),
    follows=(FEED,),
    described=(FEED,),
)
PIPELINE_EARTHQUAKES = IamRole(
    "pipeline-earthquakes",
    "`pipeline earthquakes` and `statistics rebuild`, or `serve --feed-pipeline`: counts earthquakes by day",
    patterns=(*earthquake_statistics.PATTERNS, *_LEASES, pipeline.PUT_DEAD_LETTER),
    follows=(earthquakes.EARTHQUAKES,),
    described=(earthquakes.EARTHQUAKES,),
)
LAMBDA_FEED = IamRole(
    "lambda-feed",
    "the same as a Lambda function; AWSLambdaBasicExecutionRole is needed besides, for its log",
    patterns=_FEED_HANDLERS,
    triggered=(FEED,),
)
PIPELINE_MATCHES = IamRole(
    "pipeline-matches",
    "`pipeline cricket` and `replay`, or `serve --matches`: polls live matches",
    patterns=_LIVE_MATCHES,
)
INGEST = IamRole(
    "ingest",
    "`ingest earthquakes`: stores earthquakes; `serve` may do so without this role",
    patterns=(
        earthquakes.INSERT_EVENT,
        *_INGEST,
    ),
)
DEAD_LETTERS = IamRole(
    "dead-letters",
    "`dlq`: shows changes that could not be handled, and handles them again",
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
    "`documents put`, `list` and `delete`: makes documents known",
    patterns=(persisted_documents.PUT_DOCUMENT, persisted_documents.ALL_DOCUMENTS, persisted_documents.DELETE_DOCUMENT),
)
PHOTOS = IamRole(
    "photos",
    "`photos strip`: removes the metadata from files that were stored with it",
    patterns=stripping.PATTERNS,
    files=tuple(Files),
)
TABLES_ROLE = IamRole("tables", "`tables create` and `describe`", described=TABLES, made=TABLES)

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
