"""Daily statistics of earthquakes in the table `earthquake-events`.

| item | key |
|---|---|
| counts of a UTC day by magnitude class | `STATISTICS#<YYYY>` / `<YYYYMMDD>` |
| counts of a UTC day by region | `REGIONS#<YYYY>` / `<YYYYMMDD>` |
| an event that is counted | `COUNTED#<YYYYMMDD>` / `<eventId>` |
| the days whose statistics are complete | `STATISTICS` / `COVERAGE` |

The days of a year share a partition, so that ten years take at most twelve Queries.
"""

from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.access_patterns import AccessPattern, Who
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


def coverage() -> Key:
    return Key("STATISTICS", "COVERAGE")


RAISE_BOUND = AccessPattern(
    id="QUAKE-P1",
    question="Raise the upper bound of a day's magnitudes before an event above it is stored",
    table=EARTHQUAKES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(greatest) OR greatest < :greatest",
    update="SET greatest = :greatest",
)
RAISE_OTHER_BOUND = AccessPattern(
    id="QUAKE-P1",
    question="Raise the upper bound of the magnitudes of a day's events other than earthquakes",
    table=EARTHQUAKES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(greatestOther) OR greatestOther < :greatest",
    update="SET greatestOther = :greatest",
)
COUNT_EVENTS = AccessPattern(
    id="QUAKE-P2",
    question="Add the events that are counted for a day, and remove deleted ones",
    table=EARTHQUAKES,
    operations=("BatchWriteItem",),
    who=Who.INTERNAL,
)
COUNTED_EVENTS = AccessPattern(
    id="QUAKE-P2",
    question="The events that are counted for a day",
    table=EARTHQUAKES,
    operations=("Query",),
    who=Who.INTERNAL,
    key="pk = :partition",
    consistent=True,
)
DAY_BEFORE_RECOUNT = AccessPattern(
    id="QUAKE-P3",
    question="The statistics of a day before they are recounted",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="pk = STATISTICS#<year>, sk = <day>",
    consistent=True,
)
RECOUNT = AccessPattern(
    id="QUAKE-P3",
    question="Replace the statistics of a day, unless another process replaced them",
    table=EARTHQUAKES,
    operations=("TransactWriteItems",),
    transacts=("Update", "Put"),
    who=Who.INTERNAL,
)
ALL_EVENTS = AccessPattern(
    id="QUAKE-P4",
    question="All items of the table, to rebuild the statistics of all days",
    table=EARTHQUAKES,
    operations=("Scan",),
    who=Who.INTERNAL,
    consistent=True,
)
EVENTS_OF_DAY = AccessPattern(
    id="QUAKE-P4",
    question="All events of a day, to rebuild the statistics of the day",
    table=EARTHQUAKES,
    operations=("Query",),
    who=Who.INTERNAL,
    index="TimeOrderedIndex",
    key="gsi1pk = :partition",
)
IS_STORED = AccessPattern(
    id="QUAKE-P4",
    question="Which of the counted events are still stored",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="pk = EVENT#<eventId>, sk = EVENT",
    consistent=True,
)
COVERAGE = AccessPattern(
    id="QUAKE-P5",
    question="The days with complete statistics, and the last time at which the stream's consumer kept up",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="pk = STATISTICS, sk = COVERAGE",
)
RECORD_CHECK = AccessPattern(
    id="QUAKE-P5",
    question="Record that the stream's consumer keeps up",
    table=EARTHQUAKES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(pk)",
    update="SET checkedAt = :now",
)
SAVE_COVERAGE = AccessPattern(
    id="QUAKE-P5",
    question="Record the days with complete statistics",
    table=EARTHQUAKES,
    operations=("PutItem",),
    who=Who.INTERNAL,
)
DAYS = AccessPattern(
    id="QUAKE-6",
    question="Statistics of earthquakes by day, magnitude class or region; one Query for each year",
    table=EARTHQUAKES,
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    max_age=10,
    fields=("earthquakeStatistics",),
    key="pk = :partition AND sk BETWEEN :first AND :last",
)

PATTERNS = (
    RAISE_BOUND,
    RAISE_OTHER_BOUND,
    COUNT_EVENTS,
    COUNTED_EVENTS,
    DAY_BEFORE_RECOUNT,
    RECOUNT,
    ALL_EVENTS,
    EVENTS_OF_DAY,
    IS_STORED,
    COVERAGE,
    RECORD_CHECK,
    SAVE_COVERAGE,
    DAYS,
)
