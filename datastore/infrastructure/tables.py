"""Creation and description of the declared tables, through boto3."""

import asyncio
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from datastore.model.access_patterns import Index, Table

ACTIVE_POLL_SECONDS = 0.05
ACTIVE_POLLS = 2400


def create_table_request(table: Table, prefix: str = "") -> dict[str, Any]:
    """Return the parameters of CreateTable: on-demand capacity, indexes and stream. `create` enables the TTL."""
    request: dict[str, Any] = {
        "TableName": prefix + table.name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": _attributes(table),
        "KeySchema": _key_schema(table.partition, table.sort),
    }
    if table.indexes:
        request["GlobalSecondaryIndexes"] = [_index(index) for index in table.indexes]
    if table.stream:
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": table.stream}
    return request


async def create(admin: Any, tables: Sequence[Table], prefix: str = "", *, protected: bool = False) -> list[str]:
    """Create the missing tables, wait until all are active, and enable TTL. Return the names of the created tables.

    `protected` enables deletion protection. It also leaves existing tables unchanged, because enabling TTL may delete
    their items. Raises `TimeoutError` if a table is not active after two minutes.
    """
    names = [
        prefix + table.name for table in tables if await asyncio.to_thread(_create, admin, table, prefix, protected)
    ]
    for table in tables:
        await _wait_until_active(admin, prefix + table.name)
        if table.ttl and (not protected or prefix + table.name in names):
            await asyncio.to_thread(_enable_ttl, admin, prefix + table.name, table.ttl)
    return names


async def describe(admin: Any, tables: Sequence[Table], prefix: str = "") -> list[dict[str, Any]]:
    """Return each table's description; `{"TableName": …, "TableStatus": "MISSING"}` for a missing table."""
    return [await asyncio.to_thread(_describe, admin, prefix + table.name) for table in tables]


def _create(admin: Any, table: Table, prefix: str, protected: bool) -> bool:
    protection = {"DeletionProtectionEnabled": True} if protected else {}
    try:
        admin.create_table(**create_table_request(table, prefix), **protection)
    except ClientError as problem:
        if problem.response["Error"]["Code"] != "ResourceInUseException":
            raise
        return False
    return True


def _enable_ttl(admin: Any, name: str, attribute: str) -> None:
    """Enable TTL unless it is enabled. Another process may create the table and enable TTL concurrently."""
    if _has_ttl(admin, name):
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        admin.update_time_to_live(TableName=name, TimeToLiveSpecification=specification)
    except ClientError:
        if not _has_ttl(admin, name):
            raise


def _has_ttl(admin: Any, name: str) -> bool:
    status = admin.describe_time_to_live(TableName=name)["TimeToLiveDescription"]["TimeToLiveStatus"]
    return status in ("ENABLED", "ENABLING")


async def _wait_until_active(admin: Any, name: str) -> None:
    for _ in range(ACTIVE_POLLS):
        if (await asyncio.to_thread(_describe, admin, name))["TableStatus"] == "ACTIVE":
            return
        await asyncio.sleep(ACTIVE_POLL_SECONDS)
    raise TimeoutError(f"The table {name} is not active after two minutes. Check its status and try again.")


def _describe(admin: Any, name: str) -> dict[str, Any]:
    try:
        description: dict[str, Any] = admin.describe_table(TableName=name)["Table"]
    except ClientError as problem:
        if problem.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return {"TableName": name, "TableStatus": "MISSING"}
    return description


def _attributes(table: Table) -> list[dict[str, str]]:
    kinds: dict[str | None, str] = {table.partition: "S", table.sort: "S"}
    for index in table.indexes:
        kinds |= {index.partition: "S", index.sort: index.sort_type}
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items() if name]


def _key_schema(partition: str, sort: str | None) -> list[dict[str, str]]:
    key = [{"AttributeName": partition, "KeyType": "HASH"}]
    return [*key, {"AttributeName": sort, "KeyType": "RANGE"}] if sort else key


def _index(index: Index) -> dict[str, Any]:
    return {
        "IndexName": index.name,
        "KeySchema": _key_schema(index.partition, index.sort),
        "Projection": _projection(index),
    }


def _projection(index: Index) -> dict[str, Any]:
    if isinstance(index.projection, tuple):
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.projection)}
    return {"ProjectionType": index.projection}
