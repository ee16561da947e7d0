"""The design of a system to generate: its table, its kinds of items, their keys and attributes, and their lists."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import capwords
from typing import Any, Literal, NamedTuple


class CannotGenerate(Exception):
    """The system cannot be generated. The message says why."""


# The greatest number of characters of an id that `validate.id` accepts by default.
LONGEST_ID = 100
EXAMPLE_TIME = "2026-06-25T12:00:00.000Z"


class ValueType(NamedTuple):
    """A type of attributes: its specifier, its annotations in the record and in the schema, and an example."""

    specifier: str
    record: str
    schema: str
    example: Any
    #: The example in a response.
    shown: Any


TYPES = {
    "time": ValueType("moment", "datetime", "datetime", EXAMPLE_TIME, "2026-06-25T12:00:00.000Z"),
    "text": ValueType("text", "str", "str", "one", "one"),
    "number": ValueType("number", "float", "float", 1, 1),
    "flag": ValueType("flag", "bool", "bool", True, True),
    "texts": ValueType("texts", "tuple[str, ...]", "list[str]", ["one"], ["one"]),
    "any": ValueType("document", "Any", "JSON", {"one": 1}, {"one": 1}),
    "ttl": ValueType("seconds", "datetime", "datetime", 4102444800, "2100-01-01T00:00:00.000Z"),
    "version": ValueType("version", "int", "int", 1, 1),
}


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a key that differs from item to item. Constant parts are texts."""

    #: The name of the parameter, and of the field of the record.
    name: str
    description: str
    #: The owner is a user, a new id is generated, and another value is given when an item is created.
    role: Literal["owner", "new id", "given"] = "given"
    #: The attribute that has the same value, empty if there is none.
    attribute: str = ""
    example: str = "one"
    #: The greatest number of characters that its argument may have.
    longest: int = LONGEST_ID

    @property
    def api_name(self) -> str:
        return camel(self.name)

    @property
    def schema_type(self) -> str:
        return "strawberry.ID" if re.search(r"(^|_)id$", self.name) else "str"

    @property
    def argument(self) -> str:
        """The name of the type of the argument."""
        return "UserId" if self.role == "owner" else f"{capital(self.name)}Argument"

    @property
    def check(self) -> str:
        """The expression of the checked argument."""
        if self.role == "owner":
            return f'validate.user_id("{self.api_name}", {self.name})'
        longest = "" if self.longest == LONGEST_ID else f", {self.longest}"
        return f'validate.id("{self.api_name}", {self.name}{longest})'


Key = tuple[tuple[KeyPart | str, ...], tuple[KeyPart | str, ...]]


@dataclass(frozen=True, slots=True)
class ItemField:
    """An attribute of a kind of items, and the field that has its value."""

    name: str
    field: str
    type: str
    description: str
    is_optional: bool = False
    options: str = ""

    @property
    def declaration(self) -> str:
        """The declaration in the class of the stored item."""
        kind = TYPES[self.type]
        name = "" if self.type == "version" else repr(self.name)
        options = [option for option in (name, self.options, "default=None" if self.is_optional else "") if option]
        return f"{self.field}: {_optional(kind.record, self)} = stored.{kind.specifier}({', '.join(options)})"

    @property
    def schema(self) -> str:
        """The declaration in the type of the schema."""
        return f"{self.field}: {_optional(TYPES[self.type].schema, self)} = described({self.description})"


def _optional(annotation: str, attribute: ItemField) -> str:
    return f"{annotation} | None" if attribute.is_optional and annotation != "Any" else annotation


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list of the items of a kind that have the same partition key, in the table or in an index."""

    #: The name of its field.
    name: str
    #: The attribute of the partition key, and its parts.
    attribute: str
    partition: tuple[KeyPart | str, ...]
    #: The sort attribute, and the text with which the sort keys of this kind begin.
    sort: str = ""
    prefix: str = ""
    index: str = ""
    #: Whether the index contains some attributes of the items only, so that the items are read by their keys.
    is_partial: bool = False

    @property
    def parameters(self) -> list[KeyPart]:
        return parameters(self.partition)


@dataclass(frozen=True, slots=True)
class ItemKind:
    """A kind of items: those whose keys have the same constant parts."""

    #: The name of one item and of several, such as `shopping_list` and `shopping_lists`.
    name: str
    plural: str
    key: Key
    attributes: Sequence[ItemField]
    lists: Sequence[ItemList]
    #: The values of key attributes in an example.
    example: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> list[KeyPart]:
        return parameters((*self.key[0], *self.key[1]))

    @property
    def owner(self) -> KeyPart | None:
        return next((part for part in self.parameters if part.role == "owner"), None)

    @property
    def has_new_id(self) -> bool:
        return self.parameters[-1].role == "new id"


@dataclass(frozen=True, slots=True)
class SystemDesign:
    """A system to generate."""

    #: A plural such as `shopping_lists`.
    name: str
    table: str
    partition: str
    sort: str | None
    kinds: Sequence[ItemKind]
    #: The declarations of the indexes.
    indexes: Sequence[str] = ()
    ttl: str | None = None
    #: The time after their creation at which new items expire.
    lifetime_days: int | None = None
    some_never_expire: bool = False
    has_stream: bool = False
    #: The measured size of the items.
    item_bytes: int | None = None
    #: Whether mutations create, change and delete items.
    writes: bool = False
    #: Whether updates may name the version that they expect.
    version: bool = False
    #: Whether a subscription follows the items of an owner.
    live: bool = False


def parameters(parts: Sequence[KeyPart | str]) -> list[KeyPart]:
    """Return the parts that differ from item to item. A key may contain one twice."""
    return list(dict.fromkeys(part for part in parts if isinstance(part, KeyPart)))


def words(name: str) -> str:
    return name.replace("_", " ")


def capital(name: str) -> str:
    """Return the name with a capital at the beginning of each word."""
    return capwords(name, "_").replace("_", "")


def camel(name: str) -> str:
    return name[0] + capital(name)[1:]


def singular(plural: str) -> str:
    if plural.endswith("ies"):
        return f"{plural[:-3]}y"
    return re.sub("(?<=ch|sh|ss)es$" if re.search("(ch|sh|ss)es$", plural) else "s$", "", plural)


def plural_of(name: str) -> str:
    """Return the plural of a name, which differs from the name."""
    if re.search("[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search("(s|x|z|ch|sh)$", name) else f"{name}s"
