"""The declarations of tables, indexes and access patterns: frozen values that drive code, documentation and tests."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache, lru_cache
from types import ModuleType
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
Operations = tuple[Operation, ...]

# The operations of patterns. A point read is one or the other: the session sends several keys together.
GET: Operations = ("GetItem", "BatchGetItem")
QUERY: Operations = ("Query",)
SCAN: Operations = ("Scan",)
PUT: Operations = ("PutItem",)
UPDATE: Operations = ("UpdateItem",)
DELETE: Operations = ("DeleteItem",)
BATCH_WRITE: Operations = ("BatchWriteItem",)
TRANSACT: Operations = ("TransactWriteItems",)

# The usual `shared_ms` of popular items: DynamoDB gets at most four reads of an item per second and process.
SHARED_MS = 250
# Clients choose the attributes of updates, so there are as many expressions as combinations of attributes.
EXPRESSION_CACHE_SIZE = 4096

# The words, in any case, that DynamoDB reserves and that a TTL attribute may have as its name.
RESERVED_TIMES = frozenset(
    {"DATE", "DATETIME", "DAY", "DURATION", "END", "SECOND", "TIME", "TIMESTAMP", "TTL", "UNTIL"}
)

WRITES = ("Put", "Update", "Delete", "BatchWrite", "TransactWrite")

# The number of items on a page of a list: by default, and at most.
DEFAULT_PAGE_SIZE = 25
MAX_PAGE_SIZE = 100


class Who(StrEnum):
    """The callers that may use an access pattern.

    The roles admin and system may read everything that a user may, except the data of patterns for OWNER.
    """

    ANY = "any"
    USER = "user"
    OWNER = "owner"
    ADMIN = "admin"
    SYSTEM = "system"
    INTERNAL = "internal"


class Expiry(StrEnum):
    """Whether items have the TTL attribute of their table."""

    #: All have it.
    ALWAYS = "always"
    #: Those without it never expire.
    SOMETIMES = "sometimes"
    NEVER = "never"


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


def _aliased(attribute: str) -> str:
    """Return a TTL attribute as expressions name it."""
    return f"#{attribute}" if attribute.upper() in RESERVED_TIMES else attribute


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
    #: The TTL attribute, in epoch seconds. DynamoDB deletes expired items days late: patterns leave them out.
    ttl: str | None = None
    #: Whether its items have the TTL attribute. If only some kinds of items expire, their patterns state it.
    expiry: Expiry = Expiry.ALWAYS
    stream: Literal["NEW_AND_OLD_IMAGES", None] = None
    #: The measured size of the items that lists consist of, for the estimates of costs. By default the size follows
    #: from the declarations of its items (`datastore/items/sizes.py`).
    item_bytes: int | None = None
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
    operations: Operations
    #: The callers that may use the pattern.
    who: Who = Who.INTERNAL
    #: The fields of the API that use it.
    fields: tuple[str, ...] = ()
    #: Further callers that may use it.
    also: tuple[Who, ...] = ()
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
    #: Whether the items have the TTL attribute, if it is not as the table states.
    expiry: Expiry | None = None
    #: Whether the pattern reads, changes and deletes expired items as well. Otherwise they are absent from point reads,
    #: pages, counts and the results of writes, and no condition of an update or a put applies to them.
    sees_expired: bool = False
    #: The milliseconds for which the result of a point read serves other requests of the process, for items that
    #: everybody may see, or whose visibility is decided after the read.
    shared_ms: int = 0
    #: The default overflow policy of a subscription, None for other fields.
    when_slow: OverflowPolicy | None = None
    #: Whether a subscriber may choose another overflow policy.
    client_may_choose: bool = True
    #: The TTL attribute of the items that the pattern leaves out once they have expired; empty if there are none.
    hidden_ttl: str = field(init=False, default="")

    def __post_init__(self) -> None:
        hides = self.table.ttl and not self.sees_expired and (self.expiry or self.table.expiry) is not Expiry.NEVER
        object.__setattr__(self, "hidden_ttl", self.table.ttl if hides else "")
        if hides and ":now" in self.update:
            raise TypeError(f"{self.id}: `:now` is the time with which the TTL is compared.")

    @property
    def is_live(self) -> str:
        """The clause that an item has not expired at `:now`; empty if the pattern sees expired items."""
        if not self.hidden_ttl:
            return ""
        name = _aliased(self.hidden_ttl)
        if (self.expiry or self.table.expiry) is Expiry.ALWAYS:
            return f"{name} > :now"
        return f"(attribute_not_exists({name}) OR {name} > :now)"

    @property
    def has_expired(self) -> str:
        """The clause that an item has expired at `:now`; empty if the pattern sees expired items."""
        return f"{_aliased(self.hidden_ttl)} <= :now" if self.hidden_ttl else ""

    def hides(self, ttl: object, seconds: float) -> bool:
        """Return whether an item with this TTL has expired at a time, in epoch seconds. Only numbers expire."""
        return isinstance(ttl, int | float | Decimal) and ttl <= seconds

    @property
    def filters(self) -> tuple[str, ...]:
        """The clauses of the FilterExpression, with that of the TTL."""
        return (*self.filter, self.is_live) if self.hidden_ttl else self.filter

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


@cache
def consistently(pattern: AccessPattern, consistent: bool = True) -> AccessPattern:
    """Return the pattern with strongly consistent reads if `consistent`, else as it is."""
    return replace(pattern, consistent=True) if consistent and not pattern.consistent else pattern


def patterns_of(*modules: ModuleType) -> tuple[AccessPattern, ...]:
    """Return the access patterns that modules declare, in their order."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, AccessPattern))


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
    #: The number of items of a small table that the field reads as a whole, whatever the size of its page.
    scans: int = 0
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
    #: The read units of the counts in a mutation's response that contain the caller's own change.
    own_counts: float = 0
    #: The arguments of filters and conditions that do not change the cost, or only lower it a little; with the reason.
    ignores: Mapping[str, str] = field(default_factory=dict)


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
