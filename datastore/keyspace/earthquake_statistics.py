"""Daily statistics of earthquakes in the table `earthquake-events`.

| item | key |
|---|---|
| counts of a UTC day by magnitude class | `STATISTICS#<YYYY>` / `<YYYYMMDD>` |
| counts of a UTC day by region | `REGIONS#<YYYY>` / `<YYYYMMDD>` |
| an event that is counted | `COUNTED#<YYYYMMDD>` / `<eventId>` |
| the days whose statistics are complete | `STATISTICS` / `COVERAGE` |

The days of a year share a partition, so that ten years take at most twelve Queries.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import BATCH_WRITE, GET, PUT, QUERY, SCAN, TRANSACT, UPDATE, AccessPattern, Who
from datastore.model.composite_keys import Key, join


def year(name: str) -> str:
    """Return the partition of the days of a year."""
    return join("STATISTICS", name)


def day(bucket: str) -> Key:
    """Return the key of the statistics of a day (YYYYMMDD)."""
    return Key(year(bucket[:4]), bucket)


def regions_of_year(name: str) -> str:
    return join("REGIONS", name)


def regions(bucket: str) -> Key:
    return Key(regions_of_year(bucket[:4]), bucket)


def counted_on(bucket: str) -> str:
    """Return the partition of the events that are counted for a day."""
    return join("COUNTED", bucket)


def counted(bucket: str, event_id: str) -> Key:
    return Key(counted_on(bucket), event_id)


@item_key(EARTHQUAKES)
def coverage() -> KeyParts:
    return ("STATISTICS",), ("COVERAGE",)


RAISE_BOUND = AccessPattern(
    "QUAKE-P1",
    "Raise the upper bound of a day's magnitudes before an event above it is stored",
    EARTHQUAKES,
    UPDATE,
    condition="attribute_not_exists(greatest) OR greatest < :greatest",
    update="SET greatest = :greatest",
)
RAISE_OTHER_BOUND = AccessPattern(
    "QUAKE-P1",
    "Raise the upper bound of the magnitudes of a day's events other than earthquakes",
    EARTHQUAKES,
    UPDATE,
    condition="attribute_not_exists(greatestOther) OR greatestOther < :greatest",
    update="SET greatestOther = :greatest",
)
COUNT_EVENTS = AccessPattern(
    "QUAKE-P2", "Add the events that are counted for a day, and remove deleted ones", EARTHQUAKES, BATCH_WRITE
)
COUNTED_EVENTS = AccessPattern(
    "QUAKE-P2", "The events that are counted for a day", EARTHQUAKES, QUERY, key="pk = :partition", consistent=True
)
DAY_BEFORE_RECOUNT = AccessPattern(
    "QUAKE-P3",
    "The statistics of a day before they are recounted",
    EARTHQUAKES,
    GET,
    key="pk = STATISTICS#<year>, sk = <day>",
    consistent=True,
)
RECOUNT = AccessPattern(
    "QUAKE-P3",
    "Replace the statistics of a day, unless another process replaced them",
    EARTHQUAKES,
    TRANSACT,
    transacts=("Update", "Put"),
)
ALL_EVENTS = AccessPattern(
    "QUAKE-P4", "All items of the table, to rebuild the statistics of all days", EARTHQUAKES, SCAN, consistent=True
)
EVENTS_OF_DAY = AccessPattern(
    "QUAKE-P4",
    "All events of a day, to rebuild the statistics of the day",
    EARTHQUAKES,
    QUERY,
    index="TimeOrderedIndex",
    key="gsi1pk = :partition",
)
IS_STORED = AccessPattern(
    "QUAKE-P4",
    "Which of the counted events are still stored",
    EARTHQUAKES,
    GET,
    key="pk = EVENT#<eventId>, sk = EVENT",
    consistent=True,
)
COVERAGE = AccessPattern(
    "QUAKE-P5",
    "The days with complete statistics, and the last time at which the stream's consumer kept up",
    EARTHQUAKES,
    GET,
    key="pk = STATISTICS, sk = COVERAGE",
)
RECORD_CHECK = AccessPattern(
    "QUAKE-P5",
    "Record that the stream's consumer keeps up",
    EARTHQUAKES,
    UPDATE,
    condition="attribute_exists(pk)",
    update="SET checkedAt = :now",
)
SAVE_COVERAGE = AccessPattern("QUAKE-P5", "Record the days with complete statistics", EARTHQUAKES, PUT)
DAYS = AccessPattern(
    "QUAKE-6",
    "Statistics of earthquakes by day, magnitude class or region; one Query for each year",
    EARTHQUAKES,
    GET + QUERY,
    Who.ANY,
    ("earthquakeStatistics",),
    max_age=10,
    key="pk = :partition AND sk BETWEEN :first AND :last",
)
