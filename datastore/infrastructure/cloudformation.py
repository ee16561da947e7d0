"""The tables as a CloudFormation template (JSON), with alarms and policies.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-table.html
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from datastore.infrastructure import inputs
from datastore.infrastructure.alarms import (
    BAD_MINUTES,
    MINUTES,
    MOST_BEHIND_MILLISECONDS,
    PERIOD_SECONDS,
    Alarm,
    Lag,
    Metric,
    Watched,
    alarms_of,
    lags,
)
from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import FILES, Resource, numbered, policies
from datastore.infrastructure.tables import definition
from datastore.model.access_patterns import Table

Properties = dict[str, Any]
Named = Iterator[tuple[str, Properties]]

TAGS = [{"Key": "Application", "Value": "graphql-gateway"}]
KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
HAS_TOPIC = "HasAlarmTopic"


def cloudformation(
    tables: Sequence[Table], prefix: str = "", *, watched: Watched = Watched.THROTTLING, roles: Sequence[IamRole] = ()
) -> str:
    """The template. What the stack is given by parameters: `prefix` is the default of one of them."""
    behind = lags(tables, watched)
    template: Properties = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The tables of the GraphQL gateway",
        "Parameters": dict(_parameters(prefix, watched, behind, roles)),
        "Conditions": dict(_conditions(watched, behind)),
        "Resources": dict(_resources(tables, watched, behind, roles)),
        "Outputs": dict(_outputs(tables, roles)),
    }
    return json.dumps({name: part for name, part in template.items() if part}, indent=2)


def _parameters(prefix: str, watched: Watched, behind: Sequence[Lag], roles: Sequence[IamRole]) -> Named:
    yield (
        "TablePrefix",
        {
            "Type": "String",
            "Default": prefix,
            "AllowedPattern": "[A-Za-z0-9_.-]{0,60}",
            "Description": inputs.PREFIX,
        },
    )
    if watched is not Watched.NOTHING:
        yield "AlarmTopic", _optional(inputs.TOPIC)
    for lag in behind:
        yield f"{_words(lag.table)}Function", _optional(inputs.function(lag.table))
    if any(role.files for role in roles):
        yield "PhotoBucket", {"Type": "String", "Description": inputs.BUCKET}


def _optional(description: str) -> Properties:
    return {"Type": "String", "Default": "", "Description": description}


def _conditions(watched: Watched, behind: Sequence[Lag]) -> Named:
    if watched is not Watched.NOTHING:
        yield HAS_TOPIC, _is_given("AlarmTopic")
    for lag in behind:
        yield f"Has{_words(lag.table)}Function", _is_given(f"{_words(lag.table)}Function")


def _is_given(parameter: str) -> Properties:
    return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, ""]}]}


def _resources(tables: Sequence[Table], watched: Watched, behind: Sequence[Lag], roles: Sequence[IamRole]) -> Named:
    for table in tables:
        yield _identifier(table), _table(table)
    for table in tables:
        for alarm in alarms_of(table, watched):
            yield f"{_words(table)}{alarm.key}Alarm", _alarm(alarm)
    for lag in behind:
        yield f"{_words(lag.table)}{lag.key}Alarm", _lag(lag)
    for role in roles:
        yield from _policies(role)


def _table(table: Table) -> Properties:
    properties = definition(table)
    properties["TableName"] = {"Fn::Sub": f"${{TablePrefix}}{table.name}"}
    if table.stream:
        properties["StreamSpecification"] = {"StreamViewType": table.stream}
    if table.ttl:
        properties["TimeToLiveSpecification"] = {"Enabled": True, "AttributeName": table.ttl}
    properties["PointInTimeRecoverySpecification"] = {"PointInTimeRecoveryEnabled": True}
    properties["DeletionProtectionEnabled"] = True
    properties["Tags"] = TAGS
    return {"Type": "AWS::DynamoDB::Table", **KEPT, "Properties": properties}


def _alarm(alarm: Alarm) -> Properties:
    metrics: list[Properties] = [
        {"Id": f"m{number}", "ReturnData": False, "MetricStat": _statistic(alarm.table, metric)}
        for number, metric in enumerate(alarm.metrics)
    ]
    metrics.append({"Id": "sum", "Expression": "SUM(METRICS())", "Label": alarm.key, "ReturnData": True})
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {**_told(alarm.description), "Threshold": 1, "Metrics": metrics},
    }


def _statistic(table: Table, metric: Metric) -> Properties:
    dimensions = metric.dimensions({"Ref": _identifier(table)})
    return {
        "Metric": {"Namespace": "AWS/DynamoDB", "MetricName": metric.name, "Dimensions": _dimensions(dimensions)},
        "Period": PERIOD_SECONDS,
        "Stat": "Sum",
    }


def _lag(lag: Lag) -> Properties:
    function = f"{_words(lag.table)}Function"
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Condition": f"Has{function}",
        "Properties": {
            **_told(lag.description),
            "Threshold": MOST_BEHIND_MILLISECONDS,
            "Namespace": "AWS/Lambda",
            "MetricName": lag.key,
            "Dimensions": _dimensions({"FunctionName": {"Ref": function}}),
            "Period": PERIOD_SECONDS,
            "Statistic": "Maximum",
        },
    }


def _dimensions(values: Properties) -> list[Properties]:
    return [{"Name": name, "Value": value} for name, value in values.items()]


def _told(description: str) -> Properties:
    topic = {"Fn::If": [HAS_TOPIC, [{"Ref": "AlarmTopic"}], {"Ref": "AWS::NoValue"}]}
    return {
        "AlarmDescription": description,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "EvaluationPeriods": MINUTES,
        "DatapointsToAlarm": BAD_MINUTES,
        "TreatMissingData": "notBreaching",
        "AlarmActions": topic,
        "OKActions": topic,
    }


def _policies(role: IamRole) -> Named:
    for identifier, document in zip(_policy_names(role), policies(role, _arn), strict=True):
        properties = {"Description": f"For {role.summary}", "PolicyDocument": document}
        yield identifier, {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}


def _policy_names(role: IamRole) -> list[str]:
    return numbered(role, f"{_camel(role.name)}Policy")


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
            yield f"{_words(table)}StreamArn", {"Description": f"The stream of {table.name}", "Value": value}
    for role in roles:
        for identifier in _policy_names(role):
            yield f"{identifier}Arn", {"Description": f"For {role.summary}", "Value": {"Ref": identifier}}


def _identifier(table: Table) -> str:
    return f"{_words(table)}Table"


def _words(table: Table) -> str:
    return _camel(table.name)


def _camel(name: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in name.split("-"))
