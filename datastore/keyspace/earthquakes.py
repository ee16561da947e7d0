"""The table `earthquake-events`: seismic events by id and by day, and the request log."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import GET, QUERY, SHARED_MS, TRANSACT, AccessPattern, Expiry, Index, Table, Who
from datastore.queues import OverflowPolicy

EARTHQUAKES = Table(
    name="earthquake-events",
    partition="pk",
    sort="sk",
    indexes=(Index("TimeOrderedIndex", partition="gsi1pk", sort="gsi1sk", sort_type="N"),),
    ttl="ttl",
    expiry=Expiry.NEVER,  # except request logs
    stream="NEW_AND_OLD_IMAGES",
)


@item_key(EARTHQUAKES)
def event(event_id: str) -> KeyParts:
    return ("EVENT", event_id), ("EVENT",)


@item_key(EARTHQUAKES, index="TimeOrderedIndex")
def event_of_day(day: str, occurred_at_ms: int) -> KeyParts:
    """`day` is YYYYMMDD."""
    return ("DAY", day), (occurred_at_ms,)


@item_key(EARTHQUAKES)
def revision(event_id: str, updated_ms: str) -> KeyParts:
    """Declare the key of a report that USGS published at that time: epoch milliseconds, 0 or more, with 15 digits."""
    return ("EVENT", event_id), ("REVISION", updated_ms)


@item_key(EARTHQUAKES)
def latest(event_id: str) -> KeyParts:
    """Declare the key of the copy of the newest revision."""
    return ("EVENT", event_id), ("LATEST",)


@item_key(EARTHQUAKES)
def log(day: str, milliseconds: str, request_id: str) -> KeyParts:
    return ("LOG", day), (milliseconds, request_id)


@item_key(EARTHQUAKES)
def ingest_state(source: str) -> KeyParts:
    """Declare the key of the state of a source's last ingest: HTTP validators, and the hash of the feed."""
    return ("INGEST", source), ("STATE",)


INSERT_EVENT = AccessPattern(
    "QUAKE-1",
    "Fetch a USGS feed and insert each event once",
    EARTHQUAKES,
    # The bound of the day is raised first (QUAKE-P1).
    ("GetItem", "PutItem", "UpdateItem"),
    Who.SYSTEM,
    ("ingestEarthquakes",),
    condition="attribute_not_exists(pk)",
)
STORED_IDS = event.read("QUAKE-1", "Which of an event's ids are stored, for an event that has several", consistent=True)
INSERT_WITH_ALIASES = AccessPattern(
    "QUAKE-1",
    "Insert an event that has several ids, with an alias for each further id",
    EARTHQUAKES,
    TRANSACT,
    transacts=("Put",),
    condition="attribute_not_exists(pk)",
)
ADD_ALIAS = event.put(
    "QUAKE-1", "Add an id that USGS gave an event after it was stored", condition="attribute_not_exists(pk)"
)
NEWEST = AccessPattern(
    "QUAKE-1",
    "The newest report of a stored event, for comparison with another report",
    EARTHQUAKES,
    GET,
    key="pk = EVENT#<eventId>, sk = LATEST or EVENT",
    consistent=True,
)
REVISE = AccessPattern("QUAKE-1", "Add a newer report of a stored event", EARTHQUAKES, TRANSACT, transacts=("Put",))
INGEST_STATE = AccessPattern(
    "QUAKE-1",
    "The state of a feed's last ingest, so that an unchanged feed writes nothing",
    EARTHQUAKES,
    ("GetItem", "PutItem"),
)
EVENTS_BY_DAY = AccessPattern(
    "QUAKE-2",
    "The earthquakes in a time window from a magnitude up, newest first, over any number of days",
    EARTHQUAKES,
    QUERY,
    Who.ANY,
    ("earthquakes",),
    max_age=10,
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
WRITE_LOG = log.put("QUAKE-3", "Log an ingest or a query, for seven days")
LOGS_OF_DAY = log.query(
    "QUAKE-4",
    "The request log of a day, newest first",
    Who.ADMIN,
    ("requestLogs",),
    filter=("logType = :type",),
    expiry=Expiry.ALWAYS,
    descending=True,
)
EVENT = event.read(
    "QUAKE-5",
    "An earthquake by its USGS id",
    Who.ANY,
    ("earthquake", "node", "nodes"),
    max_age=86_400,
    shared_ms=SHARED_MS,
)
LATEST = latest.read(
    "QUAKE-N1",
    "The newest report of an earthquake that USGS revised",
    Who.ANY,
    ("Earthquake.latest",),
    max_age=10,
    shared_ms=SHARED_MS,
)
REVISIONS = revision.query(
    "QUAKE-N2",
    "The revisions of an earthquake, newest first",
    Who.ANY,
    ("Earthquake.revisions",),
    max_age=10,
    descending=True,
)
DETECTED = AccessPattern(
    "QUAKE-S1",
    "Earthquakes as they are stored, filtered by magnitude and bounding box",
    EARTHQUAKES,
    (),
    Who.ANY,
    ("earthquakeDetected",),
    when_slow=OverflowPolicy.CLOSE,
)
