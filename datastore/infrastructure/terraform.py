"""The tables as Terraform resources in JSON (a `.tf.json` file), with alarms and policies.

https://developer.hashicorp.com/terraform/language/syntax/json
https://registry.terraform.io/providers/hashicorp/aws/latest/docs/resources/dynamodb_table
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from datastore.infrastructure import inputs
from datastore.infrastructure.alarms import (
    BREACHING_MINUTES,
    EVALUATED_MINUTES,
    MAX_LAG_MS,
    PERIOD_SECONDS,
    Alarm,
    AlarmLevel,
    LagAlarm,
    Metric,
    alarms_of,
    lag_alarms,
)
from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import FILES, Resource, policies, policy_names
from datastore.infrastructure.tables import create_table_request
from datastore.model.access_patterns import Index, Table

Block = dict[str, Any]
Named = Iterator[tuple[str, Block]]

TAGS = {"Application": "graphql-gateway"}
TOPIC = '${var.alarm_topic == "" ? [] : [var.alarm_topic]}'


def terraform(
    tables: Sequence[Table],
    prefix: str = "",
    *,
    level: AlarmLevel = AlarmLevel.THROTTLING,
    roles: Sequence[IamRole] = (),
) -> str:
    """Return the file. Its inputs are variables: `prefix` is the default of `table_prefix`."""
    lags = lag_alarms(tables, level)
    resources = {
        "aws_dynamodb_table": {_name(table): _table(table) for table in tables},
        "aws_cloudwatch_metric_alarm": dict(_alarms(tables, level, lags)),
        "aws_iam_policy": dict(_policies(roles)),
    }
    data: Block = {"aws_partition": {"current": {}}} if any(role.files for role in roles) else {}
    file = {
        "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws", "version": ">= 5.0"}}},
        "variable": dict(_variables(prefix, level, lags, roles)),
        "data": data,
        "resource": {kind: blocks for kind, blocks in resources.items() if blocks},
        "output": dict(_outputs(tables, roles)),
    }
    return json.dumps({name: part for name, part in file.items() if part}, indent=2)


def _variables(prefix: str, level: AlarmLevel, lags: Sequence[LagAlarm], roles: Sequence[IamRole]) -> Named:
    yield "table_prefix", _variable(inputs.TABLE_PREFIX, prefix)
    if level is not AlarmLevel.NOTHING:
        yield "alarm_topic", _variable(inputs.TOPIC)
    for lag in lags:
        yield f"{_name(lag.table)}_function", _variable(inputs.lag_function(lag.table))
    if any(role.files for role in roles):
        yield "photo_bucket", {"type": "string", "description": inputs.BUCKET}
    if roles:
        yield "policy_prefix", _variable("The prefix of the policy names", "graphql-")


def _variable(description: str, default: str = "") -> Block:
    return {"type": "string", "description": description, "default": default}


def _table(table: Table) -> Block:
    block: Block = {
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


def _index(index: Index) -> Block:
    block: Block = {"name": index.name, **_keys(index)}
    if isinstance(index.projection, tuple):
        return block | {"projection_type": "INCLUDE", "non_key_attributes": list(index.projection)}
    return block | {"projection_type": index.projection}


def _keys(source: Table | Index) -> Block:
    return {"hash_key": source.partition} | ({"range_key": source.sort} if source.sort else {})


def _alarms(tables: Sequence[Table], level: AlarmLevel, lags: Sequence[LagAlarm]) -> Named:
    for table in tables:
        for alarm in alarms_of(table, level):
            yield _alarm_name(alarm), _alarm(alarm)
    for lag in lags:
        yield _alarm_name(lag), _lag_alarm(lag)


def _alarm_name(alarm: Alarm | LagAlarm) -> str:
    return f"{_name(alarm.table)}_{alarm.key}"


def _alarm(alarm: Alarm) -> Block:
    queries: list[Block] = [
        {"id": f"m{number}", "return_data": False, "metric": _statistic(alarm.table, metric)}
        for number, metric in enumerate(alarm.metrics)
    ]
    queries.append({"id": "sum", "expression": "SUM(METRICS())", "label": alarm.key, "return_data": True})
    return {**_alarm_arguments(alarm), "threshold": 1, "metric_query": queries}


def _statistic(table: Table, metric: Metric) -> Block:
    return {
        "namespace": "AWS/DynamoDB",
        "metric_name": metric.name,
        "dimensions": metric.dimensions(f"${{aws_dynamodb_table.{_name(table)}.name}}"),
        "period": PERIOD_SECONDS,
        "stat": "Sum",
    }


def _lag_alarm(lag: LagAlarm) -> Block:
    function = f"var.{_name(lag.table)}_function"
    return {
        "count": f'${{{function} == "" ? 0 : 1}}',
        **_alarm_arguments(lag),
        "threshold": MAX_LAG_MS,
        "namespace": "AWS/Lambda",
        "metric_name": lag.key,
        "dimensions": {"FunctionName": f"${{{function}}}"},
        "period": PERIOD_SECONDS,
        "statistic": "Maximum",
    }


def _alarm_arguments(alarm: Alarm | LagAlarm) -> Block:
    return {
        "alarm_name": f"${{var.table_prefix}}{alarm.table.name}-{alarm.key}",
        "alarm_description": alarm.description,
        "comparison_operator": "GreaterThanOrEqualToThreshold",
        "evaluation_periods": EVALUATED_MINUTES,
        "datapoints_to_alarm": BREACHING_MINUTES,
        "treat_missing_data": "notBreaching",
        "alarm_actions": TOPIC,
        "ok_actions": TOPIC,
    }


def _policies(roles: Sequence[IamRole]) -> Named:
    for role in roles:
        documents = policies(role, _arn)
        for name, document in zip(policy_names(role, role.name, "-"), documents, strict=True):
            yield (
                name.replace("-", "_"),
                {
                    "name": f"${{var.policy_prefix}}{name}",
                    "description": f"For {role.summary}",
                    "policy": json.dumps(document, separators=(",", ":")),
                },
            )


def _arn(resource: Resource) -> str:
    if resource.table is None:
        return "arn:${data.aws_partition.current.partition}:s3:::${var.photo_bucket}" + (
            "/*" if resource == FILES else ""
        )
    table = f"aws_dynamodb_table.{_name(resource.table)}"
    if resource.kind == "stream":
        return f"${{{table}.stream_arn}}"
    return f"${{{table}.arn}}" + (f"/index/{resource.name}" if resource.kind == "index" else "")


def _outputs(tables: Sequence[Table], roles: Sequence[IamRole]) -> Named:
    for table in tables:
        if table.stream:
            value = f"${{aws_dynamodb_table.{_name(table)}.stream_arn}}"
            yield f"{_name(table)}_stream_arn", {"description": f"The stream of {table.name}", "value": value}
    for role in roles:
        for name in policy_names(role, role.name, "-"):
            identifier = name.replace("-", "_")
            value = f"${{aws_iam_policy.{identifier}.arn}}"
            yield f"{identifier}_policy_arn", {"description": f"For {role.summary}", "value": value}


def _name(table: Table) -> str:
    return table.name.replace("-", "_")
