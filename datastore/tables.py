"""Tables in the store: created, described and exported from their declarations (table administration is boto3's)."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from datastore.declarations import Index, Table

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


async def create(admin: Any, tables: Sequence[Table], prefix: str = "") -> list[str]:
    """Create what does not exist, wait until all is active, switch TTL on. The names of the tables that were made."""
    made = [name for table in tables if (name := await asyncio.to_thread(_create, admin, table, prefix))]
    for table in tables:
        await _active(admin, prefix + table.name)
        if table.ttl:
            await asyncio.to_thread(_expire, admin, prefix + table.name, table.ttl)
    return made


async def describe(admin: Any, tables: Sequence[Table], prefix: str = "") -> list[dict[str, Any]]:
    """DescribeTable's answer for each table; `{"TableName": …, "TableStatus": "MISSING"}` for one that is not there."""
    return [await asyncio.to_thread(_describe, admin, prefix + table.name) for table in tables]


def _create(admin: Any, table: Table, prefix: str) -> str | None:
    try:
        admin.create_table(**definition(table, prefix))
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


def cloudformation(tables: Sequence[Table], prefix: str = "") -> str:
    """A CloudFormation template (JSON) of the tables."""
    return json.dumps(
        {
            "AWSTemplateFormatVersion": "2010-09-09",
            "Description": "The tables of the GraphQL gateway",
            "Resources": {_identifier(table): _resource(table, prefix) for table in tables},
        },
        indent=2,
    )


def _resource(table: Table, prefix: str) -> dict[str, Any]:
    properties = definition(table, prefix)
    if table.stream:
        properties["StreamSpecification"] = {"StreamViewType": table.stream}
    if table.ttl:
        properties["TimeToLiveSpecification"] = {"Enabled": True, "AttributeName": table.ttl}
    properties["PointInTimeRecoverySpecification"] = {"PointInTimeRecoveryEnabled": True}
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": properties,
    }


def terraform(tables: Sequence[Table], prefix: str = "") -> str:
    """Terraform resources (HCL) of the tables."""
    return "\n\n".join(_terraform_table(table, prefix) for table in tables)


def _terraform_table(table: Table, prefix: str) -> str:
    lines = [
        f'resource "aws_dynamodb_table" "{table.name.replace("-", "_")}" {{',
        f'  name         = "{prefix}{table.name}"',
        '  billing_mode = "PAY_PER_REQUEST"',
        f'  hash_key     = "{table.partition}"',
    ]
    if table.sort:
        lines.append(f'  range_key    = "{table.sort}"')
    if table.stream:
        lines += ["", "  stream_enabled   = true", f'  stream_view_type = "{table.stream}"']
    for attribute in _attributes(table):
        name, kind = attribute["AttributeName"], attribute["AttributeType"]
        lines += ["", "  attribute {", f'    name = "{name}"', f'    type = "{kind}"', "  }"]
    for index in table.indexes:
        lines += _terraform_index(index)
    if table.ttl:
        lines += ["", "  ttl {", f'    attribute_name = "{table.ttl}"', "    enabled        = true", "  }"]
    lines += ["", "  point_in_time_recovery {", "    enabled = true", "  }", "}"]
    return "\n".join(lines)


def _terraform_index(index: Index) -> list[str]:
    projection = _projection(index)
    settings: dict[str, Any] = {"name": index.name, "hash_key": index.partition}
    if index.sort:
        settings["range_key"] = index.sort
    settings["projection_type"] = projection["ProjectionType"]
    if "NonKeyAttributes" in projection:
        settings["non_key_attributes"] = projection["NonKeyAttributes"]
    width = max(map(len, settings))  # as `terraform fmt` aligns them
    lines = [f"    {name:<{width}} = {json.dumps(value)}" for name, value in settings.items()]
    return ["", "  global_secondary_index {", *lines, "  }"]


def _identifier(table: Table) -> str:
    return "".join(word[0].upper() + word[1:] for word in table.name.split("-")) + "Table"


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
