"""What a table, an index and an access pattern are: frozen values that drive code, documentation and tests."""

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

# How long an item that a crowd looks at serves them all: who asks again and again has four reads made in a second.
CROWD_MS = 250
# Updates are made of what clients give: there are as many expressions as combinations of attributes.
EXPRESSION_CACHE_SIZE = 4096

WRITES = ("Put", "Update", "Delete", "BatchWrite", "TransactWrite")

# Items on a page of a list: without a size in the request, and at most.
DEFAULT_PAGE = 25
LARGEST_PAGE = 100


class Who(StrEnum):
    """Who may use an access pattern. Admin and system may read what a user may."""

    ANY = "any"
    USER = "user"
    ADMIN = "admin"
    SYSTEM = "system"
    INTERNAL = "internal"


@lru_cache(EXPRESSION_CACHE_SIZE)
def aliases_in(*expressions: str) -> Mapping[str, str]:
    """ExpressionAttributeNames for the `#name`s in the expressions: an alias is the attribute's own name.

    An alias cannot hold a `#`: for the one in an attribute's name it has `__`.
    """
    return {
        f"#{name}": name.replace("__", "#") for expression in expressions for name in re.findall(r"#(\w+)", expression)
    }


@lru_cache(EXPRESSION_CACHE_SIZE)
def values_in(*expressions: str) -> frozenset[str]:
    """The names of the `:name` values in the expressions."""
    return frozenset(name for expression in expressions for name in re.findall(r":(\w+)", expression))


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index. `projection` is "ALL", "KEYS_ONLY", or the attributes it includes besides the keys.

    `item_bytes` is about what an item takes in the index, where that is much less than in the table.
    """

    name: str
    partition: str
    sort: str | None = None
    sort_type: AttributeType = "S"
    projection: Literal["ALL", "KEYS_ONLY"] | tuple[str, ...] = "ALL"
    item_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table by its documented name; the store adds its prefix. `ttl` names the attribute of epoch seconds.

    `item_bytes` is about what an item takes that lists are made of, measured in the demo's data: costs are estimated
    by it. `shown_in` is in how many of its indexes an item is, as a rule: it is written again in each.
    Without `sort` the partition attribute alone is the key. There is one of each: a table is compared, and found in
    dicts, by identity.
    """

    name: str
    partition: str
    sort: str | None = None
    indexes: tuple[Index, ...] = ()
    ttl: str | None = None
    stream: Literal["NEW_AND_OLD_IMAGES", None] = None
    item_bytes: int = 500
    index_copies: int = 1

    def index(self, name: str) -> Index:
        return next(index for index in self.indexes if index.name == name)

    def key_attributes(self, index: str | None = None) -> tuple[str, ...]:
        """The attributes of a start key: the table's own keys, and the index's when there is one."""
        names = [self.partition, self.sort]
        if index is not None:
            names += [self.index(index).partition, self.index(index).sort]
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True, eq=False)
class AccessPattern:
    """One question the tables can be asked, as it is asked.

    `key`, `filter`, `condition` and `update` are the expressions sent to DynamoDB: `:name` is a value given by the
    caller, `#name` an attribute whose name DynamoDB reserves. A clause of `filter` counts if all its values are given,
    one of `guard` too: it is asked of an update besides `condition`.
    `projection` is what a Query brings: whole items, their count (items too where they are selected), or the attributes
    of the fields that are selected. `consistent` marks reads of base tables that must see the latest write.
    `operations` is all that a field of this pattern may issue; `fields` are its names in the API. `transacts` are the
    kinds of actions in its transactions, with the table where that is another than the pattern's. `who` may use it, and
    `also` those. The keys of a `personal` list tell of people (by their email): its cursors are encrypted.
    `max_age` are the seconds for which an answer that was found may be shown again; 0 for none at all.
    `shared_ms` are the milliseconds for which an item that a point read brought serves other requests of the process,
    too: where anybody may be shown it, or who may is decided after the read.
    `when_slow` is what happens to a subscriber that does not keep up, unless it asks for something else: None for what
    is no subscription. `chooses` tells whether it may ask.
    """

    id: str
    question: str
    table: Table
    operations: tuple[Operation, ...]
    who: Who
    also: tuple[Who, ...] = ()
    fields: tuple[str, ...] = ()
    transacts: tuple["ActionKind | tuple[ActionKind, Table]", ...] = ()
    index: str | None = None
    key: str = ""
    filter: tuple[str, ...] = ()
    condition: str = ""
    guard: tuple[str, ...] = ()
    update: str = ""
    descending: bool = False
    projection: Literal["ALL", "COUNT", "SELECTED"] = "ALL"
    consistent: bool = False
    personal: bool = False
    max_age: int = 0
    shared_ms: int = 0
    when_slow: OverflowPolicy | None = None
    client_may_choose: bool = True

    @property
    def default_policy(self) -> OverflowPolicy:
        """Of a subscription: what happens to a subscriber that does not keep up, if nothing else is asked for."""
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
        """The pattern in a few words, as the schema's descriptions show it: id, operations, table and index.

        Of a subscription it says what becomes of who is slow, too.
        """
        where = self.table.name if self.index is None else f"{self.table.name}.{self.index}"
        slow = "" if self.when_slow is None else f", when slow {self.when_slow.name}"
        return f"{self.id}: {' + '.join(self.operations) or 'change feed'} on {where}{slow}"


Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a field's reads and writes, by which its cost is estimated beside its access patterns.

    Functions of the arguments receive them as they came, of any type.

    size: the entries of the field's list, the argument that states their number, or a function of the arguments and the
        moment. For a field that is no list, the factor for the cost of its selection.
    each: whether there is a point read for each of the `size` entries.
    reads: the point reads for one entry.
    partitions: the number of Queries, or a function of the arguments and the moment.
    scanned: the items read for each item that passes the filter, or in all for a field that is no list.
    written: the items that a mutation writes; by default the length of the list among its arguments.
    deferred: write units that are consumed after the response.
    from_parent: subfields that the parent's item answers. The field reads nothing where only these are selected.
    model: the name of the cost model that replaces all of these, where the process has it.
    searched: read units that a search of the index costs.
    """

    size: int | str | Callable[[Arguments, datetime], float] | None = None
    per_entry: bool = False
    reads: int = 1
    partitions: Callable[[Arguments, datetime], float] | float = 1
    scanned: Callable[[Arguments], float] | float = 1
    written: Callable[[Arguments], float] | float | None = None
    deferred: float = 0
    from_parent: frozenset[str] = frozenset()
    model: str = ""
    searched: float = 0


class CostModel(Protocol):
    """A model that estimates the reads of a field from statistics of the stored items.

    Arguments are not validated yet: a value may be of any type. No estimate exceeds `most`, in read units, also without
    statistics.
    """

    max_units: float

    async def load(self, arguments: Arguments, now: datetime) -> None:
        """Read the statistics that `units` needs, unless they are cached. An unavailable store raises nothing."""

    def units(self, arguments: Arguments, now: datetime) -> float | None:
        """Return the read units, or None without statistics for these arguments."""


NO_EXTENT = Extent()
