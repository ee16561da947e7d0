"""Stored items: classes that declare each attribute of a kind of item once.

    class Watch(StoredItem, key=keys.watch):
        user_id: str = part("userId")
        area: str = part("area")
        note: str | None = text("note", default=None, form=Line(100), removable=True)
        expires_at: datetime = seconds("expiresAt")

From the declaration follow `Watch.decoder`, `watch.item()`, `Watch.attributes(changes)` and `Watch.checks`. Both the
decoder and the encoder are functions that are generated at their first use. A field without a specifier is not stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_args

from msgspec import NODEFAULT, Struct, StructMeta, field

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import REQUIRED, Derived, Element, RecordAttribute, RecordDecoder, Value
from datastore.items import attributes as specifiers
from datastore.items.attributes import FROM_KEY, UNSET, Attribute, Computed, Nested, StoredKey, same
from datastore.items.forms import Form
from datastore.items.keys import ItemKey, Placeholder
from datastore.items.sizes import ItemSize, add_kind, size_of
from datastore.model.composite_keys import Key, escape_part, second_part, split
from datastore.model.timestamps import iso

T = TypeVar("T")


class ItemDeclaration:
    """The declarations of a class of stored items, and what follows from them."""

    def __init__(self, key: ItemKey[...], indexes: tuple[ItemKey[...], ...], annotations: Mapping[str, Any]) -> None:
        self.key = key
        self.indexes = indexes
        self.computed: list[Computed] = []
        self.fields: dict[str, Attribute | Derived | StoredKey] = {}
        self.nested: dict[str, Nested] = {}
        self._annotations = annotations

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        """The fields that are stored as attributes."""
        return {name: value for name, value in self.fields.items() if isinstance(value, Attribute)}

    @cached_property
    def forms(self) -> dict[str, Form]:
        """The fields that an input may have, with the forms of their values."""
        return {name: value.form for name, value in self.attributes.items() if value.form is not None}

    @cached_property
    def removable(self) -> frozenset[str]:
        """The fields that an update may remove."""
        return frozenset(name for name, value in self.attributes.items() if value.removable)

    @cached_property
    def size(self) -> ItemSize:
        """The size of the items, for the estimates of costs and for the documentation."""
        optional = set(filter(self.is_optional, self.attributes))
        nested = {name: value.attribute for name, value in self.nested.items()}
        return size_of((self.key, *self.indexes), {**self.attributes, **nested}, self.computed, optional)

    def is_optional(self, name: str) -> bool:
        """Return whether the value of a field may be None."""
        kind = self._annotations[name]
        return "None" in kind if isinstance(kind, str) else type(None) in get_args(kind)

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the values of the decoder."""
        partition, sort = self.key.attributes
        yield from ((name, declared.attribute) for name, declared in self.nested.items())
        for name, declared in self.fields.items():
            if isinstance(declared, StoredKey):
                yield "_partition", RecordAttribute(partition, "S", None, REQUIRED, None)
                yield "_sort", RecordAttribute(sort, "S", None, REQUIRED, None)
                yield name, Derived(Key, ("_partition", "_sort"))
            elif isinstance(declared, Derived):
                yield name, declared
            elif declared.given:
                yield f"_{name}", replace(declared, convert=None)
                assert callable(declared.convert), name
                yield name, Derived(declared.convert, (f"_{name}", *declared.given))
            elif declared.inside:
                yield from self._inside(name, declared)
            elif declared.is_part:
                yield from self._part(name, declared)
            elif declared.default is FROM_KEY:
                attribute, index, count = self._place(name)
                otherwise = RecordAttribute(attribute, "S", _of_part(index, count, declared.convert), REQUIRED, None)
                yield name, replace(declared, default=otherwise)
            else:
                yield name, declared

    def _part(self, name: str, declared: Attribute) -> Iterator[tuple[str, Value]]:
        attribute, index, count = self._place(name)
        if declared.convert is None and index > 1:
            parts = f"_{attribute}_parts"
            yield parts, RecordAttribute(attribute, "S", _split_into(count), REQUIRED, None)
            yield name, Element(parts, index)
        else:
            yield name, RecordAttribute(attribute, "S", _of_part(index, count, declared.convert), REQUIRED, None)

    def _inside(self, name: str, declared: Attribute) -> Iterator[tuple[str, Value]]:
        outer, beside = f"_in_{declared.inside}", f"_beside_{name}"
        yield outer, RecordAttribute(declared.inside, "M", _or_empty, {}, None)
        yield beside, RecordAttribute(declared.name, declared.kind, None, None, None)
        yield name, Derived(_value_inside(declared.name, declared.convert, declared.default), (outer, beside))

    def _place(self, name: str) -> tuple[str, int, int]:
        """Return the attribute of the key that has the field, its place there, and the number of its parts."""
        for key in (self.key, *self.indexes):
            for attribute, parts in zip(key.attributes, (key.partition, key.sort), strict=True):
                for index, part in enumerate(parts):
                    if isinstance(part, Placeholder) and part == name:
                        return attribute, index, len(parts)
        raise TypeError(f"No key of these items has a part `{name}`: {self.key.documented}.")

    @cached_property
    def _outer(self) -> list[str]:
        """The attributes that contain others."""
        return list(dict.fromkeys(value.inside for value in self.attributes.values() if value.inside))

    @cached_property
    def encode(self) -> Callable[[Any], Item]:
        """A function that returns the item of a record."""
        scope: dict[str, Any] = {"escape_part": escape_part, "iso": iso}
        entries = [*self._key_entries()]
        conditional = [f"{outer} = {{}}" for outer in self._outer]
        for computed in self.computed:
            if isinstance(computed.value, str):
                entries.append(f"{computed.name!r}: {computed.value!r}")
            else:
                value = f"(v := {_bind(computed.value, scope)}(record))"
                conditional.append(f"if {value} is not None: item[{computed.name!r}] = v")
        written = [(name, attribute, self.is_optional(name)) for name, attribute in self.attributes.items()]
        written += [(declared.path, declared.attribute, False) for declared in self.nested.values()]
        for path, attribute, is_optional in written:
            if not attribute.written_as or attribute.encode is None:
                continue
            value = f"record.{path}"
            encoded = value if attribute.encode is same else f"{_bind(attribute.encode, scope)}({value})"
            conditions = [f"{value} is not None"] if is_optional else []
            if attribute.if_none is not UNSET:
                otherwise = _bind(attribute.if_none, scope)
                entries.append(f"{attribute.written_as!r}: {encoded} if {conditions[0]} else {otherwise}")
                continue
            conditions += [f"not {_bind(attribute.omit, scope)}({value})"] if attribute.omit else []
            target = attribute.inside or "item"
            if conditions or attribute.inside:
                condition = " and ".join(conditions) or "True"
                conditional.append(f"if {condition}: {target}[{attribute.written_as!r}] = {encoded}")
            else:
                entries.append(f"{attribute.written_as!r}: {encoded}")
        conditional += [f"if {outer}: item[{outer!r}] = {outer}" for outer in self._outer]
        body = [f"item = {{{', '.join(entries)}}}", *conditional, "return item"]
        exec("def encode(record):\n    " + "\n    ".join(body), scope)
        encode: Callable[[Any], Item] = scope["encode"]
        return encode

    def _key_entries(self) -> Iterator[str]:
        stored = next((name for name, value in self.fields.items() if isinstance(value, StoredKey)), None)
        for key in (self.key, *self.indexes):
            for place, (attribute, parts) in enumerate(zip(key.attributes, (key.partition, key.sort), strict=True)):
                if stored and key is self.key:
                    yield f"{attribute!r}: record.{stored}[{place}]"
                elif attribute:
                    yield f"{attribute!r}: {key.source(parts, 'record.{}'.format)}"


class _Decoders:
    """The descriptor of `decoder`, which makes the decoder of a class at its first use."""

    def __get__(self, _instance: object, owner: type[T]) -> RecordDecoder[T]:
        found = _DECODERS.get(owner)
        if found is None:
            declaration: ItemDeclaration = owner.__declaration__  # type: ignore[attr-defined]
            found = _DECODERS[owner] = RecordDecoder(owner, **dict(declaration.values()))
        return found


_DECODERS: dict[type, RecordDecoder[Any]] = {}


class StoredItemType(StructMeta):
    """The class of the classes of stored items."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: ItemKey[...] | None = None,
        indexes: tuple[ItemKey[...], ...] = (),
        **config: Any,
    ) -> Any:
        if key is None:
            return super().__new__(mcls, name, bases, namespace, **config)
        declaration = ItemDeclaration(key, indexes, namespace.get("__annotations__", {}))
        add_kind(key.table, declaration)
        for field_name, value in list(namespace.items()):
            if isinstance(value, Computed):
                declaration.computed.append(value)
                del namespace[field_name]
            elif isinstance(value, Nested):
                declaration.nested[field_name] = namespace.pop(field_name)
            elif isinstance(value, Attribute | Derived | StoredKey):
                declaration.fields[field_name] = value
                default = value.field_default if isinstance(value, Attribute) else UNSET
                namespace[field_name] = field(default=NODEFAULT if default is UNSET else default)
        secrets = [name for name, attribute in declaration.attributes.items() if attribute.secret]
        if secrets:
            namespace["__repr__"] = _repr_without(frozenset(secrets))
        created: Any = super().__new__(mcls, name, bases, namespace, **{"gc": False, **config, "frozen": True})
        created.__declaration__ = declaration
        return created


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(
        specifiers.text,
        specifiers.number,
        specifiers.count,
        specifiers.flag,
        specifiers.texts,
        specifiers.elements,
        specifiers.mapping,
        specifiers.document,
        specifiers.moment,
        specifiers.seconds,
        specifiers.choice,
        specifiers.choices,
        specifiers.json,
        specifiers.compressed,
        specifiers.version,
        specifiers.part,
        specifiers.derived,
        specifiers.key,
    ),
)
class StoredItem(Struct, metaclass=StoredItemType, frozen=True):
    """A record of one kind of item. Subclasses state the form of the `key`, and those of their keys in `indexes`."""

    __declaration__: ClassVar[ItemDeclaration]
    #: The decoder of items into records.
    decoder: ClassVar[_Decoders] = _Decoders()

    def item(self) -> Item:
        """Return the record as an item. Attributes that are None are omitted."""
        return self.__declaration__.encode(self)

    @classmethod
    def attributes(cls, changes: Mapping[str, Any]) -> Item:
        """Return changes of fields as changes of attributes. None, for an attribute to remove, stays None."""
        declared = cls.__declaration__.attributes
        return {declared[name].written_as: declared[name].stored(value) for name, value in changes.items()}

    def attributes_of(self, names: Iterable[str]) -> Item:
        """Return these fields as changes of attributes. None is an attribute to remove."""
        return self.attributes({name: getattr(self, name) for name in names})


def _or_empty(value: Any) -> Mapping[str, Any]:
    return value or {}


def _value_inside(name: str, convert: Any, default: Any) -> Callable[[Mapping[str, Any], Any], Any]:
    def taken(outer: Mapping[str, Any], beside: Any) -> Any:
        value = outer.get(name, beside)
        if value is None:
            return default
        return value if convert is None else convert(value)

    return taken


def _of_part(index: int, count: int, convert: Any) -> Callable[[str], Any] | None:
    """Return a function from the text of a key to the converted part at `index`, of `count` parts."""
    if count == 1:
        return convert  # type: ignore[no-any-return]
    take: Callable[[str], Any] = second_part if index == 1 else _part_at(index, count)
    return take if convert is None else lambda text: convert(take(text))


def _part_at(index: int, count: int) -> Callable[[str], str]:
    parts = _split_into(count)
    return lambda text: parts(text)[index]


def _split_into(count: int) -> Callable[[str], list[str]]:
    def parts(text: str) -> list[str]:
        found = split(text)
        if len(found) != count:
            raise ValueError(f"The key has {len(found)} parts instead of {count}.")
        return found

    return parts


def _repr_without(secrets: frozenset[str]) -> Callable[[Any], str]:
    def represent(record: Any) -> str:
        shown = [name for name in record.__struct_fields__ if name not in secrets]
        return f"{type(record).__name__}({', '.join(f'{name}={attrgetter(name)(record)!r}' for name in shown)})"

    return represent


def _bind(value: object, scope: dict[str, Any]) -> str:
    name = f"_{len(scope)}"
    scope[name] = value
    return name
