"""The IAM role of each process: its access patterns, streams and files, from which its policy is derived."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

from datastore.keyspace import PATTERNS, TABLES, earthquake_statistics, earthquakes, gateway
from datastore.keyspace.feeds import follows, home_feeds, leaderboards, notifications, pipeline, posts, search, users
from datastore.keyspace.feeds.table import FEED
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
from datastore.model.access_patterns import AccessPattern, Table, Who, patterns_of


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


def _internal(module: ModuleType) -> Iterator[AccessPattern]:
    """Yield the patterns of a module of the keyspace that no field uses, since one process uses them all."""
    return (pattern for pattern in patterns_of(module) if pattern.who is Who.INTERNAL)


_INGEST = (*_internal(earthquakes), earthquake_statistics.RAISE_BOUND, earthquake_statistics.RAISE_OTHER_BOUND)
# The internal patterns that fields use besides their own, and those of the gateway's periodic tasks, idempotency
# records and request logs.
_INDIRECT = (
    *patterns_of(uploads, persons, faces, livestreams),
    *_INGEST,
    earthquake_statistics.COVERAGE,
    active_matches.STATE_FOR_TICK,
    fixtures.SYNC_SOON,
    fixtures.SYNC_STATE,
    fixtures.SYNC_FACTS,
    display_states.CACHE_STATE,
    devices.REPLACE_DEVICE,
    gateway.CLAIM,
    gateway.TAKE_OVER,
    gateway.STORE_RESPONSE,
    gateway.RECORD,
    gateway.RELEASE,
    gateway.DOCUMENT,
    gateway.PUT_SETTINGS,
    gateway.ALL_SETTINGS,
    gateway.DELETE_SETTINGS,
)
_FEED_HANDLERS = (
    *_internal(users),
    *_internal(posts),
    follows.EDGES,
    follows.RECHECK_EDGES,
    follows.FOLLOW_EXISTS,
    follows.ADOPT_EDGE,
    follows.MARK_MORE_EDGES,
    follows.DELETE_FOLLOWING,
    *_internal(home_feeds),
    *_internal(notifications),
    *_internal(leaderboards),
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
_SEARCH = (*_internal(search), pipeline.PUT_DEAD_LETTER)
_LIVE_MATCHES = (
    active_matches.STATE,
    active_matches.REGISTER,
    *_internal(active_matches),
    fixtures.FIXTURE,
    fixtures.SYNC_FIXTURES,
    fixtures.UPDATE_FIXTURE,
    fixtures.ARCHIVE_FIXTURE,
    *_internal(fixtures),
    *patterns_of(fixture_cache),
    leagues.LEAGUE,
    leagues.ALL_LEAGUES,
    leagues.ACTIVE_LEAGUES,
    leagues.PUT_LEAGUE,
    teams.TEAM,
    teams.ALL_TEAMS,
    teams.SYNC_TEAMS,
    *patterns_of(team_seasons, display_states),
    *_internal(locks),
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
    patterns=(*patterns_of(earthquake_statistics), *_LEASES, pipeline.PUT_DEAD_LETTER),
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
    patterns=(earthquakes.INSERT_EVENT, *_INGEST),
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
    patterns=(gateway.PUT_DOCUMENT, gateway.ALL_DOCUMENTS, gateway.DELETE_DOCUMENT),
)
PHOTOS = IamRole(
    "photos",
    "`photos strip`: removes the metadata from stored files",
    patterns=patterns_of(stripping),
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
