"""Tables in the store: created and described from their declarations (table administration is boto3's)."""

import asyncio
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from datastore.model.access_patterns import Index, Table

ACTIVE_POLL_SECONDS = 0.05
ACTIVE_TRIES = 2400


def definition(table: Table, prefix: str = "") -> dict[str, Any]:
    """CreateTable's parameters: on demand, with the declared indexes and stream. TTL is set apart (see `create`)."""
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
    """Create what does not exist, wait until all is active, switch TTL on. The names of the tables that were made.

    Those that are `protected` cannot be deleted before that is switched off. Where they are, tables that others made
    are left as they are: items that begin to expire are lost.
    """
    made = [name for table in tables if (name := await asyncio.to_thread(_create, admin, table, prefix, protected))]
    for table in tables:
        await _active(admin, prefix + table.name)
        if table.ttl and (not protected or prefix + table.name in made):
            await asyncio.to_thread(_expire, admin, prefix + table.name, table.ttl)
    return made


async def describe(admin: Any, tables: Sequence[Table], prefix: str = "") -> list[dict[str, Any]]:
    """DescribeTable's answer for each table; `{"TableName": …, "TableStatus": "MISSING"}` for one that is not there."""
    return [await asyncio.to_thread(_describe, admin, prefix + table.name) for table in tables]


def _create(admin: Any, table: Table, prefix: str, protected: bool) -> str | None:
    protection = {"DeletionProtectionEnabled": True} if protected else {}
    try:
        admin.create_table(**definition(table, prefix), **protection)
    except ClientError as problem:
        if problem.response["Error"]["Code"] != "ResourceInUseException":
            raise
        return None
    return prefix + table.name


def _expire(admin: Any, name: str, attribute: str) -> None:
    """Switch TTL on unless it is: whoever made the table may have gone before doing so, or be about to."""
    if _expires(admin, name):
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        admin.update_time_to_live(TableName=name, TimeToLiveSpecification=specification)
    except ClientError:
        if not _expires(admin, name):
            raise


def _expires(admin: Any, name: str) -> bool:
    status = admin.describe_time_to_live(TableName=name)["TimeToLiveDescription"]["TimeToLiveStatus"]
    return status in ("ENABLED", "ENABLING")


async def _active(admin: Any, name: str) -> None:
    for _ in range(ACTIVE_TRIES):
        if (await asyncio.to_thread(_describe, admin, name))["TableStatus"] == "ACTIVE":
            return
        await asyncio.sleep(ACTIVE_POLL_SECONDS)
    raise TimeoutError(f"The table {name} is not active after two minutes.")


def _describe(admin: Any, name: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = admin.describe_table(TableName=name)["Table"]
    except ClientError as problem:
        if problem.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return {"TableName": name, "TableStatus": "MISSING"}
    return answer


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
