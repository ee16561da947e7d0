"""Has tables that exist become what is declared, as far as that loses nothing."""

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

# An index of a large table takes hours to be filled: it is waited for without an end.
FIRST_SECONDS, MOST_SECONDS = 0.05, 5.0
# DynamoDB begins to keep backups of a new table a moment after it is there, and another command may change it just now.
SOON = Backoff(initial=0.5, maximum=10.0, attempts=30)
NOT_YET = ("ContinuousBackupsUnavailableException", "ResourceInUseException", "LimitExceededException")
UNKNOWN = ("UnknownOperationException", "UnsupportedOperationException", "InvalidAction")

Admin = Any

logger = logging.getLogger(__name__)


async def compare(admin: Admin, tables: Sequence[Table], prefix: str = "", *, in_aws: bool) -> list[Difference]:
    """How the tables that are there differ from what is declared; `in_aws` they are to be protected, too."""
    found: list[Difference] = []
    for table in tables:
        found += await _compare(admin, table, await _described(admin, prefix + table.name), in_aws)
    return found


async def update(
    admin: Admin,
    tables: Sequence[Table],
    prefix: str = "",
    *,
    in_aws: bool,
    changing: Callable[[Difference], None] = lambda _: None,
) -> list[Difference]:
    """Change what can be, one thing at a time and table after table; the differences that are left.

    `changing` hears of each before it is changed. Interrupted, it leaves what DynamoDB has begun to be finished by it.
    """
    return [one for table in tables for one in await _update(admin, table, prefix, in_aws, changing)]


async def recover(admin: Admin, name: str) -> None:
    """Switch point-in-time recovery on for a new table, where the store has it."""
    if await _is_recoverable(admin, name) is False:
        await _change(admin, name, RECOVER)


async def _update(
    admin: Admin, table: Table, prefix: str, in_aws: bool, changing: Callable[[Difference], None]
) -> list[Difference]:
    done: set[str] = set()
    while True:
        described = await _settled(admin, prefix + table.name)
        left = await _compare(admin, table, described, in_aws)
        found = next((one for one in left if one.change is not None and one.text not in done), None)
        if found is None or found.change is None:
            return left
        changing(found)
        done.add(found.text)
        try:
            await _change(admin, found.table, found.change)
        except ClientError:
            # Another command may have changed the same, or have begun to.
            there = await _compare(admin, table, await _settled(admin, found.table), in_aws)
            if found.text in [one.text for one in there]:
                raise


async def _compare(admin: Admin, table: Table, described: Described | None, in_aws: bool) -> list[Difference]:
    """Nothing is compared where there is no table."""
    if described is None:
        return []
    name = described["TableName"]
    expiry = (await asyncio.to_thread(admin.describe_time_to_live, TableName=name))["TimeToLiveDescription"]
    recoverable = await _is_recoverable(admin, name) if in_aws else None
    return list(differences(table, TableState(described, expiry, in_aws, recoverable)))


async def _is_recoverable(admin: Admin, name: str) -> bool | None:
    """Whether point-in-time recovery is on; None where the store does not know it, as emulators do not."""
    try:
        answer = await asyncio.to_thread(admin.describe_continuous_backups, TableName=name)
    except ClientError as problem:
        if _code(problem) not in UNKNOWN:
            raise
        logger.info("The store has no point-in-time recovery: %s goes without.", name)
        return None
    recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(recovery.get("PointInTimeRecoveryStatus") == "ENABLED")


async def _settled(admin: Admin, name: str) -> Described | None:
    """The table, once DynamoDB is done with what it was asked to change: it takes one change at a time."""
    seconds = FIRST_SECONDS
    while (described := await _described(admin, name)) is not None and not _is_settled(described):
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, MOST_SECONDS)
    return described


async def _described(admin: Admin, name: str) -> Described | None:
    try:
        described: Described = (await asyncio.to_thread(admin.describe_table, TableName=name))["Table"]
    except ClientError as problem:
        if _code(problem) != "ResourceNotFoundException":
            raise
        return None
    return described


def _is_settled(described: Described) -> bool:
    indexes = described.get("GlobalSecondaryIndexes", ())
    return {described["TableStatus"], *[index.get("IndexStatus", "ACTIVE") for index in indexes]} == {"ACTIVE"}


async def _change(admin: Admin, name: str, change: TableChange) -> None:
    call = getattr(admin, change.operation)
    for seconds in SOON.delays(lambda: 1.0):
        try:
            await asyncio.to_thread(call, TableName=name, **change.parameters)
        except ClientError as problem:
            if _code(problem) not in NOT_YET:
                raise
            await asyncio.sleep(seconds)
        else:
            return
    await asyncio.to_thread(call, TableName=name, **change.parameters)


def _code(problem: ClientError) -> str:
    return str(problem.response["Error"]["Code"])
