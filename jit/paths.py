"""Paths in a response: linked tuples of the surrounding path, and a key or an index."""

from typing import Any

from graphql.pyutils import Path as CorePath

from jit.field_plan import FieldPlan

# The prefix is None at the root.
Path = tuple[Any, str | int]


def keys_of(path: Path | None) -> list[str | int]:
    """Return a path as the list that an error contains."""
    keys: list[str | int] = []
    while path is not None:
        around, key = path
        keys.append(key)
        path = around
    keys.reverse()
    return keys


def core_path(plan: FieldPlan, path: Path) -> CorePath:
    """Return the path of a field as graphql-core's `Path`."""
    around = path[0]
    above = None if around is None else _path_of_value(plan.parent, around)
    return CorePath(above, path[1], plan.parent_type.name)


def _path_of_value(plan: FieldPlan | None, path: Path) -> CorePath:
    assert plan is not None, "Only the root has no field around it."
    if isinstance(path[1], int):
        return CorePath(_path_of_value(plan, path[0]), path[1], None)
    return core_path(plan, path)


def lies_in(path: Path | None, place: Path) -> bool:
    """Return whether `place` is `path` or a prefix of it. Nested paths share their prefix, so identity decides."""
    while path is not None:
        if path is place:
            return True
        path = path[0]
    return False
