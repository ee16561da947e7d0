"""The cost of one field in read units, computed from its declared access patterns and its arguments.

The read units are those of DynamoDB: 0.5 for an eventually consistent read of 4 KB, 1 for a consistent read. A write
unit is billed like five read units, and twice as much in a transaction.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from graphql import GraphQLField, get_named_type, get_nullable_type, is_leaf_type, is_list_type, is_object_type

from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.items.sizes import read_bytes, typical_bytes
from datastore.model.access_patterns import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    NO_EXTENT,
    AccessPattern,
    Arguments,
    Extent,
)

READ_BYTES, WRITTEN_BYTES = 4096, 1024
POINT_READS = ("GetItem", "BatchGetItem", "TransactGetItems")
# The number of objects of a list without a declared size.
LIST_SIZE = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """The read units of a field without the fields beneath it, and the number of objects in its result."""

    units: float
    size: float


class FieldCost:
    """The cost of a field.

    `fixed`: the cost does not depend on arguments. `depends_on_consistency`: of the arguments it depends on
    `consistent` alone, and not on the time. `own`: the field is a part of its parent's item. `from_parent`: the
    fields of its object that the parent already has.
    """

    def __init__(self, field: GraphQLField) -> None:
        definition = field.extensions.get("strawberry-definition")
        metadata = definition.metadata if definition is not None else {}
        named = get_named_type(field.type)
        self.patterns: tuple[AccessPattern, ...] = metadata.get("patterns", ())
        self.is_connection = is_object_type(named) and {"nodes", "pageInfo"} <= named.fields.keys()
        # Patterns with equal costs, such as most of those of `node`, count once.
        distinct = {
            (read_bytes(pattern), _copies(pattern), pattern.operations, pattern.consistent): pattern
            for pattern in self.patterns
        }
        self._distinct = tuple(distinct.values())
        self._extent: Extent = metadata.get("extent", NO_EXTENT)
        self.model = self._extent.model
        #: For `_entities`: the read units of an object, by the name of its type.
        self.units_of_type = {name: _object_units(*read) for name, read in metadata.get("reads_of_type", {}).items()}
        self.depends_on_time = callable(self._extent.size)  # the size depends on the time
        self.from_parent = self._extent.from_parent
        self.background_cost = WRITE_UNIT_COST * self._extent.deferred
        self._is_list = is_list_type(get_nullable_type(field.type))
        self._lists = [name for name, argument in field.args.items() if _may_contain_list(argument.type)]
        has_cost = bool(self.patterns) or self._is_list or self.is_connection
        is_one_object = self._is_one_object()
        may_be_consistent = "consistent" in field.args
        self.fixed = not field.args or not has_cost or (is_one_object and not may_be_consistent)
        self.depends_on_consistency = is_one_object and may_be_consistent and has_cost and not self.model
        self.own = (
            bool(self.patterns)
            and not field.args
            and is_leaf_type(named)
            and all(operation in POINT_READS for pattern in self.patterns for operation in pattern.operations)
        )

    def _is_one_object(self) -> bool:
        """Return whether the result is one object whose number of reads depends on neither arguments nor time."""
        extent = self._extent
        declared = (extent.size, extent.partitions, extent.scanned, extent.written)
        counts = self.is_connection or self._is_list or bool(self._lists)
        return not counts and not any(callable(value) or isinstance(value, str) for value in declared)

    @cached_property
    def fixed_cost(self) -> Measured:
        """The measurement of a `fixed` field."""
        return self.measure({}, datetime.min.replace(tzinfo=UTC))

    @property
    def counts(self) -> bool:
        """Whether the result may have more than one object."""
        return self.is_connection or self._is_list or isinstance(self._extent.size, str) or callable(self._extent.size)

    def size(self, arguments: Arguments, now: datetime) -> float:
        """Return the number of objects for unchecked arguments."""
        return self._size(arguments, self._longest_list(arguments), now)

    def _longest_list(self, arguments: Arguments) -> int | None:
        """Return the length of the longest list among the arguments."""
        lists = (arguments.get(name) for name in self._lists)
        return max((_length(value) for value in lists if value is not None), default=None)

    def measure(self, arguments: Arguments, now: datetime) -> Measured:
        """Return the measurement for unchecked arguments. An argument of a wrong type counts as absent."""
        list_length = self._longest_list(arguments)
        size = self._size(arguments, list_length, now)
        # A field uses one of its patterns: the most expensive one counts.
        units = max(
            (self._units(pattern, arguments, now, size, list_length) for pattern in self._distinct), default=0.0
        )
        return Measured(units, size)

    def _size(self, arguments: Arguments, list_length: int | None, now: datetime) -> float:
        extent = self._extent.size
        if callable(extent):
            return extent(arguments, now)
        if isinstance(extent, str):
            return _bounded_size(arguments.get(extent), 10)
        if self.is_connection:
            page = arguments.get("last") if arguments.get("first") is None else arguments.get("first")
            return _bounded_size(page, DEFAULT_PAGE_SIZE)
        if not self._is_list:
            return 1.0
        return float(list_length or extent or LIST_SIZE)

    def _units(
        self, pattern: AccessPattern, arguments: Arguments, now: datetime, size: float, list_length: int | None
    ) -> float:
        extent = self._extent
        many = extent.partitions(arguments, now) if callable(extent.partitions) else extent.partitions
        scanned = extent.scanned(arguments) if callable(extent.scanned) else extent.scanned
        items = (size + 1) * scanned if self.is_connection or self._is_list else scanned
        consistent = arguments.get("consistent") is True
        reads = (size if extent.per_entry else (list_length or 1)) * extent.reads
        return (
            _read_units(pattern, max(0.0, many - 1), extent.scans or items, reads, consistent=consistent)
            + WRITE_UNIT_COST * (_write_units(pattern, extent, arguments, list_length) + extent.deferred)
            + extent.searched
            + extent.own_counts
        )


def _object_units(pattern: AccessPattern, extent: Extent) -> float:
    """Return the cost of the point read of one object."""
    return _read_units(pattern, 0, 1, extent.reads) + WRITE_UNIT_COST * _write_units(pattern, extent, {}, None)


def _read_units(
    pattern: AccessPattern, further_partitions: float, items: float, reads: float, *, consistent: bool = False
) -> float:
    """Return the cost of the Queries and of the point reads of a pattern."""
    unit = 1.0 if consistent or pattern.consistent else 0.5
    units = 0.0
    if "Query" in pattern.operations or "Scan" in pattern.operations:
        units += unit * (further_partitions + _blocks(items * read_bytes(pattern), READ_BYTES))
    if any(name in pattern.operations for name in POINT_READS):
        units += unit * reads * _blocks(typical_bytes(pattern.table), READ_BYTES)
    return units


def _write_units(pattern: AccessPattern, extent: Extent, arguments: Arguments, list_length: int | None) -> float:
    """Return the write units. An item is also written to each index that contains it."""
    if not pattern.writes:
        return 0.0
    declared = extent.written(arguments) if callable(extent.written) else extent.written
    items = (list_length or 1) if declared is None else declared
    times = (2 if "TransactWriteItems" in pattern.operations else 1) * _copies(pattern)
    # A new item takes one write unit. Items grow later, with their updates.
    is_new = "UpdateItem" not in pattern.operations or "BatchWriteItem" in pattern.operations
    return items * times * (1 if is_new else _blocks(typical_bytes(pattern.table), WRITTEN_BYTES))


def _copies(pattern: AccessPattern) -> int:
    """Return the number of copies of an item, in the table and in its indexes."""
    return 1 + (pattern.table.index_copies if pattern.table.indexes else 0)


def _may_contain_list(of: Any) -> bool:
    """Return whether an argument is a list, or an input object with a list."""
    if is_list_type(get_nullable_type(of)):
        return True
    fields = getattr(get_named_type(of), "fields", {})
    return any(is_list_type(get_nullable_type(field.type)) for field in fields.values())


def _length(value: object) -> int:
    if isinstance(value, dict):
        return max((_length(inner) for inner in value.values() if isinstance(inner, list)), default=1)
    return min(len(value), MAX_PAGE_SIZE) if isinstance(value, list) else 1


def _bounded_size(value: object, default: int) -> float:
    """Return a size between 1 and the largest page, or the default if `value` is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return float(default)
    # Bound the value first: an integer may be too large for a float.
    return float(min(max(value, 1), MAX_PAGE_SIZE))


def _blocks(size: float, block: int) -> int:
    return max(1, math.ceil(size / block))
