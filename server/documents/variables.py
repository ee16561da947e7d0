"""Limits of variables, checked for each operation before its variables are processed."""

from collections.abc import Mapping
from typing import Any

from datastore.errors import BadUserInput

# For comparison: the API's inputs are three objects deep, and its longest list has 100 entries of some ten values.
MAX_DEPTH = 16
MAX_VALUES = 5_000
MAX_LIST = 1_000
_HOLDING = (dict, list)
_LIMITS = {
    "entries": "lists of at most {limit:,} entries",
    "values": "at most {limit:,} values",
    "depth": "at most {limit:,} levels of lists and objects",
}


def check_variables(variables: Mapping[str, Any]) -> int:
    """Return the number of values in the variables.

    Raises `BadUserInput` if the variables are nested too deeply, have too many values, or contain a list that is too
    long. The error's extensions have the `field`, the `measure`, its `limit` and the count `found`.
    """
    count, depth = len(variables), 1
    level: list[tuple[str, Any]] = []
    for name in variables:
        if variables[name].__class__ in _HOLDING:
            level.append((name, variables[name]))
    while level or count > MAX_VALUES:
        below: list[tuple[str, Any]] = []
        for name, value in level:
            if isinstance(value, dict):
                below += [(name, inner) for inner in value.values()]
            elif isinstance(value, list):
                if len(value) > MAX_LIST:
                    raise _too_large("entries", MAX_LIST, len(value), name)
                below += [(name, inner) for inner in value]
        count += len(below)
        depth += 1
        if count > MAX_VALUES:
            raise _too_large("values", MAX_VALUES, count)
        if below and depth > MAX_DEPTH:
            raise _too_large("depth", MAX_DEPTH, depth, below[0][0])
        level = below
    return count


def characters_in(variables: Mapping[str, Any]) -> int:
    """Return the number of characters in names and strings. Call `check_variables` before: it bounds the work."""
    characters = 0
    waiting: list[Any] = [variables]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return characters


def _too_large(measure: str, limit: int, found: int, name: str | None = None) -> BadUserInput:
    where = "The variables" if name is None else f"The variable ${name[:100]}"
    return BadUserInput(
        f"{where} may have {_LIMITS[measure].format(limit=limit)}, not {found:,}.",
        field="variables",
        measure=measure,
        limit=limit,
        found=found,
    )
