"""The resources of an export, with the inputs that its user sets, for both formats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datastore.infrastructure.alarms import (
    BREACHING_MINUTES,
    EVALUATED_MINUTES,
    MAX_LAG_MS,
    PERIOD_SECONDS,
    Alarm,
    AlarmLevel,
    alarms_of,
)
from datastore.infrastructure.iam_roles import IamRole
from datastore.model.access_patterns import Table

Properties = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter or variable. It is required if its default is None."""

    #: Words separated by hyphens.
    name: str
    description: str
    default: str | None = ""


TOPIC = Input("alarm-topic", "The ARN of an SNS topic that alarms notify; empty for no notifications")
BUCKET = Input("photo-bucket", "The photo bucket: GATEWAY_PHOTO_BUCKET", None)


class Stack:
    """The tables with their alarms, and the policies of roles."""

    def __init__(self, tables: Sequence[Table], prefix: str, level: AlarmLevel, roles: Sequence[IamRole]) -> None:
        self.tables = tables
        self.roles = roles
        self.alarms = alarms_of(tables, level)
        self.prefix = Input("table-prefix", "The prefix of the table names: the gateway's --prefix", prefix)
        #: The inputs that may be empty.
        functions = [lag_function(alarm.table) for alarm in self.alarms if alarm.is_lag]
        self.options = [TOPIC, *functions] if self.alarms else []
        self.has_files = any(role.files for role in roles)

    @property
    def inputs(self) -> list[Input]:
        return [self.prefix, *self.options, *([BUCKET] if self.has_files else [])]

    def streams(self) -> Iterator[Table]:
        return (table for table in self.tables if table.stream)


def lag_function(table: Table) -> Input:
    return Input(f"{table.name}-function", f"The Lambda function that handles the stream of {table.name}")


def alarm_properties(alarm: Alarm, *, topic: Any, source: Any) -> Properties:
    """Return the properties of an alarm by the names in CloudWatch's API.

    `topic` and `source` are expressions for the topics to notify, and for the name of the table or Lambda function.
    """
    properties: Properties = {
        "AlarmDescription": alarm.description,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "EvaluationPeriods": EVALUATED_MINUTES,
        "DatapointsToAlarm": BREACHING_MINUTES,
        "TreatMissingData": "notBreaching",
        "AlarmActions": topic,
        "OKActions": topic,
    }
    if alarm.is_lag:
        return properties | {
            "Threshold": MAX_LAG_MS,
            "Namespace": "AWS/Lambda",
            "MetricName": alarm.key,
            "Dimensions": {"FunctionName": source},
            "Period": PERIOD_SECONDS,
            "Statistic": "Maximum",
        }
    metrics: list[Properties] = [
        {
            "Namespace": "AWS/DynamoDB",
            "MetricName": alarm.metric,
            "Dimensions": {"TableName": source, **dimensions},
            "Period": PERIOD_SECONDS,
            "Stat": "Sum",
        }
        for dimensions in alarm.dimensions
    ]
    queries: list[Properties] = [
        {"Id": f"m{number}", "ReturnData": False, "Metric": metric} for number, metric in enumerate(metrics)
    ]
    total = {"Id": "sum", "Expression": "SUM(METRICS())", "Label": alarm.key, "ReturnData": True}
    return properties | {"Threshold": 1, "Metrics": [*queries, total]}
