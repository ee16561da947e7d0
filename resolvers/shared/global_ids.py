"""Global ids, which are unique over all types, and arguments that accept them beside local ids."""

from collections.abc import Callable
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec
import orjson
import strawberry

from datastore.errors import BadUserInput
from datastore.model import base64url

LONGEST_GLOBAL_ID = 4096
LONGEST_TYPE_NAME = 50
# The base64url of `["` before a letter, with which each global id begins.
GLOBAL_ID_PREFIX = "WyJ"
_DIGEST_BYTES = 15


def global_id(kind: str, *parts: str) -> str:
    """Return the global id of an object: the name of its type, and the parts of its key."""
    return base64url.encode(orjson.dumps([kind, *parts]))


def parse_global_id(text: str) -> tuple[str, list[str]] | None:
    """Return the type and the key's parts of a global id, or None for any other text."""
    if not text.startswith(GLOBAL_ID_PREFIX) or len(text) > LONGEST_GLOBAL_ID:
        return None
    try:
        kind, *parts = orjson.loads(base64url.decode(text))
    except ValueError:
        return None
    return (kind, parts) if parts and all(isinstance(part, str) for part in parts) else None


def key_of(field: str, id: str, *kinds: str) -> list[str] | None:
    """Return the parts of the key in a global id of one of these types, or None if the id is a local id.

    Raises `BadUserInput` for a global id of another type.
    """
    parsed = parse_global_id(id)
    if parsed is None:
        return None
    kind, parts = parsed
    if kind not in kinds:
        # A global id is input: its type may be any text.
        named = f"the type {kind}" if kind.isidentifier() and len(kind) <= LONGEST_TYPE_NAME else "an unknown type"
        raise BadUserInput(f"`{field}` is a global id of {named}, not of {' or '.join(kinds)}.", field=field)
    return parts


def local_id(field: str, id: str, *kinds: str, within: tuple[str, ...] = ()) -> str:
    """Return the local id of an object, given its local id or its global id.

    `kinds` are the types whose global ids are accepted. `within` are the parts of the key that precede the local id,
    as other arguments state them.

    Raises `BadUserInput` for a global id of another type, or of an object with other parts.
    """
    parts = key_of(field, id, *kinds)
    if parts is None:
        return id
    if tuple(parts[:-1]) != within:
        raise BadUserInput(f"`{field}` is a global id that does not fit the other arguments.", field=field)
    return parts[-1]


def key_id_resolver(kind: str, parts: tuple[str, ...]) -> Callable[..., str]:
    """Return the resolver of `id` for objects with a key, whose parts are attributes of the parent."""
    read: Callable[[Any], Any] = attrgetter(*parts)
    if len(parts) == 1:

        def resolve_id(parent: strawberry.Parent[Any]) -> str:
            return global_id(kind, str(read(parent)))

    else:

        def resolve_id(parent: strawberry.Parent[Any]) -> str:
            return global_id(kind, *map(str, read(parent)))

    return resolve_id


def content_id_resolver(kind: str) -> Callable[..., str]:
    """Return the resolver of `id` for values without a key. Equal values of a type have equal ids."""

    def resolve_id(parent: strawberry.Parent[Any]) -> str:
        content = msgspec.json.encode(parent, enc_hook=vars)
        return global_id(kind, base64url.encode(blake2b(content, digest_size=_DIGEST_BYTES).digest()))

    return resolve_id
