"""The tables as a CloudFormation template (JSON), with alarms and policies.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-table.html
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from datastore.infrastructure.alarms import Alarm, AlarmLevel
from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import FILES, Resource, managed_policies
from datastore.infrastructure.stack import BUCKET, TOPIC, Input, Properties, Stack, alarm_properties, lag_function
from datastore.infrastructure.tables import create_table_request
from datastore.model.access_patterns import Table

TAGS = [{"Key": "Application", "Value": "graphql-gateway"}]
RETAINED = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}


def cloudformation(
    tables: Sequence[Table],
    prefix: str = "",
    *,
    level: AlarmLevel = AlarmLevel.THROTTLING,
    roles: Sequence[IamRole] = (),
) -> str:
    """Return the template. Its inputs are parameters: `prefix` is the default of TablePrefix."""
    stack = Stack(tables, prefix, level, roles)
    template: Properties = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The tables of the GraphQL gateway",
        "Parameters": {_camel(one.name): _parameter(one, is_prefix=one is stack.prefix) for one in stack.inputs},
        "Conditions": {
            _condition(one): {"Fn::Not": [{"Fn::Equals": [{"Ref": _camel(one.name)}, ""]}]} for one in stack.options
        },
        "Resources": dict(_resources(stack)),
        "Outputs": dict(_outputs(stack)),
    }
    return json.dumps({name: part for name, part in template.items() if part}, indent=2)


def _parameter(one: Input, *, is_prefix: bool) -> Properties:
    default = {} if one.default is None else {"Default": one.default}
    pattern = {"AllowedPattern": "[A-Za-z0-9_.-]{0,60}"} if is_prefix else {}
    return {"Type": "String", **default, **pattern, "Description": one.description}


def _condition(one: Input) -> str:
    return f"Has{_camel(one.name)}"


def _resources(stack: Stack) -> Iterator[tuple[str, Properties]]:
    for table in stack.tables:
        yield _identifier(table), {"Type": "AWS::DynamoDB::Table", **RETAINED, "Properties": _table(table)}
    for alarm in stack.alarms:
        yield f"{_camel(alarm.table.name)}{alarm.key}Alarm", _alarm(alarm)
    for role in stack.roles:
        for identifier, document in _policies(role).items():
            properties = {"Description": f"For {role.summary}", "PolicyDocument": document}
            yield identifier, {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}


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
    return properties


def _alarm(alarm: Alarm) -> Properties:
    function = lag_function(alarm.table) if alarm.is_lag else None
    topic = {"Fn::If": [_condition(TOPIC), [{"Ref": _camel(TOPIC.name)}], {"Ref": "AWS::NoValue"}]}
    source = {"Ref": _camel(function.name) if function else _identifier(alarm.table)}
    properties = alarm_properties(alarm, topic=topic, source=source)
    if function:
        properties["Dimensions"] = _dimensions(properties["Dimensions"])
    for query in properties.get("Metrics", ()):
        if metric := query.pop("Metric", None):
            statistic = {"Period": metric.pop("Period"), "Stat": metric.pop("Stat")}
            metric["Dimensions"] = _dimensions(metric["Dimensions"])
            query["MetricStat"] = {"Metric": metric, **statistic}
    condition = {"Condition": _condition(function)} if function else {}
    return {"Type": "AWS::CloudWatch::Alarm", **condition, "Properties": properties}


def _dimensions(values: Properties) -> list[Properties]:
    return [{"Name": name, "Value": value} for name, value in values.items()]


def _policies(role: IamRole) -> dict[str, Properties]:
    return managed_policies(role, f"{_camel(role.name)}Policy", _arn)


def _arn(resource: Resource) -> Any:
    if resource.table is None:
        files = f"arn:${{AWS::Partition}}:s3:::${{{_camel(BUCKET.name)}}}"
        return {"Fn::Sub": files + ("/*" if resource == FILES else "")}
    identifier = _identifier(resource.table)
    if resource.kind == "index":
        return {"Fn::Sub": f"${{{identifier}.Arn}}/index/{resource.name}"}
    return {"Fn::GetAtt": [identifier, "StreamArn" if resource.kind == "stream" else "Arn"]}


def _outputs(stack: Stack) -> Iterator[tuple[str, Properties]]:
    for table in stack.streams():
        value = {"Fn::GetAtt": [_identifier(table), "StreamArn"]}
        yield f"{_camel(table.name)}StreamArn", {"Description": f"The stream of {table.name}", "Value": value}
    for role in stack.roles:
        for identifier in _policies(role):
            yield f"{identifier}Arn", {"Description": f"For {role.summary}", "Value": {"Ref": identifier}}


def _identifier(table: Table) -> str:
    return f"{_camel(table.name)}Table"


def _camel(name: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in name.split("-"))
