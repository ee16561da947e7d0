"""The names and values of expressions, and UpdateExpressions for changes that are known only when they come."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from datastore.dynamodb.codec import encode
from datastore.model.access_patterns import aliases_in, values_in


def set_or_remove(changes: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """SET for what has a value, REMOVE for what is None; and the values, each named like its attribute."""
    values = {name: value for name, value in changes.items() if value is not None}
    parts = []
    if values:
        parts.append("SET " + ", ".join(f"#{name} = :{name}" for name in values))
    if len(values) < len(changes):
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in changes if name not in values))
    return " ".join(parts), values


def placeholders(expressions: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The names and values that the expressions use, and no more: DynamoDB refuses unused ones."""
    names = aliases_in(*expressions)
    found: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
    return found | value_placeholders(values_in(*expressions), values)


def value_placeholders(used: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {"ExpressionAttributeValues": {f":{name}": encode(values[name]) for name in used}} if used else {}
