"""The expressions of items with a version: see `datastore/versions.py`."""

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


def counted(attribute: str = VERSION) -> str:
    """What an update ends with that makes a new version; `:one` is 1."""
    return f"ADD #{attribute} :one"


# The same in the SET of an update that may make the item: of one that was there before, no version comes again.
BEGUN_OR_COUNTED: Final = "#version = if_not_exists(#version, :begun) + :one"


def counts(update: str) -> str | None:
    """The attribute that an update counts, if it does."""
    if BEGUN_OR_COUNTED in update:
        return VERSION
    return next((attribute for attribute in (VERSION, REVISION) if counted(attribute) in update), None)
