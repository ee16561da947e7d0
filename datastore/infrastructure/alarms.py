"""CloudWatch alarms of the tables, independent of the export format.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from datastore.infrastructure.iam_roles import ROLES
from datastore.keyspace import PATTERNS
from datastore.model.access_patterns import AccessPattern, Operation, Table

PERIOD_SECONDS = 60
# One minute with throttling is harmless, because requests are retried. Three of five are not.
EVALUATED_MINUTES, BREACHING_MINUTES = 5, 3
# A stream keeps records for 24 hours. Followers should see a post within seconds.
MAX_LAG_MS = 300_000


class AlarmLevel(StrEnum):
    """The extent of the alarms. AWS charges for each metric of an alarm."""

    NOTHING = "none"
    THROTTLING = "throttling"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of a table, for a problem in three of five minutes. `key` is unique for the table.

    Missing data counts as no problem: DynamoDB reports these metrics only if throttling or errors occur.
    """

    key: str
    table: Table
    description: str
    #: The metrics whose sum is 1 or more: their name, and the dimensions of each besides the table's name. For a lag of
    #: five minutes of the Lambda function of the table's stream there are none.
    metric: str = ""
    dimensions: tuple[Mapping[str, str], ...] = ()

    @property
    def is_lag(self) -> bool:
        return not self.dimensions


def alarms_of(tables: Sequence[Table], level: AlarmLevel) -> list[Alarm]:
    """Return the alarms of the tables, and last those of the lag of functions that may process their streams."""
    if level is AlarmLevel.NOTHING:
        return []
    triggers = {table for role in ROLES for table in role.triggers}
    return [alarm for table in tables for alarm in _alarms_of(table, level)] + [
        Alarm("IteratorAge", table, f"The function that processes the stream of {table.name} lags behind it.")
        for table in tables
        if table in triggers
    ]


def _alarms_of(table: Table, level: AlarmLevel) -> Iterator[Alarm]:
    """Yield the table's alarms. One alarm covers the table and its indexes, whose throttling also throttles writes."""
    indexes = ({}, *[{"GlobalSecondaryIndexName": index.name} for index in table.indexes])
    for kind, name in (("Read", "reads"), ("Write", "writes")):
        text = f"DynamoDB throttles {name} of {table.name} or its indexes."
        yield Alarm(f"{kind}Throttle", table, text, f"{kind}ThrottleEvents", indexes)
    operations = tuple({"Operation": operation} for operation in operations_on(table))
    if level is AlarmLevel.ALL and operations:
        text = f"DynamoDB responds to requests to {table.name} with internal errors."
        yield Alarm("SystemErrors", table, text, "SystemErrors", operations)


def operations_on(table: Table) -> list[Operation]:
    """Return the operations of the access patterns on a table, sorted."""
    return sorted({operation for pattern in PATTERNS for operation in _operations_of(pattern, table)})


def _operations_of(pattern: AccessPattern, table: Table) -> tuple[Operation, ...]:
    if pattern.table is table:
        return pattern.operations
    return ("TransactWriteItems",) if any(target is table for _, target in pattern.transacted) else ()
