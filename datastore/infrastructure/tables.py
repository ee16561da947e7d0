"""Creation and description of the declared tables."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from datastore.dynamodb.client import Client, RequestRefused
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


async def create(client: Client, tables: Sequence[Table], prefix: str = "", *, protected: bool = False) -> list[str]:
    """Create the missing tables, wait until all are active, and enable TTL. Return the names of the created tables.

    `protected` enables deletion protection. It also leaves existing tables unchanged, because enabling TTL may delete
    their items. Raises `TimeoutError` if a table is not active after two minutes.
    """
    names = [prefix + table.name for table in tables if await _create(client, table, prefix, protected)]
    for table in tables:
        await _wait_until_created(client, prefix + table.name)
        if table.ttl and (not protected or prefix + table.name in names):
            await _enable_ttl(client, prefix + table.name, table.ttl)
    return names


async def describe(client: Client, tables: Sequence[Table], prefix: str = "") -> list[dict[str, Any]]:
    """Return each table's description; `{"TableName": …, "TableStatus": "MISSING"}` for a missing table."""
    names = [prefix + table.name for table in tables]
    return [await describe_table(client, name) or {"TableName": name, "TableStatus": "MISSING"} for name in names]


async def describe_table(client: Client, name: str) -> dict[str, Any] | None:
    """Return a table's description, or None if the table is missing."""
    try:
        description: dict[str, Any] = (await client.call("DescribeTable", {"TableName": name}))["Table"]
    except RequestRefused as problem:
        if problem.code != "ResourceNotFoundException":
            raise
        return None
    return description


async def describe_ttl(client: Client, name: str) -> dict[str, Any]:
    response: dict[str, dict[str, Any]] = await client.call("DescribeTimeToLive", {"TableName": name})
    return response["TimeToLiveDescription"]


def has_ttl(description: Mapping[str, Any]) -> bool:
    """Return whether TTL is enabled, or is being enabled, by a description of `describe_ttl`."""
    return description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")


async def _create(client: Client, table: Table, prefix: str, protected: bool) -> bool:
    protection = {"DeletionProtectionEnabled": True} if protected else {}
    try:
        await client.call("CreateTable", create_table_request(table, prefix) | protection)
    except RequestRefused as problem:
        if problem.code != "ResourceInUseException":
            raise
        return False
    return True


async def _enable_ttl(client: Client, name: str, attribute: str) -> None:
    """Enable TTL unless it is enabled. Another process may create the table and enable TTL concurrently."""
    if has_ttl(await describe_ttl(client, name)):
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        await client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": specification})
    except RequestRefused:
        if not has_ttl(await describe_ttl(client, name)):
            raise


async def _wait_until_created(client: Client, name: str) -> None:
    for _ in range(ACTIVE_POLLS):
        if ((await describe_table(client, name)) or {}).get("TableStatus") == "ACTIVE":
            return
        await asyncio.sleep(ACTIVE_POLL_SECONDS)
    raise TimeoutError(f"The table {name} is not active after two minutes. Check its status and try again.")


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
