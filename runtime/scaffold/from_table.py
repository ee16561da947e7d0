"""The design of a system that reads an existing table, from the table's description and a sample of its items."""

import keyword
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from statistics import mean
from typing import Any, NamedTuple

from datastore.dynamodb.codec import Item, encode_item, item_bytes
from datastore.errors import BadUserInput
from datastore.model.composite_keys import join, split
from runtime.scaffold.design import (
    EXAMPLE_TIME,
    CannotGenerate,
    ItemField,
    ItemKind,
    ItemList,
    KeyPart,
    SystemDesign,
    camel,
    capital,
    parameters,
    plural_of,
    singular,
    words,
)
from runtime.scaffold.from_options import RESERVED

SAMPLE = 1000
# The modules of a system have room for this number of kinds.
MOST_KINDS = 8
# The greatest number of characters of a value in a key.
LONGEST_PART = 1024
_CONSTANT = re.compile(r"[A-Z][A-Z_]*\$?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# Words of keys that do not say what an item is.
_NO_NAMES = {"meta", "metadata"}
# The names that a stored item, or a type with a global id, has for another purpose.
_FIELDS_IN_USE = {"attributes", "declaration", "decoder", "id", "is_type_of", "item"}

# The parts of a key: the text of each constant part, None for each part that differs from item to item.
Form = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The keys of a table or of one of its indexes."""

    partition: str
    sort: str = ""
    index: str = ""
    #: The attributes that the index contains besides keys, None for all.
    projection: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.partition, self.sort) if self.sort else (self.partition,)


class Place(NamedTuple):
    """The place of a kind of items in the table or in an index: the keys, and the forms of their values."""

    keys: TableKeys
    partition: tuple[KeyPart | str, ...]
    sort: Form


def design_from_table(
    name: str, description: Mapping[str, Any], ttl: str | None, items: Sequence[Item]
) -> tuple[SystemDesign, list[str]]:
    """Return the design of the system `name` that reads a table, and what the sample does not show.

    `description` is the response of DescribeTable, `ttl` the TTL attribute.

    Raises `CannotGenerate` for a table that the generated code cannot read.
    """
    table = TableReading(name, description, ttl)
    kinds = list(table.kinds(items))
    if not kinds:
        raise CannotGenerate(f"The table {table.name} has no items that show what kinds of items it has.")
    system = SystemDesign(
        name,
        table.name,
        table.keys.partition,
        table.keys.sort or None,
        kinds,
        indexes=[table.declaration(index) for index in table.indexes],
        ttl=ttl,
        some_never_expire=ttl is not None and any(ttl not in item for item in items),
        has_stream=table.has_stream,
        item_bytes=max(100, round(mean(item_bytes(encode_item(item)) for item in items))),
    )
    return system, list(dict.fromkeys(table.unknown))


class TableReading:
    """The reading of a table's description and of a sample, with notes of what they do not show."""

    def __init__(self, system: str, description: Mapping[str, Any], ttl: str | None) -> None:
        self.name: str = description["TableName"]
        self.unknown: list[str] = []
        self.keys = _keys(description["KeySchema"])
        self.indexes: list[TableKeys] = []
        self._system = system
        self._ttl = ttl
        self._used = {system}
        self._types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
        if any(self._types[name] != "S" for name in self.keys.names):
            raise CannotGenerate(f"The keys {' and '.join(self.keys.names)} of {self.name} are not texts.")
        for each in description.get("GlobalSecondaryIndexes", ()):
            index = _keys(each["KeySchema"], each)
            if self._types[index.partition] == "S":
                self.indexes.append(index)
            else:
                self.unknown.append(f"The index {index.index}: its partition key is not a text.")
        if description.get("LocalSecondaryIndexes"):
            self.unknown.append("The local secondary indexes: a table declares only global ones.")
        view = description.get("StreamSpecification", {}).get("StreamViewType")
        self.has_stream = view == "NEW_AND_OLD_IMAGES"
        if view and not self.has_stream:
            self.unknown.append(f"The stream with {view}: consumers and subscriptions need NEW_AND_OLD_IMAGES.")

    def declaration(self, index: TableKeys) -> str:
        """Return the declaration of an index."""
        arguments = [repr(index.index), *map(repr, index.names)]
        if index.sort and self._types[index.sort] != "S":
            arguments.append(f"sort_type={self._types[index.sort]!r}")
        if index.projection is not None:
            arguments.append(f"projection={index.projection or 'KEYS_ONLY'!r}")
        return f"Index({', '.join(arguments)})"

    def kinds(self, items: Sequence[Item]) -> Iterator[ItemKind]:
        """Yield the kinds of items: those whose keys have the same constant parts."""
        found: dict[tuple[Form, ...], list[Item]] = defaultdict(list)
        for item in items:
            if all(_is_joined(item[name]) for name in self.keys.names):
                found[tuple(_form(item[name]) for name in self.keys.names)].append(item)
            else:
                self.unknown.append("Items with an empty part, `%` or control characters in their keys.")
        most = sorted(found, key=lambda forms: -len(found[forms]))[:MOST_KINDS]
        for forms in sorted(found, key=str):
            shown = " / ".join("#".join(part or "…" for part in form) for form in forms)
            if all(part for form in forms for part in form):
                self.unknown.append(f"The item {shown}: no part of its key differs.")
            elif forms not in most:
                self.unknown.append(f"The items {shown}: the modules of a system have room for {MOST_KINDS} kinds.")
            else:
                yield self._kind(forms, found[forms])

    def _kind(self, forms: tuple[Form, ...], items: Sequence[Item]) -> ItemKind:
        constants = [word.lower() for form in forms for part in form if part for word in re.findall("[A-Z]+", part)]
        of_system = singular(self._system)
        named = [word for word in dict.fromkeys(constants) if word not in {*_NO_NAMES, *of_system.split("_")}]
        name = _free("_".join([of_system, *named]), self._used)
        plural = self._system if name == of_system else _free(plural_of(name), self._used)
        taken = {_snake(attribute) for item in items for attribute in item}
        known: dict[tuple[str, ...], KeyPart] = {}
        key = [
            tuple(self._parts(name, attribute, form, items, taken, known))
            for attribute, form in zip(self.keys.names, forms, strict=True)
        ]
        parts = parameters([part for each in key for part in each])
        example = {attribute: _example(each) for attribute, each in zip(self.keys.names, key, strict=True)}
        example |= {part.attribute: part.example for part in parts if part.attribute}
        hidden = {*self.keys.names, *(part.attribute for part in parts)}
        in_indexes = [place for index in self.indexes if (place := self._place(name, index, items, taken))]
        for keys, partition, sort in in_indexes:
            example[keys.partition] = _example(partition)
            if len(sort) > 1 or any(sort):
                example[keys.sort] = "#".join(part or "one" for part in sort)
            hidden |= {each for each, form in ((keys.partition, partition), (keys.sort, sort)) if len(form) > 1}
        attributes = list(self._attributes(name, items, hidden, {part.name for part in parts} | _FIELDS_IN_USE))
        lists = (
            [self._list(plural, Place(self.keys, key[0], forms[1]))] if parameters(key[-1]) and self.keys.sort else []
        )
        for place in in_indexes:
            by = "_and_".join(part.name for part in parameters(place.partition)) or _snake(place.keys.partition)
            needed = {each.name for each in attributes}.difference(self.keys.names, place.keys.names)
            is_partial = place.keys.projection is not None and not needed <= {*place.keys.projection}
            lists.append(self._list(_free(f"{plural}_by_{by}", self._used), place, is_partial))
        listed = [each for each in lists if each is not None]
        if not listed:
            self.unknown.append(f"{capital(name)}: a list, for which neither the table nor an index has a key.")
        return ItemKind(name, plural, (key[0], key[1] if len(key) > 1 else ()), attributes, listed, example)

    def _place(self, kind: str, index: TableKeys, items: Sequence[Item], taken: Collection[str]) -> Place | None:
        """Return the place of a kind of items in an index, None if the index contains none of them."""
        own = [item for item in items if isinstance(item.get(index.partition), str) and index.sort in {"", *item}]
        partitions, sorts = (
            {_form(str(item[name])) if name else () for item in own} for name in (index.partition, index.sort)
        )
        if len(partitions) > 1:
            self.unknown.append(f"{capital(kind)}: its keys in the index {index.index} have several forms.")
        if len(partitions) != 1:
            return None
        partition = tuple(self._parts(kind, index.partition, partitions.pop(), own, taken, {}))
        return Place(index, partition, sorts.pop() if len(sorts) == 1 else (None,))

    def _parts(
        self,
        kind: str,
        attribute: str,
        form: Form,
        items: Sequence[Item],
        taken: Collection[str],
        known: dict[tuple[str, ...], KeyPart],
    ) -> Iterator[KeyPart | str]:
        """Yield the parts of a key. Those that differ have the name of the attribute with the same value in all items.

        Without such an attribute they are named after the constant part before them. `known` has the parts by their
        values.
        """
        for place, constant in enumerate(form):
            if constant is not None:
                yield constant
                continue
            values = [_split(item[attribute])[place] for item in items]
            if tuple(values) in known:
                yield known[tuple(values)]
                continue
            before = (form[place - 1] or "").strip("$").lower() if place else ""
            same = [
                name
                for name in sorted(items[0], key=lambda name: (before not in name.lower(), name))
                if name not in self.keys.names and [item.get(name) for item in items] == values
            ]
            if len(form) == 1:
                name, same = _snake(attribute), [attribute] if attribute not in self.keys.names else []
            elif same:
                name = _snake(same[0])
            else:
                name = f"{before}_id" if before else f"{_snake(attribute)}_part_{place + 1}"
                name += "_in_key" if name in taken else ""
                self.unknown.append(
                    f"{capital(kind)}: an attribute with the value of part {place + 1} of {attribute} ({camel(name)})."
                )
            name = _free(f"stored_{name}" if name in RESERVED else name, {part.name for part in known.values()})
            is_time = all(_TIME.fullmatch(value) for value in values)
            part = known[tuple(values)] = KeyPart(
                name,
                f"The {words(name)} in the key of the item.",
                attribute=same[0] if same else "",
                example=EXAMPLE_TIME if is_time else "one",
                longest=LONGEST_PART,
            )
            yield part

    def _list(self, name: str, place: Place, is_partial: bool = False) -> ItemList | None:
        keys, partition, sort = place
        constant = list(takewhile(lambda part: part is not None, sort))
        prefix = "#".join(map(str, [*constant, ""] if len(constant) < len(sort) else constant)) if constant else ""
        unnamable = [each for each in (keys.partition, keys.sort if prefix else "") if re.search(r"\W|__", each)]
        if unnamable:
            self.unknown.append(f"{camel(name)}: a list, because no expression can name the attribute {unnamable[0]}.")
            return None
        return ItemList(name, keys.partition, partition, keys.sort, prefix, keys.index, is_partial)

    def _attributes(
        self, kind: str, items: Sequence[Item], hidden: Collection[str], used: set[str]
    ) -> Iterator[ItemField]:
        for name in dict.fromkeys(name for item in items for name in item):
            if name in hidden:
                continue
            values = [item.get(name) for item in items]
            present = [value for value in values if value is not None]
            has_null = any(item.get(name, "") is None for item in items)
            field = _snake(name)
            field = _free(f"stored_{field}" if field in _FIELDS_IN_USE else field, used)
            type = "ttl" if name == self._ttl else _type_of(present)
            if type == "any" or (has_null and type in ("texts", "ttl")):
                self.unknown.append(f"{capital(kind)}.{camel(field)}: the type of {name!r}, which is declared as JSON.")
                type = "any"
            is_optional = len(present) < len(items)
            absent = "; null if the item has none" if is_optional else ""
            yield ItemField(name, field, type, repr(f"The attribute `{name}`{absent}."), is_optional)


def _keys(schema: Sequence[Mapping[str, str]], index: Mapping[str, Any] | None = None) -> TableKeys:
    """Return the keys of a table, or of an index of it."""
    names = {key["KeyType"]: key["AttributeName"] for key in schema}
    if index is None:
        return TableKeys(names["HASH"], names.get("RANGE", ""))
    is_whole = index["Projection"]["ProjectionType"] == "ALL"
    others = None if is_whole else tuple(index["Projection"].get("NonKeyAttributes", ()))
    return TableKeys(names["HASH"], names.get("RANGE", ""), index["IndexName"], others)


def _split(text: str) -> list[str]:
    """Return the parts of a key. A value that is the whole key is not escaped."""
    return split(text) if "#" in text else [text]


def _is_joined(text: str) -> bool:
    """Return whether the parts of a key make the same key again."""
    parts = _split(text)
    try:
        return len(parts) == 1 or join(*parts) == text
    except BadUserInput:
        return False


def _form(text: str) -> Form:
    return tuple(part if _CONSTANT.fullmatch(part) else None for part in _split(text))


def _example(parts: Sequence[KeyPart | str]) -> str:
    return "#".join(part if isinstance(part, str) else part.example for part in parts)


def _free(name: str, used: set[str]) -> str:
    """Return the name, with a number if it is used already. It is used from now on."""
    free = next(each for each in chain([name], (f"{name}_{number}" for number in count(2))) if each not in used)
    used.add(free)
    return free


def _snake(name: str) -> str:
    """Return the name of an attribute in the form of names in Python."""
    separate = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    snake = re.sub("_+", "_", re.sub(r"\W", "_", separate, flags=re.ASCII)).strip("_").lower()
    snake = snake if snake and not snake[0].isdigit() else f"attribute_{snake}".strip("_")
    return f"stored_{snake}" if keyword.iskeyword(snake) else snake


def _type_of(values: Sequence[Any]) -> str:
    if all(isinstance(value, bool) for value in values):
        return "flag" if values else "any"
    if all(isinstance(value, str) for value in values):
        return "time" if all(_TIME.fullmatch(value) for value in values) else "text"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "number"
    if all(isinstance(value, list) and all(isinstance(part, str) for part in value) for value in values):
        return "texts"
    return "any"
