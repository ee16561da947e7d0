"""The least that each process must be allowed in AWS, derived from the access patterns of its role.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazondynamodb.html
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from datastore.dynamodb.endpoints import partition_of
from datastore.infrastructure.iam_roles import Files, IamRole
from datastore.model.access_patterns import AccessPattern, Table

VERSION = "2012-10-17"
# What a managed policy may have, without white space.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
MOST_CHARACTERS = 6144
# TransactWriteItems and TransactGetItems have no rights of their own: each of their actions needs that of its kind.
OF_AN_ACTION = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
FOLLOW = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
# Lambda looks for the stream itself.
BE_TRIGGERED = (*FOLLOW, "dynamodb:ListStreams")
DESCRIBE = "dynamodb:DescribeTable"
MAKE = (
    DESCRIBE,
    "dynamodb:CreateTable",
    "dynamodb:DescribeContinuousBackups",
    "dynamodb:DescribeTimeToLive",
    "dynamodb:UpdateContinuousBackups",
    "dynamodb:UpdateTable",
    "dynamodb:UpdateTimeToLive",
)


@dataclass(frozen=True, slots=True)
class Resource:
    """What an ARN names: a table, its index of that `name`, its stream; the bucket of photos, or the files in it."""

    kind: Literal["table", "index", "stream", "bucket", "files"]
    table: Table | None = None
    name: str = ""


BUCKET, FILES = Resource("bucket"), Resource("files")
Grant = tuple[str, Resource]


def grants(role: IamRole) -> Iterator[Grant]:
    """Each action that the role may take, with what it may be taken on. Some come more than once."""
    for pattern in role.patterns:
        yield from grants_of(pattern)
    for tables, part, actions in (
        (role.follows, "stream", FOLLOW),
        (role.triggered, "stream", BE_TRIGGERED),
        (role.described, "table", (DESCRIBE,)),
        (role.made, "table", MAKE),
    ):
        yield from ((action, Resource(part, table)) for table in tables for action in actions)  # type: ignore[arg-type]
    yield from ((action.value, BUCKET if action is Files.LIST else FILES) for action in role.files)


def grants_of(pattern: AccessPattern) -> Iterator[Grant]:
    """What an access pattern needs. Its index is for its Query: all else is done to the table."""
    table = Resource("table", pattern.table)
    for operation in pattern.operations:
        if operation == "Query" and pattern.index is not None:
            yield "dynamodb:Query", Resource("index", pattern.table, pattern.index)
        elif not operation.startswith("Transact"):
            yield f"dynamodb:{operation}", table
    for kind, place in pattern.transacted:
        yield OF_AN_ACTION[kind], Resource("table", place)


def policy(role: IamRole, arn: Callable[[Resource], Any]) -> dict[str, Any]:
    """The role's policy, as IAM takes it. `arn` names resources."""
    return _document(_alike(role), arn)


def policies(role: IamRole, arn: Callable[[Resource], Any]) -> list[dict[str, Any]]:
    """The same as managed policies, as few as can be: each is short enough whatever tables and buckets are called."""
    parts: list[list[_Statement]] = [[]]
    for statement in _alike(role):
        if len(json.dumps(_document([*parts[-1], statement], LONGEST), separators=(",", ":"))) > MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(statement)
    return [_document(part, arn) for part in parts]


def numbered(role: IamRole, name: str, between: str = "") -> list[str]:
    """What its managed policies are called: the name, and where there are several each with its number."""
    count = len(policies(role, str))
    return [name] if count == 1 else [f"{name}{between}{number + 1}" for number in range(count)]


_Statement = tuple[tuple[str, ...], list[Resource]]


def _alike(role: IamRole) -> list[_Statement]:
    """Actions with the resources that they are allowed on: what is allowed alike stands together."""
    actions: dict[Resource, set[str]] = {}
    for action, resource in grants(role):
        actions.setdefault(resource, set()).add(action)
    alike: dict[tuple[str, ...], list[Resource]] = {}
    for resource, allowed in actions.items():
        alike.setdefault(tuple(sorted(allowed)), []).append(resource)
    return sorted(alike.items(), key=lambda one: one[0])


def _document(statements: Sequence[_Statement], arn: Callable[[Resource], Any]) -> dict[str, Any]:
    written = [
        {"Effect": "Allow", "Action": list(allowed), "Resource": [arn(resource) for resource in resources]}
        for allowed, resources in statements
    ]
    return {"Version": VERSION, "Statement": written}


def named(
    *, prefix: str, region: str | None = None, account: str | None = None, bucket: str | None = None
) -> Callable[[Resource], str]:
    """ARNs of tables whose names begin so, and of a bucket's files. What is not told is for Fn::Sub to replace.

    A stream has another ARN whenever it is switched on: any of the table's counts.
    """
    partition = "${AWS::Partition}" if region is None else partition_of(region)
    tables = f"arn:{partition}:dynamodb:{region or '${AWS::Region}'}:{account or '${AWS::AccountId}'}:table/{prefix}"
    files = f"arn:{partition}:s3:::{bucket or '${PhotoBucket}'}"
    endings = {"table": "", "index": "/index/", "stream": "/stream/*"}

    def arn(resource: Resource) -> str:
        if resource.table is None:
            return files + ("/*" if resource == FILES else "")
        return f"{tables}{resource.table.name}{endings[resource.kind]}{resource.name}"

    return arn


# As long as they can be: prefixes of that length are taken, and no partition and region have longer names.
LONGEST = named(prefix="x" * 60, region="us-isof-south-1", account="0" * 12, bucket="x" * 63)
