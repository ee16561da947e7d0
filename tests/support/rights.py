"""What calls need in AWS, and whether the policy of a process allows it: IAM's rules, as far as ours use them."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from datastore.infrastructure.iam_roles import IamRole
from datastore.infrastructure.policies import arn_format, policy

REGION, ACCOUNT = "eu-central-1", "123456789012"
TABLES = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/"
OF_A_STREAM = ("DescribeStream", "GetShardIterator", "GetRecords")
# The actions behind those of a transaction.
RIGHTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}

Need = tuple[str, str]


def needs(operation: str, request: Mapping[str, Any]) -> Iterator[Need]:
    """The actions that a call takes, each on the ARN of a table, without its prefix, or of its index or stream."""
    if operation == "TransactWriteItems":
        actions = [one for item in request["TransactItems"] for one in item.items()]
        yield from ((f"dynamodb:{RIGHTS[kind]}", _arn(body["TableName"])) for kind, body in actions)
    elif operation in OF_A_STREAM:
        # An iterator does not tell of which stream it is: of one that the process follows.
        yield f"dynamodb:{operation}", request.get("StreamArn", "")
    else:
        index = f"/index/{request['IndexName']}" if request.get("IndexName") else ""
        for name in request.get("RequestItems") or [request["TableName"]]:
            yield f"dynamodb:{operation}", _arn(name) + index


def _arn(table: str) -> str:
    return TABLES + _declared(table)


def _declared(table: str) -> str:
    """The table's name without the prefix that tests have."""
    return table.rpartition("__")[2]


@cache
def policy_of(role: IamRole) -> dict[str, Any]:
    return policy(role, arn_format(prefix="", region=REGION, account=ACCOUNT, bucket="photos"))


@cache
def allows(role: IamRole, action: str, arn: str) -> bool:
    """Whether a statement of the role's policy has the action with such a resource."""
    return any(
        action in statement["Action"] and any(_covers(resource, arn) for resource in statement["Resource"])
        for statement in policy_of(role)["Statement"]
    )


def _covers(resource: str, arn: str) -> bool:
    if not resource.endswith("/stream/*"):
        return fnmatchcase(arn, resource)
    # The engine has an account and a region of its own.
    table = arn.partition(":table/")[2].partition("/stream/")[0]
    return not arn or resource == f"{_arn(table)}/stream/*"


def refused(role: IamRole, operation: str, request: Mapping[str, Any]) -> list[Need]:
    """What AWS would not let the role do of a call."""
    return [need for need in needs(operation, request) if not allows(role, *need)]
