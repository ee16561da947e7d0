"""The parts of a page of the contract. All tests of the contract take their cases from the pages."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from datastore.model.access_patterns import Operation, Table, Who
from datastore.model.identity import Role
from tests.support.served import Served

SIGN_IN, FORBIDDEN = ["UNAUTHENTICATED"], ["FORBIDDEN"]
# The id of an access pattern, its callers, and the operations that a field may issue for it.
Use = tuple[str, Who, set[Operation]]
ROLES = {Who.ANY: Role.USER, Who.USER: Role.USER, Who.ADMIN: Role.ADMIN, Who.SYSTEM: Role.SYSTEM}


class Owner(Enum):
    """The way in which a field knows that its data is Ada's. Other users are refused."""

    #: The arguments name her. Admins and services may use the field, too.
    NAMED = "named"
    #: Only the stored item names her. All others are refused.
    STORED = "stored"
    #: Only the stored item names her. Admins may use the field, too.
    STORED_OR_ADMIN = "stored or admin"


class Again(Enum):
    """The effect of a second execution of a mutation whose process died before it stored the response."""

    #: It changes nothing, and responds as the first one.
    NOTHING = "nothing"
    #: It finds nothing to delete, and nothing to return.
    NOTHING_THERE = "nothing there"
    #: The same, and the operation on the page finds nothing to delete in the first execution either.
    NOTHING_EITHER_TIME = "nothing either time"
    #: It writes the same values, with a new version and time.
    WRITTEN = "written"


@dataclass(frozen=True)
class Field:
    """A root field of queries or mutations, and an operation that selects it."""

    name: str
    use: Use
    #: `<name>` stands for a text that `prepare` of the page returns under this name.
    operation: str
    #: The exact calls of the operation, sorted: the operation of DynamoDB with the table, and the index.
    calls: list[str]
    #: Further access patterns of the field.
    also: Sequence[Use] = ()
    #: The user that sends the operation.
    user: str = "ada"
    owner: Owner | None = None
    #: Whether the field knows users by their email. Services have none, and are refused.
    by_email: bool = False
    #: The code that an allowed caller gets while nothing is stored, empty for a response without errors.
    missing: str = ""
    #: The effect of a second execution, for a mutation.
    again: Again = Again.NOTHING
    #: The place among the mutations of the page. Mutations that delete come after the others with the same number.
    order: int = 0
    #: Whether its deletion is UNAVAILABLE if the response of DynamoDB is lost: the retry finds no item to return.
    is_ambiguous: bool = False
    #: Whether an earlier mutation of the page consumes the items that this one needs.
    is_prepared_again: bool = False

    @property
    def uses(self) -> tuple[Use, ...]:
        return self.use, *self.also

    @property
    def who(self) -> Who:
        return self.use[1]

    @property
    def role(self) -> Role:
        """The role of the user that sends the operation."""
        return ROLES[self.who]

    @property
    def is_mutation(self) -> bool:
        return self.operation.startswith("mutation")

    def text(self, prepared: Mapping[str, str]) -> str:
        """Return the operation with the texts that `prepare` returned."""

        def text_of(name: re.Match[str]) -> str:
            try:
                return prepared[name[1]]
            except KeyError:
                raise AssertionError(f"{self.name}: `prepare` of its page returns no text for <{name[1]}>.") from None

        return re.sub(r"<(\w+)>", text_of, self.operation)


@dataclass(frozen=True)
class Followed:
    """A subscription."""

    name: str
    use: Use
    selection: str
    #: The table that it follows, and the read of its initial state.
    snapshot: tuple[Table, str] | None = None
    #: Further selections with the same snapshot.
    also_selected: Sequence[str] = ()

    @property
    def uses(self) -> tuple[Use, ...]:
        return (self.use,)

    @property
    def is_personal(self) -> bool:
        """Whether other users are refused."""
        return self.use[1] is Who.USER


@dataclass(frozen=True)
class NodeType:
    """A type with a global id."""

    name: str
    #: A selection of the id of an item of Ada.
    selection: str
    #: The id of the pattern if not everybody may read it.
    restricted: str | None = None


@dataclass(frozen=True)
class Nested:
    """A field of a type that not everybody may read."""

    #: `Type.field`
    name: str
    #: A selection of the object, with the field under the name `value`.
    selection: str
    #: The value or the error codes for each kind of caller.
    expected: Mapping[str, Any]


async def prepare_nothing(_: Served) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Page:
    """The contract of a system."""

    #: The name of the module of the page.
    name: str
    fields: tuple[Field, ...]
    #: Stores the items that the operations need, Ada's among them. Returns the texts for the operations.
    prepare: Callable[[Served], Awaitable[dict[str, str]]] = prepare_nothing
    subscriptions: tuple[Followed, ...] = ()
    #: The pattern of each list, and the bound values of its cursors: with all arguments, and with the required ones
    #: only. Other values would invalidate the cursors of earlier releases. `<argument>` stands for the value of it in
    #: tests/api/test_lists.py.
    cursors: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    nodes: tuple[NodeType, ...] = ()
    nested: tuple[Nested, ...] = ()
    #: Fields whose calls another test module asserts, because they need more than stored items.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    #: Whether only other programs store its items, so that the demo has none.
    is_stored_elsewhere: bool = False
    #: The email of the user that sends the operations, for a system that knows users by it.
    email: str | None = None

    @property
    def file(self) -> str:
        return f"tests/support/contract/{self.name}.py"

    @property
    def rows(self) -> tuple[Field | Followed, ...]:
        return self.fields + self.subscriptions

    @property
    def mutations(self) -> list[Field]:
        """The mutations in an order in which each finds the items that it needs."""
        return sorted([row for row in self.fields if row.is_mutation], key=_place)


_DELETES = re.compile("delete|un[a-z]+[A-Z]|unfollow$|remove")


def _place(row: Field) -> tuple[int, bool]:
    return row.order, bool(_DELETES.match(row.name))
