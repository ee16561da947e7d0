"""The sizes of stored items, from the declarations of their keys and attributes.

The typical size is that of the estimates of costs. It is a convention, which each declaration may correct: a text has
16 bytes, or the typical length of its form, and the value of an attribute that items may lack counts half.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, Protocol

from datastore.items.attributes import MOMENT_SIZE, TEXT_SIZE, UNSET, Attribute, Computed, ValueSize
from datastore.items.keys import ItemKey, Part, Placeholder
from datastore.model.access_patterns import AccessPattern, Table

# The limits of DynamoDB for the values of key attributes.
MAX_KEY_BYTES = (2048, 1024)
# Typical sizes are rounded up to a multiple of this number of bytes.
STEP = 10


class ItemSize(NamedTuple):
    """The size of a kind of item in bytes."""

    typical: int
    #: The greatest size of an item without its `unlimited` attributes.
    greatest: int
    #: The attributes without a declared limit.
    unlimited: tuple[str, ...]


class Sized(Protocol):
    """The declaration of a kind of item."""

    @property
    def size(self) -> ItemSize: ...


_KINDS: dict[Table, list[Sized]] = {}


def add_kind(table: Table, kind: Sized) -> None:
    """Add the declaration of a kind of item in a table."""
    _KINDS.setdefault(table, []).append(kind)


@cache
def typical_bytes(table: Table) -> int:
    """Return the typical size of the items of a table: the stated one, or that of the largest kind of item.

    The modules with the classes of its items are imported before the first call.
    """
    if table.item_bytes is not None:
        return table.item_bytes
    if table not in _KINDS:
        raise ValueError(f"The table {table.name} states no `item_bytes`, and no class declares its items.")
    return max(kind.size.typical for kind in _KINDS[table])


@cache
def read_bytes(pattern: AccessPattern) -> int:
    """Return the typical size of an item in the table or the index that a pattern reads."""
    listed = None if pattern.index is None else pattern.table.index(pattern.index).item_bytes
    return typical_bytes(pattern.table) if listed is None else listed


def size_of(
    keys: Iterable[ItemKey[...]], attributes: Mapping[str, Attribute], computed: Iterable[Computed], optional: set[str]
) -> ItemSize:
    """Return the size of items with these keys and attributes. `optional` are the fields that may be None."""
    sizes: dict[str, ValueSize] = {}
    for key in keys:
        sizes |= {name: _key_size(key, place, attributes) for place, name in enumerate(key.attributes) if name}
    for name, attribute in attributes.items():
        if attribute.written_as and attribute.encode is not None:
            may_lack = (name in optional and attribute.if_none is UNSET) or attribute.omit is not None
            sizes.setdefault(attribute.written_as, _value_size(attribute, may_lack))
    for each in computed:
        length = len(each.value) if isinstance(each.value, str) else None
        sizes.setdefault(each.name, TEXT_SIZE if length is None else ValueSize(length, length))
    typical = sum(len(name) + size.typical for name, size in sizes.items() if size.typical)
    limited = {name: size.greatest for name, size in sizes.items() if size.greatest is not None}
    greatest = sum(len(name) + size for name, size in limited.items())
    return ItemSize(math.ceil(typical / STEP) * STEP, greatest, tuple(name for name in sizes if name not in limited))


def _value_size(attribute: Attribute, may_lack: bool = False) -> ValueSize:
    typical, greatest = attribute.size
    if attribute.typical is not None:
        return ValueSize(attribute.typical, greatest)
    return ValueSize(typical // 2 if may_lack else typical, greatest)


def _key_size(key: ItemKey[...], place: int, attributes: Mapping[str, Attribute]) -> ValueSize:
    """Return the size of the partition key, or of the sort key at `place` 1."""
    parts = (key.partition, key.sort)[place]
    sizes = [_part_size(key, part, attributes) for part in parts]
    limits = [MAX_KEY_BYTES[place] if size.greatest is None else size.greatest for size in sizes]
    separators = len(parts) - 1
    return ValueSize(
        sum(size.typical for size in sizes) + separators, min(sum(limits) + separators, MAX_KEY_BYTES[place])
    )


def _part_size(key: ItemKey[...], part: Part, attributes: Mapping[str, Attribute]) -> ValueSize:
    if not isinstance(part, Placeholder):
        return ValueSize(len(str(part)), len(str(part)))
    if part in attributes:
        return _value_size(attributes[part])
    return MOMENT_SIZE if part in key.moments else TEXT_SIZE
