"""The declarations of tables, indexes and access patterns: frozen values that drive code, documentation and tests."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Protocol

from datastore.queues import OverflowPolicy

AttributeType = Literal["S", "N"]
Operation = Literal[
    "GetItem",
    "BatchGetItem",
    "Query",
    "Scan",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "TransactGetItems",
    "TransactWriteItems",
]
ActionKind = Literal["Put", "Update", "Delete", "ConditionCheck"]

# The usual `shared_ms` of popular items: DynamoDB gets at most four reads of an item per second and process.
SHARED_MS = 250
# Clients choose the attributes of updates, so there are as many expressions as combinations of attributes.
EXPRESSION_CACHE_SIZE = 4096

WRITES = ("Put", "Update", "Delete", "BatchWrite", "TransactWrite")

# The number of items on a page of a list: by default, and at most.
DEFAULT_PAGE_SIZE = 25
MAX_PAGE_SIZE = 100


class Who(StrEnum):
    """The callers that may use an access pattern. The roles admin and system may read everything that a user may."""

    ANY = "any"
    USER = "user"
    ADMIN = "admin"
    SYSTEM = "system"
    INTERNAL = "internal"


@lru_cache(EXPRESSION_CACHE_SIZE)
def aliases_in(*expressions: str) -> Mapping[str, str]:
    """Return the ExpressionAttributeNames for the aliases (`#name`) in the expressions.

    An alias is the attribute's own name. It cannot contain a `#`, so `__` stands for that in an attribute's name.
    """
    return {
        f"#{name}": name.replace("__", "#") for expression in expressions for name in re.findall(r"#(\w+)", expression)
    }


@lru_cache(EXPRESSION_CACHE_SIZE)
def values_in(*expressions: str) -> frozenset[str]:
    """Return the names of the values (`:name`) in the expressions."""
    return frozenset(name for expression in expressions for name in re.findall(r":(\w+)", expression))


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index."""

    name: str
    partition: str
    sort: str | None = None
    sort_type: AttributeType = "S"
    #: "ALL", "KEYS_ONLY", or the attributes that the index includes besides the keys.
    projection: Literal["ALL", "KEYS_ONLY"] | tuple[str, ...] = "ALL"
    #: The approximate size of an item in the index, if it is much smaller than in the table.
    item_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table. Each table is declared once: tables are compared and hashed by identity."""

    #: The documented name. The store adds its prefix.
    name: str
    partition: str
    #: The sort attribute, None if the partition attribute alone is the key.
    sort: str | None = None
    indexes: tuple[Index, ...] = ()
    #: The TTL attribute, in epoch seconds.
    ttl: str | None = None
    stream: Literal["NEW_AND_OLD_IMAGES", None] = None
    #: The approximate size of the items that lists consist of, measured in the demo data, for the estimates of costs.
    item_bytes: int = 500
    #: The number of indexes that usually contain an item. A write of the item is repeated in each.
    index_copies: int = 1

    def index(self, name: str) -> Index:
        return next(index for index in self.indexes if index.name == name)

    def key_attributes(self, index: str | None = None) -> tuple[str, ...]:
        """Return the attributes of a start key: the table's keys, and those of the index if one is given."""
        names = [self.partition, self.sort]
        if index is not None:
            names += [self.index(index).partition, self.index(index).sort]
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True, eq=False)
class AccessPattern:
    """One documented way to read or write a table.

    `key`, `filter`, `condition`, `guard` and `update` are the expressions that are sent to DynamoDB. In them `:name` is
    a value of the caller, and `#name` an attribute whose name DynamoDB reserves or that contains a `#` (`aliases_in`).
    """

    #: The id in the documentation. Variants of a pattern share it.
    id: str
    #: The question that the pattern answers, or the task that it does, in one sentence.
    question: str
    table: Table
    #: All operations that a field of this pattern may issue.
    operations: tuple[Operation, ...]
    #: The callers that may use the pattern.
    who: Who
    #: Further callers that may use it.
    also: tuple[Who, ...] = ()
    #: The fields of the API that use it.
    fields: tuple[str, ...] = ()
    #: The kinds of actions in its transactions, with the table if it is not the pattern's own.
    transacts: tuple["ActionKind | tuple[ActionKind, Table]", ...] = ()
    index: str | None = None
    #: The KeyConditionExpression.
    key: str = ""
    #: Clauses of the FilterExpression. A clause is sent if the caller gives all of its values.
    filter: tuple[str, ...] = ()
    condition: str = ""
    #: Clauses that an update adds to `condition`. A clause is sent if the caller gives all of its values.
    guard: tuple[str, ...] = ()
    update: str = ""
    descending: bool = False
    #: What a Query returns: whole items, their count (and items where they are selected), or the attributes of the
    #: selected fields.
    projection: Literal["ALL", "COUNT", "SELECTED"] = "ALL"
    #: Whether reads of the base table must see the latest write.
    consistent: bool = False
    #: Whether the keys of the list identify people (by their email). Its cursors are then encrypted.
    personal: bool = False
    #: The seconds for which caches may keep a response with data, 0 for not at all.
    max_age: int = 0
    #: The milliseconds for which the result of a point read serves other requests of the process, for items that
    #: everybody may see, or whose visibility is decided after the read.
    shared_ms: int = 0
    #: The default overflow policy of a subscription, None for other fields.
    when_slow: OverflowPolicy | None = None
    #: Whether a subscriber may choose another overflow policy.
    client_may_choose: bool = True

    @property
    def default_policy(self) -> OverflowPolicy:
        """The overflow policy of a subscription whose client chooses none."""
        assert self.when_slow is not None, self.id
        return self.when_slow

    @property
    def reads(self) -> bool:
        return any(not name.startswith(WRITES) for name in self.operations)

    @property
    def writes(self) -> bool:
        return any(name.startswith(WRITES) for name in self.operations)

    @property
    def transacted(self) -> tuple[tuple[ActionKind, Table], ...]:
        """The kinds of actions in its transactions, each with its table."""
        return tuple((acts, self.table) if isinstance(acts, str) else acts for acts in self.transacts)

    @property
    def summary(self) -> str:
        """The pattern as the descriptions of the schema show it: id, operations, table and index.

        The summary of a subscription ends with its overflow policy.
        """
        where = self.table.name if self.index is None else f"{self.table.name}.{self.index}"
        slow = "" if self.when_slow is None else f", when slow {self.when_slow.name}"
        return f"{self.id}: {' + '.join(self.operations) or 'change feed'} on {where}{slow}"


Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a field's reads and writes, from which its cost is estimated together with its access patterns.

    Functions receive the arguments as the client sent them, with values of any type.
    """

    #: The number of entries of the field's list, the name of the argument that states it, or a function of the
    #: arguments and the moment. For a field that is not a list, the factor of the cost of its selection.
    size: int | str | Callable[[Arguments, datetime], float] | None = None
    #: Whether the field issues point reads for each of the `size` entries.
    per_entry: bool = False
    #: The number of point reads for one entry.
    reads: int = 1
    #: The number of Queries, or a function of the arguments and the moment.
    partitions: Callable[[Arguments, datetime], float] | float = 1
    #: The number of items read for each item that passes the filter; in total for a field that is not a list.
    scanned: Callable[[Arguments], float] | float = 1
    #: The number of items that a mutation writes. By default the length of the list among its arguments.
    written: Callable[[Arguments], float] | float | None = None
    #: Write units that are consumed after the response.
    deferred: float = 0
    #: Subfields that the parent's item answers. The field reads nothing if only these are selected.
    from_parent: frozenset[str] = frozenset()
    #: The name of the cost model that replaces all other attributes if the process has it.
    model: str = ""
    #: The read units of a search in the index.
    searched: float = 0


class CostModel(Protocol):
    """A model that estimates the reads of a field from statistics of the stored items.

    Arguments are not validated yet: a value may be of any type.
    """

    #: The upper bound of every estimate, in read units, also without statistics.
    max_units: float

    async def load(self, arguments: Arguments, now: datetime) -> None:
        """Read the statistics that `units` needs unless they are cached. An unavailable store raises nothing."""

    def units(self, arguments: Arguments, now: datetime) -> float | None:
        """Return the read units, or None without statistics for these arguments."""


NO_EXTENT = Extent()
