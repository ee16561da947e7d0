"""What is watched of the tables in CloudWatch, whoever makes the alarms.

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
# A minute in which something was throttled is nothing: requests are tried again. Several of five are.
MINUTES, BAD_MINUTES = 5, 3
# A stream forgets after 24 hours. Followers should see a post within seconds.
MOST_BEHIND_MILLISECONDS = 300_000


class Watched(StrEnum):
    """How much is watched: each alarm costs by its metrics."""

    NOTHING = "none"
    THROTTLING = "throttling"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Metric:
    """One of DynamoDB's, of a table: of one of its indexes, or of one operation on it."""

    name: str
    index: str | None = None
    operation: Operation | None = None

    def dimensions(self, table_name: Any) -> dict[str, Any]:
        """By name, for a table of that name, which may be an expression of a format's own."""
        dimensions = {"TableName": table_name}
        if self.index:
            dimensions["GlobalSecondaryIndexName"] = self.index
        if self.operation:
            dimensions["Operation"] = self.operation
        return dimensions


@dataclass(frozen=True, slots=True)
class Alarm:
    """It goes off when the metrics' sum is 1 or more in three of five minutes. `key` tells it from the table's others.

    No data is no trouble: DynamoDB tells of throttling and errors only where there are some.
    """

    key: str
    table: Table
    description: str
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """It goes off when the Lambda function of a table's stream is five minutes behind, in three of five minutes."""

    key: str
    table: Table
    description: str


def alarms_of(table: Table, watched: Watched) -> Iterator[Alarm]:
    """The table's alarms. Throttling of an index is that of its table's writes, and tells nothing of it by itself."""
    if watched is Watched.NOTHING:
        return
    places = (None, *[index.name for index in table.indexes])
    for kind, name in (("Read", "reads"), ("Write", "writes")):
        metrics = tuple(Metric(f"{kind}ThrottleEvents", index=index) for index in places)
        yield Alarm(f"{kind}Throttle", table, f"DynamoDB throttles {name} of {table.name} or its indexes.", metrics)
    operations = operations_on(table)
    if watched is Watched.ALL and operations:
        metrics = tuple(Metric("SystemErrors", operation=operation) for operation in operations)
        yield Alarm(
            "SystemErrors", table, f"DynamoDB answers requests to {table.name} with errors of its own.", metrics
        )


def lags(tables: Sequence[Table], watched: Watched) -> list[Lag]:
    """One for each stream that a Lambda function may handle."""
    triggers = {table for role in ROLES for table in role.triggered} if watched is not Watched.NOTHING else set()
    return [
        Lag("IteratorAge", table, f"The function that handles the stream of {table.name} is behind.")
        for table in tables
        if table in triggers
    ]


def operations_on(table: Table) -> list[Operation]:
    """What the access patterns do to a table, by name."""
    return sorted({operation for pattern in PATTERNS for operation in _on(pattern, table)})


def _on(pattern: AccessPattern, table: Table) -> tuple[Operation, ...]:
    if pattern.table is table:
        return pattern.operations
    return ("TransactWriteItems",) if any(place is table for _, place in pattern.transacted) else ()
