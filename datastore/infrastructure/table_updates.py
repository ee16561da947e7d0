"""Updates of existing tables to their declarations, as far as no data is lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.infrastructure.table_differences import (
    RECOVER,
    Described,
    Difference,
    TableChange,
    TableState,
    differences,
)
from datastore.infrastructure.tables import describe_table, describe_ttl
from datastore.model.access_patterns import Table
from datastore.primitives.retries import retry

# The backfill of a large table's index takes hours: there is no time limit.
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 5.0
# Backups of a new table become available with a delay, and another command may be changing the table.
RETRY = Backoff(initial=0.5, maximum=10.0, attempts=30)
RETRYABLE_CODES = ("ContinuousBackupsUnavailableException", "ResourceInUseException")
UNSUPPORTED_CODES = ("UnknownOperationException", "UnsupportedOperationException", "InvalidAction")

logger = logging.getLogger(__name__)


async def compare(client: Client, tables: Sequence[Table], prefix: str = "", *, in_aws: bool) -> list[Difference]:
    """Return how the existing tables differ from their declarations; `in_aws` also compares their protection."""
    result: list[Difference] = []
    for table in tables:
        result += await _compare(client, table, await describe_table(client, prefix + table.name), in_aws)
    return result


async def update(
    client: Client,
    tables: Sequence[Table],
    prefix: str = "",
    *,
    in_aws: bool,
    on_change: Callable[[Difference], None] = lambda _: None,
) -> list[Difference]:
    """Apply the possible changes, one at a time, table after table. Return the remaining differences.

    `on_change` is called before each change. If the caller is cancelled, DynamoDB completes the change in progress.
    """
    return [rest for table in tables for rest in await _update(client, table, prefix, in_aws, on_change)]


async def recover(client: Client, name: str) -> None:
    """Enable point-in-time recovery of a new table if the store supports it."""
    if await _is_recoverable(client, name) is False:
        await _change(client, name, RECOVER)


async def _update(
    client: Client, table: Table, prefix: str, in_aws: bool, on_change: Callable[[Difference], None]
) -> list[Difference]:
    done: set[str] = set()
    while True:
        described = await _wait_until_active(client, prefix + table.name)
        remaining = await _compare(client, table, described, in_aws)
        selected = next((each for each in remaining if each.change is not None and each.text not in done), None)
        if selected is None or selected.change is None:
            return remaining
        on_change(selected)
        done.add(selected.text)
        try:
            await _change(client, selected.table, selected.change)
        except (RequestRefused, Throttled):
            # Another command may have made the same change.
            current = await _compare(client, table, await _wait_until_active(client, selected.table), in_aws)
            if selected.text in [each.text for each in current]:
                raise


async def _compare(client: Client, table: Table, described: Described | None, in_aws: bool) -> list[Difference]:
    """Return the differences of a table; none if it is missing."""
    if described is None:
        return []
    name = described["TableName"]
    expiry = await describe_ttl(client, name)
    recoverable = await _is_recoverable(client, name) if in_aws else None
    return list(differences(table, TableState(described, expiry, in_aws, recoverable)))


async def _is_recoverable(client: Client, name: str) -> bool | None:
    """Return whether point-in-time recovery is on; None if the store does not support it, as emulators do not."""
    try:
        response = await client.call("DescribeContinuousBackups", {"TableName": name})
    except RequestRefused as problem:
        if problem.code not in UNSUPPORTED_CODES:
            raise
        logger.info("The store does not support point-in-time recovery: it is not enabled for %s.", name)
        return None
    recovery = response["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(recovery.get("PointInTimeRecoveryStatus") == "ENABLED")


async def _wait_until_active(client: Client, name: str) -> Described | None:
    """Return the table's description once no change is in progress. DynamoDB makes one change at a time."""
    seconds = FIRST_POLL_SECONDS
    while (described := await describe_table(client, name)) is not None and not _is_active(described):
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, MAX_POLL_SECONDS)
    return described


def _is_active(described: Described) -> bool:
    indexes = described.get("GlobalSecondaryIndexes", ())
    return {described["TableStatus"], *[index.get("IndexStatus", "ACTIVE") for index in indexes]} == {"ACTIVE"}


async def _change(client: Client, name: str, change: TableChange) -> None:
    await retry(
        partial(client.call, change.operation, {"TableName": name, **change.parameters}),
        RETRY.delays(lambda: 1.0),
        lambda problem: isinstance(problem, Throttled) or _is_busy(problem),
    )


def _is_busy(problem: Exception) -> bool:
    return isinstance(problem, RequestRefused) and problem.code in RETRYABLE_CODES
