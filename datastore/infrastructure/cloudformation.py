"""The tables as a CloudFormation template (JSON), with alarms and policies.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-table.html
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
from datastore.model.access_patterns import Table

Properties = dict[str, Any]
Named = Iterator[tuple[str, Properties]]

TAGS = [{"Key": "Application", "Value": "graphql-gateway"}]
RETAINED = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
HAS_TOPIC = "HasAlarmTopic"


def cloudformation(
    tables: Sequence[Table],
    prefix: str = "",
    *,
    level: AlarmLevel = AlarmLevel.THROTTLING,
    roles: Sequence[IamRole] = (),
) -> str:
    """Return the template. Its inputs are parameters: `prefix` is the default of TablePrefix."""
    lags = lag_alarms(tables, level)
    template: Properties = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The tables of the GraphQL gateway",
        "Parameters": dict(_parameters(prefix, level, lags, roles)),
        "Conditions": dict(_conditions(level, lags)),
        "Resources": dict(_resources(tables, level, lags, roles)),
        "Outputs": dict(_outputs(tables, roles)),
    }
    return json.dumps({name: part for name, part in template.items() if part}, indent=2)


def _parameters(prefix: str, level: AlarmLevel, lags: Sequence[LagAlarm], roles: Sequence[IamRole]) -> Named:
    yield (
        "TablePrefix",
        {
            "Type": "String",
            "Default": prefix,
            "AllowedPattern": "[A-Za-z0-9_.-]{0,60}",
            "Description": inputs.TABLE_PREFIX,
        },
    )
    if level is not AlarmLevel.NOTHING:
        yield "AlarmTopic", _optional(inputs.TOPIC)
    for lag in lags:
        yield f"{_camel_name(lag.table)}Function", _optional(inputs.lag_function(lag.table))
    if any(role.files for role in roles):
        yield "PhotoBucket", {"Type": "String", "Description": inputs.BUCKET}


def _optional(description: str) -> Properties:
    return {"Type": "String", "Default": "", "Description": description}


def _conditions(level: AlarmLevel, lags: Sequence[LagAlarm]) -> Named:
    if level is not AlarmLevel.NOTHING:
        yield HAS_TOPIC, _is_set("AlarmTopic")
    for lag in lags:
        yield f"Has{_camel_name(lag.table)}Function", _is_set(f"{_camel_name(lag.table)}Function")


def _is_set(parameter: str) -> Properties:
    return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, ""]}]}


def _resources(tables: Sequence[Table], level: AlarmLevel, lags: Sequence[LagAlarm], roles: Sequence[IamRole]) -> Named:
    for table in tables:
        yield _identifier(table), _table(table)
    for table in tables:
        for alarm in alarms_of(table, level):
            yield f"{_camel_name(table)}{alarm.key}Alarm", _alarm(alarm)
    for lag in lags:
        yield f"{_camel_name(lag.table)}{lag.key}Alarm", _lag_alarm(lag)
    for role in roles:
        yield from _policies(role)


def _table(table: Table) -> Properties:
    properties = create_table_request(table)
    properties["TableName"] = {"Fn::Sub": f"${{TablePrefix}}{table.name}"}
    if table.stream:
        properties["StreamSpecification"] = {"StreamViewType": table.stream}
    if table.ttl:
        properties["TimeToLiveSpecification"] = {"Enabled": True, "AttributeName": table.ttl}
    properties["PointInTimeRecoverySpecification"] = {"PointInTimeRecoveryEnabled": True}
    properties["DeletionProtectionEnabled"] = True
    properties["Tags"] = TAGS
    return {"Type": "AWS::DynamoDB::Table", **RETAINED, "Properties": properties}


def _alarm(alarm: Alarm) -> Properties:
    metrics: list[Properties] = [
        {"Id": f"m{number}", "ReturnData": False, "MetricStat": _statistic(alarm.table, metric)}
        for number, metric in enumerate(alarm.metrics)
    ]
    metrics.append({"Id": "sum", "Expression": "SUM(METRICS())", "Label": alarm.key, "ReturnData": True})
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {**_alarm_properties(alarm.description), "Threshold": 1, "Metrics": metrics},
    }


def _statistic(table: Table, metric: Metric) -> Properties:
    dimensions = metric.dimensions({"Ref": _identifier(table)})
    return {
        "Metric": {"Namespace": "AWS/DynamoDB", "MetricName": metric.name, "Dimensions": _dimensions(dimensions)},
        "Period": PERIOD_SECONDS,
        "Stat": "Sum",
    }


def _lag_alarm(lag: LagAlarm) -> Properties:
    function = f"{_camel_name(lag.table)}Function"
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Condition": f"Has{function}",
        "Properties": {
            **_alarm_properties(lag.description),
            "Threshold": MAX_LAG_MS,
            "Namespace": "AWS/Lambda",
            "MetricName": lag.key,
            "Dimensions": _dimensions({"FunctionName": {"Ref": function}}),
            "Period": PERIOD_SECONDS,
            "Statistic": "Maximum",
        },
    }


def _dimensions(values: Properties) -> list[Properties]:
    return [{"Name": name, "Value": value} for name, value in values.items()]


def _alarm_properties(description: str) -> Properties:
    topic = {"Fn::If": [HAS_TOPIC, [{"Ref": "AlarmTopic"}], {"Ref": "AWS::NoValue"}]}
    return {
        "AlarmDescription": description,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "EvaluationPeriods": EVALUATED_MINUTES,
        "DatapointsToAlarm": BREACHING_MINUTES,
        "TreatMissingData": "notBreaching",
        "AlarmActions": topic,
        "OKActions": topic,
    }


def _policies(role: IamRole) -> Named:
    for identifier, document in zip(_policy_names(role), policies(role, _arn), strict=True):
        properties = {"Description": f"For {role.summary}", "PolicyDocument": document}
        yield identifier, {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}


def _policy_names(role: IamRole) -> list[str]:
    return policy_names(role, f"{_camel(role.name)}Policy")


def _arn(resource: Resource) -> Any:
    if resource.table is None:
        return {"Fn::Sub": "arn:${AWS::Partition}:s3:::${PhotoBucket}" + ("/*" if resource == FILES else "")}
    identifier = _identifier(resource.table)
    if resource.kind == "index":
        return {"Fn::Sub": f"${{{identifier}.Arn}}/index/{resource.name}"}
    return {"Fn::GetAtt": [identifier, "StreamArn" if resource.kind == "stream" else "Arn"]}


def _outputs(tables: Sequence[Table], roles: Sequence[IamRole]) -> Named:
    for table in tables:
        if table.stream:
            value = {"Fn::GetAtt": [_identifier(table), "StreamArn"]}
            yield f"{_camel_name(table)}StreamArn", {"Description": f"The stream of {table.name}", "Value": value}
    for role in roles:
        for identifier in _policy_names(role):
            yield f"{identifier}Arn", {"Description": f"For {role.summary}", "Value": {"Ref": identifier}}


def _identifier(table: Table) -> str:
    return f"{_camel_name(table)}Table"


def _camel_name(table: Table) -> str:
    return _camel(table.name)


def _camel(name: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in name.split("-"))
