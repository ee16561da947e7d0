"""The tables as Terraform resources in JSON (a `.tf.json` file), with alarms and policies.

https://developer.hashicorp.com/terraform/language/syntax/json
https://registry.terraform.io/providers/hashicorp/aws/latest/docs/resources/dynamodb_table
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from datastore.infrastructure.alarms import Alarm, AlarmLevel
from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import FILES, Resource, managed_policies
from datastore.infrastructure.stack import BUCKET, Input, Properties, Stack, alarm_properties, lag_function
from datastore.infrastructure.tables import create_table_request
from datastore.model.access_patterns import Index, Table

TAGS = {"Application": "graphql-gateway"}
TOPICS = '${var.alarm_topic == "" ? [] : [var.alarm_topic]}'


def terraform(
    tables: Sequence[Table],
    prefix: str = "",
    *,
    level: AlarmLevel = AlarmLevel.THROTTLING,
    roles: Sequence[IamRole] = (),
) -> str:
    """Return the file. Its inputs are variables: `prefix` is the default of `table_prefix`."""
    stack = Stack(tables, prefix, level, roles)
    inputs = [*stack.inputs, *([Input("policy-prefix", "The prefix of the policy names", "graphql-")] if roles else [])]
    resources = {
        "aws_dynamodb_table": {_name(table.name): _table(table) for table in tables},
        "aws_cloudwatch_metric_alarm": {
            f"{_name(alarm.table.name)}_{alarm.key}": _alarm(alarm) for alarm in stack.alarms
        },
        "aws_iam_policy": {
            _name(name): _policy(role, name, document) for role in roles for name, document in _policies(role).items()
        },
    }
    file: Properties = {
        "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws", "version": ">= 5.0"}}},
        "variable": {_name(one.name): _variable(one) for one in inputs},
        "data": {"aws_partition": {"current": {}}} if stack.has_files else {},
        "resource": {kind: blocks for kind, blocks in resources.items() if blocks},
        "output": dict(_outputs(stack)),
    }
    return json.dumps({name: part for name, part in file.items() if part}, indent=2)


def _variable(one: Input) -> Properties:
    default = {} if one.default is None else {"default": one.default}
    return {"type": "string", "description": one.description, **default}


def _table(table: Table) -> Properties:
    block: Properties = {
        "name": f"${{var.table_prefix}}{table.name}",
        "billing_mode": "PAY_PER_REQUEST",
        **_keys(table),
        "attribute": [
            {"name": attribute["AttributeName"], "type": attribute["AttributeType"]}
            for attribute in create_table_request(table)["AttributeDefinitions"]
        ],
    }
    if table.indexes:
        block["global_secondary_index"] = [_index(index) for index in table.indexes]
    if table.stream:
        block |= {"stream_enabled": True, "stream_view_type": table.stream}
    if table.ttl:
        block["ttl"] = {"attribute_name": table.ttl, "enabled": True}
    return block | {
        "point_in_time_recovery": {"enabled": True},
        "deletion_protection_enabled": True,
        "tags": TAGS,
        "lifecycle": {"prevent_destroy": True},
    }


def _index(index: Index) -> Properties:
    block: Properties = {"name": index.name, **_keys(index)}
    if isinstance(index.projection, tuple):
        return block | {"projection_type": "INCLUDE", "non_key_attributes": list(index.projection)}
    return block | {"projection_type": index.projection}


def _keys(source: Table | Index) -> Properties:
    return {"hash_key": source.partition} | ({"range_key": source.sort} if source.sort else {})


def _alarm(alarm: Alarm) -> Properties:
    count, source = {}, f"${{aws_dynamodb_table.{_name(alarm.table.name)}.name}}"
    if alarm.is_lag:
        function = f"var.{_name(lag_function(alarm.table).name)}"
        count, source = {"count": f'${{{function} == "" ? 0 : 1}}'}, f"${{{function}}}"
    arguments = _arguments(alarm_properties(alarm, topic=TOPICS, source=source))
    if "metrics" in arguments:
        arguments["metric_query"] = arguments.pop("metrics")
    return {**count, "alarm_name": f"${{var.table_prefix}}{alarm.table.name}-{alarm.key}", **arguments}


def _arguments(properties: Properties) -> Properties:
    """Return properties by the names of Terraform's arguments: `metric_name` for `MetricName`."""
    return {
        re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", name).lower(): value if name == "Dimensions" else _argument(value)
        for name, value in properties.items()
    }


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return [_argument(part) for part in value]
    return _arguments(value) if isinstance(value, dict) else value


def _policies(role: IamRole) -> dict[str, Properties]:
    return managed_policies(role, role.name, _arn, "-")


def _policy(role: IamRole, name: str, document: Properties) -> Properties:
    return {
        "name": f"${{var.policy_prefix}}{name}",
        "description": f"For {role.summary}",
        "policy": json.dumps(document, separators=(",", ":")),
    }


def _arn(resource: Resource) -> str:
    if resource.table is None:
        files = f"arn:${{data.aws_partition.current.partition}}:s3:::${{var.{_name(BUCKET.name)}}}"
        return files + ("/*" if resource == FILES else "")
    table = f"aws_dynamodb_table.{_name(resource.table.name)}"
    if resource.kind == "stream":
        return f"${{{table}.stream_arn}}"
    return f"${{{table}.arn}}" + (f"/index/{resource.name}" if resource.kind == "index" else "")


def _outputs(stack: Stack) -> Iterator[tuple[str, Properties]]:
    for table in stack.streams():
        value = f"${{aws_dynamodb_table.{_name(table.name)}.stream_arn}}"
        yield f"{_name(table.name)}_stream_arn", {"description": f"The stream of {table.name}", "value": value}
    for role in stack.roles:
        for name in _policies(role):
            value = f"${{aws_iam_policy.{_name(name)}.arn}}"
            yield f"{_name(name)}_policy_arn", {"description": f"For {role.summary}", "value": value}


def _name(name: str) -> str:
    return name.replace("-", "_")
