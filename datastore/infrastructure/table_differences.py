"""Differences between a table in the store and its declaration, with the changes that remove them.

Undeclared indexes and streams are no difference: other programs may use them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from datastore.infrastructure.tables import create_table_request, has_ttl
from datastore.model.access_patterns import Index, Table

Described = Mapping[str, Any]
KEY_ROLES = {"HASH": "partition", "RANGE": "sort"}


@dataclass(frozen=True, slots=True)
class TableChange:
    """A call that removes a difference, with all parameters except the table name."""

    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. `change` is None if only an operator may change it, because data or positions would be lost."""

    table: str
    text: str
    change: TableChange | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table in the store."""

    #: DescribeTable's description.
    described: Described
    #: DescribeTimeToLive's description.
    expiry: Described
    #: Whether the table must have deletion protection.
    protection_required: bool = False
    #: Whether point-in-time recovery is on. None if the store does not support it or does not need it.
    recoverable: bool | None = None


def differences(table: Table, state: TableState) -> Iterator[Difference]:
    """Yield the differences of an existing table, those that take longest to change first."""
    name = str(state.described["TableName"])
    expected = create_table_request(table)
    for difference in (
        _keys(expected, state.described),
        *[_index(index, expected, state.described) for index in table.indexes],
        _stream(table, state.described),
        _expiry(table, state.expiry),
        _billing(state.described),
        _protection(state),
        _recovery(state),
    ):
        if difference is not None:
            text, change = difference
            yield Difference(name, text, change)


_Result = tuple[str, TableChange | None] | None


def _keys(expected: Described, described: Described) -> _Result:
    actual, declared = _key_of(described, described), _key_of(expected, expected)
    return None if actual == declared else (f"its key is {actual}, and {declared} is declared", None)


def _key_of(schema: Described, definitions: Described) -> str:
    kinds = {item["AttributeName"]: item["AttributeType"] for item in definitions["AttributeDefinitions"]}
    return ", ".join(
        f"{key['AttributeName']} ({kinds.get(key['AttributeName'])}, {KEY_ROLES[key['KeyType']]})"
        for key in schema["KeySchema"]
    )


def _index(index: Index, expected: Described, described: Described) -> _Result:
    declared = _index_named(expected, index)
    assert declared is not None
    actual = _index_named(described, index)
    if actual is None:
        return f"the index {index.name} is missing", _add_index(declared, expected, described)
    if _key_of(actual, described) != _key_of(declared, expected):
        keys = f"{_key_of(actual, described)}, and {_key_of(declared, expected)} is declared"
        return f"the key of the index {index.name} is {keys}", None
    if _projection(actual) != _projection(declared):
        projected = f"{_projection(actual)}, and {_projection(declared)} is declared"
        return f"the index {index.name} projects {projected}", None
    status = actual.get("IndexStatus", "ACTIVE")
    return None if status == "ACTIVE" else (f"the index {index.name} is {status}", None)


def _index_named(described: Described, index: Index) -> Described | None:
    indexes = described.get("GlobalSecondaryIndexes", ())
    return next((each for each in indexes if each["IndexName"] == index.name), None)


def _projection(index: Described) -> str:
    projection = index["Projection"]
    names = sorted(projection.get("NonKeyAttributes", ()))
    return f"{projection['ProjectionType']} {', '.join(names)}".strip()


def _add_index(declared: Described, expected: Described, described: Described) -> TableChange:
    """Return the change that adds an index. DynamoDB requires the types of the new key and of all existing keys."""
    kinds = {definition["AttributeName"]: definition for definition in expected["AttributeDefinitions"]}
    needed = {key["AttributeName"]: kinds[key["AttributeName"]] for key in declared["KeySchema"]}
    needed |= {definition["AttributeName"]: definition for definition in described["AttributeDefinitions"]}
    added = {"AttributeDefinitions": list(needed.values()), "GlobalSecondaryIndexUpdates": [{"Create": declared}]}
    return TableChange("UpdateTable", added)


def _stream(table: Table, described: Described) -> _Result:
    stream = described.get("StreamSpecification") or {}
    actual = stream.get("StreamViewType") if stream.get("StreamEnabled") else None
    if table.stream is None or actual == table.stream:
        return None
    if actual is None:
        expected = {"StreamEnabled": True, "StreamViewType": table.stream}
        return "its stream is off", TableChange("UpdateTable", {"StreamSpecification": expected})
    return f"its stream has {actual}, and {table.stream} is declared", None


def _expiry(table: Table, expiry: Described) -> _Result:
    actual = expiry.get("AttributeName") if has_ttl(expiry) else None
    if actual == table.ttl:
        return None
    if actual is None:
        expected = {"Enabled": True, "AttributeName": table.ttl}
        return "its items do not expire", TableChange("UpdateTimeToLive", {"TimeToLiveSpecification": expected})
    declared = f"by {table.ttl}" if table.ttl else "that they do not"
    return f"its items expire by {actual}, and {declared} is declared", None


def _billing(described: Described) -> _Result:
    mode = (described.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    return None if mode == "PAY_PER_REQUEST" else ("its capacity is provisioned, and on demand is declared", None)


def _protection(state: TableState) -> _Result:
    if not state.protection_required or state.described.get("DeletionProtectionEnabled"):
        return None
    return "it is not protected from deletion", TableChange("UpdateTable", {"DeletionProtectionEnabled": True})


def _recovery(state: TableState) -> _Result:
    if state.recoverable is not False:
        return None
    return "its point-in-time recovery is off", RECOVER


RECOVER = TableChange(
    "UpdateContinuousBackups", {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
)
