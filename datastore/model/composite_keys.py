"""Key strings are parts joined by `#`; what a user gives can never break out of its part."""

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
    """A primary key: the values of the partition and the sort attribute, empty in a table without one."""

    partition: str
    sort: str = ""


def join(*parts: str) -> str:
    """The parts with `#` between them; `#`, `%` and control characters inside a part are percent-encoded."""
    for text in parts:
        if not text or _UNSAFE.search(text):
            return "#".join([escape_part(text) for text in parts])
    return "#".join(parts)


def split(key: str) -> list[str]:
    """The parts that `join` was given."""
    return [unquote(text) for text in key.split("#")] if "%" in key else key.split("#")


def second_part(key: str) -> str:
    """The second part of a key: the id behind the word that tells what it is of."""
    text = key.split("#")[1]
    return unquote(text) if "%" in text else text


def escape_part(text: str) -> str:
    """One part of a key. Raises `BadUserInput` for an empty one: DynamoDB has no empty key, and `A#` is no id."""
    if not text:
        raise BadUserInput("An id must not be empty.")
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def _escape(match: re.Match[str]) -> str:
    return quote(match.group(), safe="")


def check_key(key: Key, *, has_sort: bool = True) -> Key:
    """The key, or `BadUserInput` for what DynamoDB refuses: an empty value, no Unicode text, one that is too long.

    `sorts`: whether its table has a sort attribute. A partition has 1 to 2048 bytes, a sort value 1 to 1024.
    """
    partition, sort = key
    ascii_alone = partition.isascii() and sort.isascii()  # as nearly all are: a byte is a character
    if ascii_alone and 0 < len(partition) <= PARTITION_BYTES and (0 < len(sort) <= SORT_BYTES or not has_sort):
        return key
    try:
        sizes = [len(value.encode()) for value in (key if has_sort else key[:1])]
    except UnicodeEncodeError:
        raise BadUserInput("An id must be valid Unicode text.") from None
    if 0 in sizes:
        raise BadUserInput("An id must not be empty.")
    if sizes[0] > PARTITION_BYTES or max(sizes[1:], default=0) > SORT_BYTES:
        raise BadUserInput("An id is too long: at most 1024 bytes of UTF-8 fit in a key.")
    return key


def key_of(table: Table, item: Mapping[str, Any]) -> Key:
    """The primary key of an item of the table."""
    return Key(item[table.partition], item[table.sort] if table.sort else "")


def key_attributes(table: Table, key: Key) -> dict[str, str]:
    """The key as the attributes that hold it."""
    return {table.partition: key.partition} | ({table.sort: key.sort} if table.sort else {})
