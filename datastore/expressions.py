"""UpdateExpressions for changes that are known only when they come."""

from collections.abc import Mapping
from typing import Any


def set_or_remove(changes: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """SET for what has a value, REMOVE for what is None; and the values, each named like its attribute."""
    values = {name: value for name, value in changes.items() if value is not None}
    parts = []
    if values:
        parts.append("SET " + ", ".join(f"#{name} = :{name}" for name in values))
    if len(values) < len(changes):
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in changes if name not in values))
    return " ".join(parts), values
