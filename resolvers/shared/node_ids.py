"""Global ids: the name of a type, and the parts of an object's key."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
import strawberry

from datastore.errors import BadUserInput
from datastore.model import base64url
from resolvers.shared.context import Context

LONGEST_ID = 4096

# By type: the number of the key's parts, and the function that reads an object by them.
NodeReaders = Mapping[str, tuple[int, Callable[..., Awaitable[Any]]]]


def global_id(kind: str, *parts: str) -> strawberry.ID:
    """Return the global id of an object of the type `kind`."""
    return strawberry.ID(base64url.encode(orjson.dumps([kind, *parts])))


async def read_node(context: Context, readers: NodeReaders, id: str, field: str) -> Any:
    """Return the object with a global id, or None if it does not exist. Raises `BadUserInput` for an invalid id."""
    kind, parts = _parse(id, readers, field)
    try:
        return await readers[kind][1](context, *parts)
    except BadUserInput:  # a part is invalid in a key
        raise _invalid_id(field) from None


def _parse(id: str, readers: NodeReaders, field: str) -> tuple[str, list[str]]:
    if len(id) > LONGEST_ID:
        raise _invalid_id(field)
    try:
        kind, *parts = orjson.loads(base64url.decode(id))
    except (ValueError, TypeError):
        raise _invalid_id(field) from None
    is_known = isinstance(kind, str) and kind in readers
    if not is_known or len(parts) != readers[kind][0] or not all(isinstance(part, str) for part in parts):
        raise _invalid_id(field)
    return kind, parts


def _invalid_id(field: str) -> BadUserInput:
    return BadUserInput(f"`{field}` is not the global id of an object.", field=field)
