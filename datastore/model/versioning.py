"""The expressions of items with a version: see `datastore/session/optimistic_locking.py`."""

import re
from functools import cache
from typing import Final

VERSION: Final = "version"
# The version of a fixture: the attribute `version` of a match is the version of its live state.
REVISION: Final = "revision"


def version_from(value: int | None) -> int:
    """Return the version that the value of an attribute means. Other programs may store a missing version as NULL."""
    return int(value or 0)


def version_guard(attribute: str = VERSION) -> tuple[str, str]:
    """Return two clauses that an item has the expected version: the first for version 1 and later, the second for 0.

    An item has version 0 if the attribute is missing, is NULL (as other programs store it) or is 0. The values are
    `:expected`, or `:null_type`, the type NULL, and `:never`, which is 0.
    """
    return f"#{attribute} = :expected", (
        f"(attribute_not_exists(#{attribute}) OR attribute_type(#{attribute}, :null_type) OR #{attribute} = :never)"
    )


def increment_clause(attribute: str = VERSION) -> str:
    """Return the clause at the end of an update that increments the version. `:one` is 1."""
    return f"ADD #{attribute} :one"


# The assignment in the SET of an update that may create the item. The version begins after `:begun`, so that an item
# that was deleted before and is created again repeats no version.
SET_NEXT_VERSION: Final = "#version = if_not_exists(#version, :begun) + :one"


# The attributes that an update sets to a plain value, and the names of those that it removes.
_SET = re.compile(r"(#?\w+) = :(\w+)(?=,| REMOVE | ADD |$)")
_REMOVED = re.compile(r" ?REMOVE ([^:]+?)(?: ADD |$)")


@cache
def assignments(update: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the attributes that an update sets, each with the name of its value, and the attributes that it removes.

    Assignments of other expressions, such as `if_not_exists`, are left out.
    """
    removed = _REMOVED.search(update)
    return tuple(_SET.findall(update)), tuple(removed[1].split(", ")) if removed else ()


@cache
def not_applied_condition(update: str) -> str:
    """Return the condition that an item is not yet as an update leaves it.

    It is empty for an update that increments no attribute, which may be repeated, and for one that does nothing else.
    Attributes that the update increments, or sets with `if_not_exists`, are not compared.
    """
    sets, removes = assignments(update)
    clauses = [f"{name} = :{value}" for name, value in sets] + [f"attribute_not_exists({name})" for name in removes]
    return f"NOT ({' AND '.join(clauses)})" if clauses and ":one" in update else ""


def incremented_attribute(update: str) -> str | None:
    """Return the version attribute that an update increments, or None."""
    if SET_NEXT_VERSION in update:
        return VERSION
    return next((attribute for attribute in (VERSION, REVISION) if increment_clause(attribute) in update), None)
