"""Least-privilege IAM policies, derived from the access patterns of each role.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazondynamodb.html
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from datastore.dynamodb.endpoints import aws_partition_of
from datastore.infrastructure.iam_roles import FileAction, IamRole
from datastore.model.access_patterns import AccessPattern, Table

VERSION = "2012-10-17"
# The quota of a managed policy, without white space.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
MAX_CHARACTERS = 6144
# TransactWriteItems has no permission of its own: each action in a transaction needs the permission of its kind.
TRANSACTION_ACTIONS = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
STREAM_ACTIONS = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
# Lambda also lists the streams.
TRIGGER_ACTIONS = (*STREAM_ACTIONS, "dynamodb:ListStreams")
DESCRIBE_ACTION = "dynamodb:DescribeTable"
CREATE_ACTIONS = (
    DESCRIBE_ACTION,
    "dynamodb:CreateTable",
    "dynamodb:DescribeContinuousBackups",
    "dynamodb:DescribeTimeToLive",
    "dynamodb:UpdateContinuousBackups",
    "dynamodb:UpdateTable",
    "dynamodb:UpdateTimeToLive",
)


@dataclass(frozen=True, slots=True)
class Resource:
    """An ARN's resource: a table, its index `name`, its stream, the photo bucket, or the files in the bucket."""

    kind: Literal["table", "index", "stream", "bucket", "files"]
    table: Table | None = None
    name: str = ""


BUCKET, FILES = Resource("bucket"), Resource("files")
Grant = tuple[str, Resource]


def grants(role: IamRole) -> Iterator[Grant]:
    """Yield each action that the role may take with its resource, possibly repeated."""
    for pattern in role.patterns:
        yield from grants_of(pattern)
    for tables, part, actions in (
        (role.streams, "stream", STREAM_ACTIONS),
        (role.triggers, "stream", TRIGGER_ACTIONS),
        (role.described, "table", (DESCRIBE_ACTION,)),
        (role.created, "table", CREATE_ACTIONS),
    ):
        yield from ((action, Resource(part, table)) for table in tables for action in actions)  # type: ignore[arg-type]
    yield from ((action.value, BUCKET if action is FileAction.LIST else FILES) for action in role.files)


def grants_of(pattern: AccessPattern) -> Iterator[Grant]:
    """Yield the grants that an access pattern needs. Only its Query uses its index."""
    table = Resource("table", pattern.table)
    for operation in pattern.operations:
        if operation == "Query" and pattern.index is not None:
            yield "dynamodb:Query", Resource("index", pattern.table, pattern.index)
        elif not operation.startswith("Transact"):
            yield f"dynamodb:{operation}", table
    for kind, target in pattern.transacted:
        yield TRANSACTION_ACTIONS[kind], Resource("table", target)


def policy(role: IamRole, arn: Callable[[Resource], Any]) -> dict[str, Any]:
    """Return the role's policy document. `arn` returns the ARN of a resource."""
    return _document(_statements(role), arn)


def managed_policies(
    role: IamRole, name: str, arn: Callable[[Resource], Any], separator: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the role's policy as managed policies, within the quota for names of any length.

    The key of a policy is `name`. Several policies are numbered, after the `separator`.
    """
    parts: list[list[_Statement]] = [[]]
    for statement in _statements(role):
        if len(json.dumps(_document([*parts[-1], statement], longest_arns()), separators=(",", ":"))) > MAX_CHARACTERS:
            parts.append([])
        parts[-1].append(statement)
    numbers = [""] if len(parts) == 1 else [f"{separator}{number + 1}" for number in range(len(parts))]
    return {name + number: _document(part, arn) for number, part in zip(numbers, parts, strict=True)}


_Statement = tuple[tuple[str, ...], list[Resource]]


def _statements(role: IamRole) -> list[_Statement]:
    """Group the resources by their sets of allowed actions."""
    actions: dict[Resource, set[str]] = {}
    for action, resource in grants(role):
        actions.setdefault(resource, set()).add(action)
    resources: dict[tuple[str, ...], list[Resource]] = {}
    for resource, allowed in actions.items():
        resources.setdefault(tuple(sorted(allowed)), []).append(resource)
    return sorted(resources.items(), key=lambda statement: statement[0])


def _document(statements: Sequence[_Statement], arn: Callable[[Resource], Any]) -> dict[str, Any]:
    entries = [
        {"Effect": "Allow", "Action": list(allowed), "Resource": [arn(resource) for resource in resources]}
        for allowed, resources in statements
    ]
    return {"Version": VERSION, "Statement": entries}


def arn_format(
    *, prefix: str, region: str | None = None, account: str | None = None, bucket: str | None = None
) -> Callable[[Resource], str]:
    """Return a function that formats the ARNs of the prefixed tables, of the bucket and of its files.

    Arguments that are None become placeholders for Fn::Sub. A stream gets a new ARN each time it is enabled, so its
    ARN is a wildcard for all streams of the table.
    """
    partition = "${AWS::Partition}" if region is None else aws_partition_of(region)
    tables = f"arn:{partition}:dynamodb:{region or '${AWS::Region}'}:{account or '${AWS::AccountId}'}:table/{prefix}"
    files = f"arn:{partition}:s3:::{bucket or '${PhotoBucket}'}"
    endings = {"table": "", "index": "/index/", "stream": "/stream/*"}

    def arn(resource: Resource) -> str:
        if resource.table is None:
            return files + ("/*" if resource == FILES else "")
        return f"{tables}{resource.table.name}{endings[resource.kind]}{resource.name}"

    return arn


@cache
def longest_arns() -> Callable[[Resource], str]:
    """Return a function that formats the longest possible ARNs: with the longest prefix, region and bucket name."""
    return arn_format(prefix="x" * 60, region="us-isof-south-1", account="0" * 12, bucket="x" * 63)
