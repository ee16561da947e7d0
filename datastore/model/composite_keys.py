"""Composite keys: parts joined by `#`. Parts are escaped, so that input of a user stays within its part."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from datastore.errors import BadUserInput
from datastore.model.access_patterns import Table

PARTITION_BYTES = 2048
SORT_BYTES = 1024
_UNSAFE = re.compile(r"[#%\x00-\x1f\x7f]")


class Key(NamedTuple):
    """A primary key: the values of the partition and the sort attribute. `sort` is empty for a table without one."""

    partition: str
    sort: str = ""


def join(*parts: str) -> str:
    """Join the parts with `#`. Inside a part `#`, `%` and control characters are percent-encoded.

    Raises `BadUserInput` for an empty part.
    """
    for text in parts:
        if not text or _UNSAFE.search(text):
            return "#".join([escape_part(text) for text in parts])
    return "#".join(parts)


def split(key: str) -> list[str]:
    """Return the parts of a key that `join` returned."""
    return [unquote(text) for text in key.split("#")] if "%" in key else key.split("#")


def second_part(key: str) -> str:
    """Return the second part of a key: the id after the word for its kind."""
    text = key.split("#")[1]
    return unquote(text) if "%" in text else text


def escape_part(text: str) -> str:
    """Return a part of a key, escaped. Raises `BadUserInput` for an empty part: an id is never empty."""
    if not text:
        raise BadUserInput("An id must not be empty.")
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def _escape(match: re.Match[str]) -> str:
    return quote(match.group(), safe="")


def check_key(key: Key, *, has_sort: bool = True) -> Key:
    """Return the key. Raises `BadUserInput` for a key that DynamoDB would refuse.

    Values must be Unicode text of 1 to 2048 bytes for the partition and 1 to 1024 for the sort attribute. `has_sort`
    says whether the table has a sort attribute.
    """
    partition, sort = key
    # Nearly always the values are ASCII, and each character is one byte.
    if partition and (sort or not has_sort):
        characters = partition + sort
        if characters.isascii() and len(characters) <= SORT_BYTES:
            return key
    try:
        sizes = [len(value.encode()) for value in (key if has_sort else key[:1])]
    except UnicodeEncodeError:
        raise BadUserInput("An id must be valid Unicode text.") from None
    if 0 in sizes:
        raise BadUserInput("An id must not be empty.")
    for size, limit in zip(sizes, (PARTITION_BYTES, SORT_BYTES), strict=False):
        if size > limit:
            raise BadUserInput(f"An id is too long: at most {limit} bytes of UTF-8 fit in this key.")
    return key


def key_of(table: Table, item: Mapping[str, Any]) -> Key:
    """Return the primary key of an item of the table."""
    return Key(item[table.partition], item[table.sort] if table.sort else "")


def key_attributes(table: Table, key: Key) -> dict[str, str]:
    """Return the key as attributes."""
    return {table.partition: key.partition} | ({table.sort: key.sort} if table.sort else {})
