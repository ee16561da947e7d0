"""The expressions of items with a version: see `datastore/session/optimistic_locking.py`."""

import re
from functools import cache
from typing import Final

VERSION: Final = "version"
# A match's `version` is that of its live state.
REVISION: Final = "revision"


def guard(attribute: str = VERSION) -> tuple[str, str]:
    """That an item is at the `:expected` version. One without the attribute is at version 0, which `:never` is.

    Others write an attribute that is not there as null, too: `:nothing` is the type of that.
    """
    return f"#{attribute} = :expected", (
        f"(attribute_not_exists(#{attribute}) OR attribute_type(#{attribute}, :nothing) OR #{attribute} = :never)"
    )


def increment(attribute: str = VERSION) -> str:
    """What an update ends with that makes a new version; `:one` is 1."""
    return f"ADD #{attribute} :one"


# The same in the SET of an update that may make the item: of one that was there before, no version comes again.
INITIALIZE_OR_INCREMENT: Final = "#version = if_not_exists(#version, :begun) + :one"


# What an update sets to a value, as it is, and the names of what it takes away.
_SET = re.compile(r"(#?\w+) = :(\w+)(?=,| REMOVE | ADD |$)")
_REMOVED = re.compile(r" ?REMOVE ([^:]+?)(?: ADD |$)")


@cache
def assignments(update: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The attributes that an update sets, each with the name of its value, and those that it takes away."""
    removed = _REMOVED.search(update)
    return tuple(_SET.findall(update)), tuple(removed[1].split(", ")) if removed else ()


@cache
def not_applied_condition(update: str) -> str:
    """The condition that an item is not as an update leaves it; empty where it counts nothing, and may be repeated.

    What it counts, and what it sets but once, tells nothing.
    """
    sets, removes = assignments(update)
    clauses = [f"{name} = :{value}" for name, value in sets] + [f"attribute_not_exists({name})" for name in removes]
    return f"NOT ({' AND '.join(clauses)})" if clauses and ":one" in update else ""


def incremented_attribute(update: str) -> str | None:
    """The attribute that an update counts, if it does."""
    if INITIALIZE_OR_INCREMENT in update:
        return VERSION
    return next((attribute for attribute in (VERSION, REVISION) if increment(attribute) in update), None)
