"""Updates of existing tables to their declarations, as far as no data is lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from datastore.dynamodb.retry.backoff import Backoff
from datastore.infrastructure.table_differences import (
    RECOVER,
    Described,
    Difference,
    TableChange,
    TableState,
    differences,
)
from datastore.model.access_patterns import Table

# The backfill of a large table's index takes hours: there is no time limit.
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 5.0
# Backups of a new table become available with a delay, and another command may be changing the table.
RETRY = Backoff(initial=0.5, maximum=10.0, attempts=30)
RETRYABLE_CODES = ("ContinuousBackupsUnavailableException", "ResourceInUseException", "LimitExceededException")
UNSUPPORTED_CODES = ("UnknownOperationException", "UnsupportedOperationException", "InvalidAction")

Admin = Any

logger = logging.getLogger(__name__)


async def compare(admin: Admin, tables: Sequence[Table], prefix: str = "", *, in_aws: bool) -> list[Difference]:
    """Return how the existing tables differ from their declarations; `in_aws` also compares their protection."""
    result: list[Difference] = []
    for table in tables:
        result += await _compare(admin, table, await _describe(admin, prefix + table.name), in_aws)
    return result


async def update(
    admin: Admin,
    tables: Sequence[Table],
    prefix: str = "",
    *,
    in_aws: bool,
    on_change: Callable[[Difference], None] = lambda _: None,
) -> list[Difference]:
    """Apply the possible changes, one at a time, table after table. Return the remaining differences.

    `on_change` is called before each change. If the caller is cancelled, DynamoDB completes the change in progress.
    """
    return [rest for table in tables for rest in await _update(admin, table, prefix, in_aws, on_change)]


async def recover(admin: Admin, name: str) -> None:
    """Enable point-in-time recovery of a new table if the store supports it."""
    if await _is_recoverable(admin, name) is False:
        await _change(admin, name, RECOVER)


async def _update(
    admin: Admin, table: Table, prefix: str, in_aws: bool, on_change: Callable[[Difference], None]
) -> list[Difference]:
    done: set[str] = set()
    while True:
        described = await _wait_until_active(admin, prefix + table.name)
        remaining = await _compare(admin, table, described, in_aws)
        selected = next((each for each in remaining if each.change is not None and each.text not in done), None)
        if selected is None or selected.change is None:
            return remaining
        on_change(selected)
        done.add(selected.text)
        try:
            await _change(admin, selected.table, selected.change)
        except ClientError:
            # Another command may have made the same change.
            current = await _compare(admin, table, await _wait_until_active(admin, selected.table), in_aws)
            if selected.text in [each.text for each in current]:
                raise


async def _compare(admin: Admin, table: Table, described: Described | None, in_aws: bool) -> list[Difference]:
    """Return the differences of a table; none if it is missing."""
    if described is None:
        return []
    name = described["TableName"]
    expiry = (await asyncio.to_thread(admin.describe_time_to_live, TableName=name))["TimeToLiveDescription"]
    recoverable = await _is_recoverable(admin, name) if in_aws else None
    return list(differences(table, TableState(described, expiry, in_aws, recoverable)))


async def _is_recoverable(admin: Admin, name: str) -> bool | None:
    """Return whether point-in-time recovery is on; None if the store does not support it, as emulators do not."""
    try:
        response = await asyncio.to_thread(admin.describe_continuous_backups, TableName=name)
    except ClientError as problem:
        if _code(problem) not in UNSUPPORTED_CODES:
            raise
        logger.info("The store does not support point-in-time recovery: it is not enabled for %s.", name)
        return None
    recovery = response["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(recovery.get("PointInTimeRecoveryStatus") == "ENABLED")


async def _wait_until_active(admin: Admin, name: str) -> Described | None:
    """Return the table's description once no change is in progress. DynamoDB makes one change at a time."""
    seconds = FIRST_POLL_SECONDS
    while (described := await _describe(admin, name)) is not None and not _is_active(described):
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, MAX_POLL_SECONDS)
    return described


async def _describe(admin: Admin, name: str) -> Described | None:
    try:
        described: Described = (await asyncio.to_thread(admin.describe_table, TableName=name))["Table"]
    except ClientError as problem:
        if _code(problem) != "ResourceNotFoundException":
            raise
        return None
    return described


def _is_active(described: Described) -> bool:
    indexes = described.get("GlobalSecondaryIndexes", ())
    return {described["TableStatus"], *[index.get("IndexStatus", "ACTIVE") for index in indexes]} == {"ACTIVE"}


async def _change(admin: Admin, name: str, change: TableChange) -> None:
    call = getattr(admin, change.operation)
    for seconds in RETRY.delays(lambda: 1.0):
        try:
            await asyncio.to_thread(call, TableName=name, **change.parameters)
        except ClientError as problem:
            if _code(problem) not in RETRYABLE_CODES:
                raise
            await asyncio.sleep(seconds)
        else:
            return
    await asyncio.to_thread(call, TableName=name, **change.parameters)


def _code(problem: ClientError) -> str:
    return str(problem.response["Error"]["Code"])
