"""The table `earthquake-events`: seismic events by id and by day, and the request log."""

from datetime import datetime

from datastore.model.access_patterns import SHARED_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key, join
from datastore.model.timestamps import day_bucket, epoch_ms
from datastore.queues import OverflowPolicy

EARTHQUAKES = Table(
    name="earthquake-events",
    partition="pk",
    sort="sk",
    indexes=(Index("TimeOrderedIndex", partition="gsi1pk", sort="gsi1sk", sort_type="N"),),
    ttl="ttl",
    stream="NEW_AND_OLD_IMAGES",
    item_bytes=300,
)


def event(event_id: str) -> Key:
    return Key(join("EVENT", event_id), "EVENT")


def revision(event_id: str, updated_ms: int) -> Key:
    """Return the key of a report that USGS published at that time (epoch milliseconds, 0 or more)."""
    return Key(join("EVENT", event_id), join("REVISION", f"{updated_ms:015d}"))


def latest(event_id: str) -> Key:
    """Return the key of the copy of the newest revision."""
    return Key(join("EVENT", event_id), "LATEST")


def day(bucket: str) -> str:
    """Return the index partition of a day (YYYYMMDD)."""
    return join("DAY", bucket)


def log_day(bucket: str) -> str:
    return join("LOG", bucket)


def log(timestamp: datetime, request_id: str) -> Key:
    return Key(log_day(day_bucket(timestamp)), join(str(epoch_ms(timestamp)), request_id))


def ingest_state(source: str) -> Key:
    """Return the key of the state of a source's last ingest: HTTP validators, and the hash of the feed."""
    return Key(join("INGEST", source), "STATE")


INSERT_EVENT = AccessPattern(
    id="QUAKE-1",
    question="Fetch a USGS feed and insert each event once",
    table=EARTHQUAKES,
    # The bound of the day is raised first (QUAKE-P1).
    operations=("GetItem", "PutItem", "UpdateItem"),
    who=Who.SYSTEM,
    fields=("ingestEarthquakes",),
    condition="attribute_not_exists(pk)",
)
STORED_IDS = AccessPattern(
    id="QUAKE-1",
    question="Which of an event's ids are stored, for an event that has several",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="pk = EVENT#<eventId>, sk = EVENT",
    consistent=True,
)
INSERT_WITH_ALIASES = AccessPattern(
    id="QUAKE-1",
    question="Insert an event that has several ids, with an alias for each further id",
    table=EARTHQUAKES,
    operations=("TransactWriteItems",),
    transacts=("Put",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(pk)",
)
ADD_ALIAS = AccessPattern(
    id="QUAKE-1",
    question="Add an id that USGS gave an event after it was stored",
    table=EARTHQUAKES,
    operations=("PutItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(pk)",
)
NEWEST = AccessPattern(
    id="QUAKE-1",
    question="The newest report of a stored event, for comparison with another report",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="pk = EVENT#<eventId>, sk = LATEST or EVENT",
    consistent=True,
)
REVISE = AccessPattern(
    id="QUAKE-1",
    question="Add a newer report of a stored event",
    table=EARTHQUAKES,
    operations=("TransactWriteItems",),
    transacts=("Put",),
    who=Who.INTERNAL,
)
INGEST_STATE = AccessPattern(
    id="QUAKE-1",
    question="The state of a feed's last ingest, so that an unchanged feed writes nothing",
    table=EARTHQUAKES,
    operations=("GetItem", "PutItem"),
    who=Who.INTERNAL,
)
EVENTS_BY_DAY = AccessPattern(
    id="QUAKE-2",
    question="The earthquakes in a time window from a magnitude up, newest first, over any number of days",
    table=EARTHQUAKES,
    operations=("Query",),
    who=Who.ANY,
    max_age=10,
    fields=("earthquakes",),
    index="TimeOrderedIndex",
    projection="SELECTED",
    key="gsi1pk = :partition AND gsi1sk BETWEEN :start AND :end",
    # An event without a type is an earthquake: document 003 lists items without one.
    filter=(
        "mag >= :minMagnitude",
        "(attribute_not_exists(#type) OR #type = :earthquake)",
        "attribute_exists(#type) AND #type <> :noEarthquake",
    ),
    descending=True,
)
WRITE_LOG = AccessPattern(
    id="QUAKE-3",
    question="Log an ingest or a query, for seven days",
    table=EARTHQUAKES,
    operations=("PutItem",),
    who=Who.INTERNAL,
)
LOGS_OF_DAY = AccessPattern(
    id="QUAKE-4",
    question="The request log of a day, newest first",
    table=EARTHQUAKES,
    operations=("Query",),
    who=Who.ADMIN,
    fields=("requestLogs",),
    key="pk = :partition",
    filter=("#ttl > :now", "logType = :type"),
    descending=True,
)
EVENT = AccessPattern(
    id="QUAKE-5",
    question="An earthquake by its USGS id",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=86_400,
    shared_ms=SHARED_MS,
    fields=("earthquake", "node", "nodes"),
    key="pk = EVENT#<eventId>, sk = EVENT",
)
LATEST = AccessPattern(
    id="QUAKE-N1",
    question="The newest report of an earthquake that USGS revised",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=10,
    shared_ms=SHARED_MS,
    fields=("Earthquake.latest",),
    key="pk = EVENT#<eventId>, sk = LATEST",
)
REVISIONS = AccessPattern(
    id="QUAKE-N2",
    question="The revisions of an earthquake, newest first",
    table=EARTHQUAKES,
    operations=("Query",),
    who=Who.ANY,
    max_age=10,
    fields=("Earthquake.revisions",),
    key="pk = :partition AND begins_with(sk, :revisions)",
    descending=True,
)
DETECTED = AccessPattern(
    id="QUAKE-S1",
    question="Earthquakes as they are stored, filtered by magnitude and bounding box",
    table=EARTHQUAKES,
    operations=(),
    who=Who.ANY,
    fields=("earthquakeDetected",),
    when_slow=OverflowPolicy.CLOSE,
)

PATTERNS = (
    INSERT_EVENT,
    STORED_IDS,
    INSERT_WITH_ALIASES,
    ADD_ALIAS,
    NEWEST,
    REVISE,
    INGEST_STATE,
    EVENTS_BY_DAY,
    WRITE_LOG,
    LOGS_OF_DAY,
    EVENT,
    LATEST,
    REVISIONS,
    DETECTED,
)
