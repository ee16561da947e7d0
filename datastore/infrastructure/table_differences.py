"""How a table in the store differs from its declaration, and what would change that.

What other programs have beside it is theirs: indexes and streams that are not declared are no difference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from datastore.infrastructure.tables import definition
from datastore.model.access_patterns import Index, Table

Described = Mapping[str, Any]
KINDS = {"HASH": "partition", "RANGE": "sort"}


@dataclass(frozen=True, slots=True)
class TableChange:
    """A call of boto3's client that does away with a difference, with all its parameters but the table's name."""

    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """`change` is None where nothing can be changed without losing data or positions: that is up to an operator."""

    table: str
    text: str
    change: TableChange | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True)
class TableState:
    """What the store says of a table: its description, how its items expire, and in AWS how it is protected.

    `recoverable` tells of point-in-time recovery; it is None where the store has none, or need not have it.
    """

    described: Described
    expiry: Described
    protection_wanted: bool = False
    recoverable: bool | None = None


def differences(table: Table, state: TableState) -> Iterator[Difference]:
    """Those of a table that is there; first those that take longest to change."""
    name = str(state.described["TableName"])
    wanted = definition(table)
    for found in (
        _keys(wanted, state.described),
        *[_index(index, wanted, state.described) for index in table.indexes],
        _stream(table, state.described),
        _expiry(table, state.expiry),
        _billing(state.described),
        _protection(state),
        _recovery(state),
    ):
        if found is not None:
            text, change = found
            yield Difference(name, text, change)


_Found = tuple[str, TableChange | None] | None


def _keys(wanted: Described, described: Described) -> _Found:
    there, declared = _key_of(described, described), _key_of(wanted, wanted)
    return None if there == declared else (f"its key is {there}, and {declared} is declared", None)


def _key_of(schema: Described, definitions: Described) -> str:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in definitions["AttributeDefinitions"]}
    return ", ".join(
        f"{key['AttributeName']} ({kinds.get(key['AttributeName'])}, {KINDS[key['KeyType']]})"
        for key in schema["KeySchema"]
    )


def _index(index: Index, wanted: Described, described: Described) -> _Found:
    declared = _named(wanted, index)
    assert declared is not None
    there = _named(described, index)
    if there is None:
        return f"the index {index.name} is missing", _add_index(declared, wanted, described)
    if _key_of(there, described) != _key_of(declared, wanted):
        keys = f"{_key_of(there, described)}, and {_key_of(declared, wanted)} is declared"
        return f"the key of the index {index.name} is {keys}", None
    if _projection(there) != _projection(declared):
        projected = f"{_projection(there)}, and {_projection(declared)} is declared"
        return f"the index {index.name} projects {projected}", None
    status = there.get("IndexStatus", "ACTIVE")
    return None if status == "ACTIVE" else (f"the index {index.name} is {status}", None)


def _named(described: Described, index: Index) -> Described | None:
    found = described.get("GlobalSecondaryIndexes", ())
    return next((one for one in found if one["IndexName"] == index.name), None)


def _projection(index: Described) -> str:
    projection = index["Projection"]
    names = sorted(projection.get("NonKeyAttributes", ()))
    return f"{projection['ProjectionType']} {', '.join(names)}".strip()


def _add_index(declared: Described, wanted: Described, described: Described) -> TableChange:
    """DynamoDB wants the types of the new key, and those of the keys that there are must not be missing."""
    kinds = {one["AttributeName"]: one for one in wanted["AttributeDefinitions"]}
    needed = {key["AttributeName"]: kinds[key["AttributeName"]] for key in declared["KeySchema"]}
    needed |= {one["AttributeName"]: one for one in described["AttributeDefinitions"]}
    added = {"AttributeDefinitions": list(needed.values()), "GlobalSecondaryIndexUpdates": [{"Create": declared}]}
    return TableChange("update_table", added)


def _stream(table: Table, described: Described) -> _Found:
    stream = described.get("StreamSpecification") or {}
    there = stream.get("StreamViewType") if stream.get("StreamEnabled") else None
    if table.stream is None or there == table.stream:
        return None
    if there is None:
        wanted = {"StreamEnabled": True, "StreamViewType": table.stream}
        return "its stream is off", TableChange("update_table", {"StreamSpecification": wanted})
    return f"its stream has {there}, and {table.stream} is declared", None


def _expiry(table: Table, expiry: Described) -> _Found:
    is_on = expiry.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    there = expiry.get("AttributeName") if is_on else None
    if there == table.ttl:
        return None
    if there is None:
        wanted = {"Enabled": True, "AttributeName": table.ttl}
        return "its items do not expire", TableChange("update_time_to_live", {"TimeToLiveSpecification": wanted})
    declared = f"by {table.ttl}" if table.ttl else "that they do not"
    return f"its items expire by {there}, and {declared} is declared", None


def _billing(described: Described) -> _Found:
    mode = (described.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    return None if mode == "PAY_PER_REQUEST" else ("its capacity is provisioned, and on demand is declared", None)


def _protection(state: TableState) -> _Found:
    if not state.protection_wanted or state.described.get("DeletionProtectionEnabled"):
        return None
    return "it is not protected from deletion", TableChange("update_table", {"DeletionProtectionEnabled": True})


def _recovery(state: TableState) -> _Found:
    if state.recoverable is not False:
        return None
    return "its point-in-time recovery is off", RECOVER


RECOVER = TableChange(
    "update_continuous_backups", {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
)
