"""The permissions that calls need in AWS, and whether an IAM policy allows them, for the policies used here."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import arn_format, policy

REGION, ACCOUNT = "eu-central-1", "123456789012"
TABLES = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/"
OF_A_STREAM = ("DescribeStream", "GetShardIterator", "GetRecords")
# The actions of a transaction's parts.
RIGHTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}

Need = tuple[str, str]


def needs(operation: str, request: Mapping[str, Any]) -> Iterator[Need]:
    """Yield the actions that a call needs, each with the ARN of a table without
    its prefix, or of its index or stream.
    """
    if operation == "TransactWriteItems":
        actions = [one for item in request["TransactItems"] for one in item.items()]
        yield from ((f"dynamodb:{RIGHTS[kind]}", _arn(body["TableName"])) for kind, body in actions)
    elif operation in OF_A_STREAM:
        # An iterator does not name its stream: it is one that the process follows.
        yield f"dynamodb:{operation}", request.get("StreamArn", "")
    else:
        index = f"/index/{request['IndexName']}" if request.get("IndexName") else ""
        for name in request.get("RequestItems") or [request["TableName"]]:
            yield f"dynamodb:{operation}", _arn(name) + index


def _arn(table: str) -> str:
    return TABLES + _declared(table)


def _declared(table: str) -> str:
    """Return the declared name of a table: without the prefix of the test."""
    return table.rpartition("__")[2]


@cache
def policy_of(role: IamRole) -> dict[str, Any]:
    return policy(role, arn_format(prefix="", region=REGION, account=ACCOUNT, bucket="photos"))


@cache
def allows(role: IamRole, action: str, arn: str) -> bool:
    """Return whether a statement of the role's policy allows the action on the resource."""
    return any(
        action in statement["Action"] and any(_covers(resource, arn) for resource in statement["Resource"])
        for statement in policy_of(role)["Statement"]
    )


def _covers(resource: str, arn: str) -> bool:
    if not resource.endswith("/stream/*"):
        return fnmatchcase(arn, resource)
    # The engine has its own account and region.
    table = arn.partition(":table/")[2].partition("/stream/")[0]
    return not arn or resource == f"{_arn(table)}/stream/*"


def refused(role: IamRole, operation: str, request: Mapping[str, Any]) -> list[Need]:
    """Return the permissions that the role lacks for a call."""
    return [need for need in needs(operation, request) if not allows(role, *need)]
