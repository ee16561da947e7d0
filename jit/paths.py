"""Places in an answer: the place around it, and the key or index there."""

from typing import Any

from graphql.pyutils import Path as CorePath

from jit.field_plan import FieldPlan

# The prefix is None at the root.
Path = tuple[Any, str | int]


def keys_of(path: Path | None) -> list[str | int]:
    """The path as errors tell it."""
    keys: list[str | int] = []
    while path is not None:
        around, key = path
        keys.append(key)
        path = around
    keys.reverse()
    return keys


def core_path(plan: FieldPlan, path: Path) -> CorePath:
    """The path of a field as graphql-core has it."""
    around = path[0]
    above = None if around is None else _path_of_value(plan.parent, around)
    return CorePath(above, path[1], plan.parent_type.name)


def _path_of_value(plan: FieldPlan | None, path: Path) -> CorePath:
    assert plan is not None, "Only the root has no field around it."
    if isinstance(path[1], int):
        return CorePath(_path_of_value(plan, path[0]), path[1], None)
    return core_path(plan, path)


def lies_in(path: Path | None, place: Path) -> bool:
    """Whether the place is this one, or around it: the very tuple, for paths are handed down."""
    while path is not None:
        if path is place:
            return True
        path = path[0]
    return False
