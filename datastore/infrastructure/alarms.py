"""CloudWatch alarms of the tables, independent of the export format.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
class Metric:
    """A DynamoDB metric of a table, or of one of its indexes or operations."""

    name: str
    index: str | None = None
    operation: Operation | None = None

    def dimensions(self, table_name: Any) -> dict[str, Any]:
        """Return the dimensions by name. The table name may be an expression of the export format."""
        dimensions = {"TableName": table_name}
        if self.index:
            dimensions["GlobalSecondaryIndexName"] = self.index
        if self.operation:
            dimensions["Operation"] = self.operation
        return dimensions


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm for a sum of metrics of 1 or more in three of five minutes. `key` is unique for the table.

    Missing data counts as no error: DynamoDB reports these metrics only if throttling or errors occur.
    """

    key: str
    table: Table
    description: str
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class LagAlarm:
    """An alarm for a lag of five minutes of the Lambda function of a table's stream, in three of five minutes."""

    key: str
    table: Table
    description: str


def alarms_of(table: Table, level: AlarmLevel) -> Iterator[Alarm]:
    """Yield the table's alarms. One alarm covers the table and its indexes, whose throttling also throttles writes."""
    if level is AlarmLevel.NOTHING:
        return
    indexes = (None, *[index.name for index in table.indexes])
    for kind, name in (("Read", "reads"), ("Write", "writes")):
        metrics = tuple(Metric(f"{kind}ThrottleEvents", index=index) for index in indexes)
        yield Alarm(f"{kind}Throttle", table, f"DynamoDB throttles {name} of {table.name} or its indexes.", metrics)
    operations = operations_on(table)
    if level is AlarmLevel.ALL and operations:
        metrics = tuple(Metric("SystemErrors", operation=operation) for operation in operations)
        yield Alarm(
            "SystemErrors", table, f"DynamoDB responds to requests to {table.name} with internal errors.", metrics
        )


def lag_alarms(tables: Sequence[Table], level: AlarmLevel) -> list[LagAlarm]:
    """Return an alarm for each stream that a Lambda function may process."""
    triggers = {table for role in ROLES for table in role.triggers} if level is not AlarmLevel.NOTHING else set()
    return [
        LagAlarm("IteratorAge", table, f"The function that processes the stream of {table.name} lags behind it.")
        for table in tables
        if table in triggers
    ]


def operations_on(table: Table) -> list[Operation]:
    """Return the operations of the access patterns on a table, sorted."""
    return sorted({operation for pattern in PATTERNS for operation in _operations_of(pattern, table)})


def _operations_of(pattern: AccessPattern, table: Table) -> tuple[Operation, ...]:
    if pattern.table is table:
        return pattern.operations
    return ("TransactWriteItems",) if any(target is table for _, target in pattern.transacted) else ()
