"""The field specifiers of stored items: each states an attribute's name, type, default, and the rules for its input."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from typing import Any, Final, NamedTuple, TypedDict, Unpack

import msgspec

from datastore.dynamodb.record_decoder import REQUIRED, Convert, Derived, Kind, RecordAttribute, not_negative
from datastore.items.forms import Form, TextForm
from datastore.model.timestamps import from_iso, from_iso_or_none, from_seconds, iso, to_seconds
from datastore.model.versioning import VERSION, version_from

#: The value of an attribute that the key of the item contains, too: the part of the key that has the field's name.
FROM_KEY: Final = object()
UNSET: Final = object()


class Options(TypedDict, total=False):
    """The options of all specifiers."""

    #: The value for items without the attribute: by default the default of the field. An item without an attribute
    #: that has neither is damaged. `FROM_KEY`, or another attribute, also names a value of the item.
    missing: Any
    #: The default of the field. Attributes with this value are not written if it is None.
    default: Any
    #: The name of another attribute. The value is None in an item without that attribute.
    requires: str
    #: The form of its input. An attribute without a form is in no input.
    form: Form
    #: Whether an update may remove it.
    removable: bool
    #: A function from a value to its stored form, if it is not the usual one; None if the attribute is not written.
    encode: Callable[[Any], Any] | None
    #: The name of the attribute that is written, if the value is read from another one.
    written_as: str
    #: The name of the attribute, a map, that contains the value. Old items may have the value beside the map.
    inside: str
    #: Whether a value is omitted when the item is written, besides None.
    omit: Callable[[Any], bool]
    #: The stored form of None, such as None for NULL. By default None is not written.
    if_none: Any
    #: The names of fields whose values are further arguments of `decode`, also if the attribute is missing.
    given: tuple[str, ...]
    #: Whether the value is left out of the `repr` of the record.
    secret: bool
    #: Its typical size in bytes, if it differs from that of its type and form; 0 if most items lack it.
    typical: int


class ValueSize(NamedTuple):
    """The size of an attribute's value in bytes."""

    typical: int
    #: None if the declaration states no limit.
    greatest: int | None


# DynamoDB stores two digits of a number in a byte, and at most 38 digits.
NUMBER_SIZE, COUNT_SIZE, SECONDS_SIZE = ValueSize(5, 21), ValueSize(2, 21), ValueSize(6, 21)
FLAG_SIZE, MOMENT_SIZE = ValueSize(1, 1), ValueSize(24, 24)
TEXT_SIZE, LIST_SIZE, MAP_SIZE = ValueSize(16, None), ValueSize(40, None), ValueSize(60, None)
# A value of a key, which has at most 2,048 bytes.
PART_SIZE = ValueSize(16, 2048)
BYTES_PER_CHARACTER = 4


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(RecordAttribute):
    """The declaration of a field that is stored as an attribute. Fields that are read from the key have no `name`."""

    encode: Callable[[Any], Any] | None
    written_as: str
    inside: str
    field_default: Any
    form: Form | None
    removable: bool
    omit: Callable[[Any], bool] | None
    if_none: Any
    given: tuple[str, ...]
    secret: bool
    #: Whether the value is read from the key although it is stored as an attribute, too.
    is_part: bool
    size: ValueSize
    #: The stated typical size.
    typical: int | None

    def stored(self, value: Any) -> Any:
        """Return the stored form of a value; None for an attribute to remove."""
        if value is None:
            return None if self.if_none is UNSET else self.if_none
        return (self.encode or same)(value)


# zlib's fastest level: JSON texts shrink to a twelfth.
_COMPRESSION_LEVEL = 1
_encode_json: Final = msgspec.json.Encoder().encode


def _is_zero(value: Any) -> bool:
    return bool(value == 0)


def _attribute(
    name: str,
    kind: Kind,
    decode: Convert | None,
    encode: Callable[[Any], Any] | None,
    options: Options,
    size: ValueSize,
    is_part: bool = False,
) -> Any:
    default, form = options.get("default", UNSET), options.get("form")
    if isinstance(form, TextForm):
        size = ValueSize(form.typical, BYTES_PER_CHARACTER * form.longest)
    missing = options.get("missing", REQUIRED if default is UNSET else default)
    return Attribute(
        name,
        kind,
        decode,
        missing,
        options.get("requires"),
        options.get("encode", encode),
        options.get("written_as", name),
        options.get("inside", ""),
        default,
        form,
        options.get("removable", False),
        options.get("omit"),
        options.get("if_none", UNSET),
        options.get("given", ()),
        options.get("secret", False),
        is_part,
        size,
        options.get("typical"),
    )


def same(value: Any) -> Any:
    """Return the value: its stored form is the value itself."""
    return value


def if_null(default: Any, convert: Callable[[Any], Any] = same) -> Callable[[Any], Any]:
    """Return a conversion of values for which other programs may store NULL, which means `default`."""
    return lambda value: default if value is None else convert(value)


def text(name: str, decode: Convert | None = None, **options: Unpack[Options]) -> Any:
    """Declare a text."""
    size = MOMENT_SIZE if options.get("encode") is iso else TEXT_SIZE
    return _attribute(name, "S", decode, same, options, size)


def number(name: str, decode: Convert | None = None, **options: Unpack[Options]) -> Any:
    """Declare a number."""
    return _attribute(name, "N", decode, same, options, NUMBER_SIZE)


def count(name: str, **options: Unpack[Options]) -> Any:
    """Declare a counter, which is at least 0. A stored counter may be negative while increments are outstanding."""
    return _attribute(name, "N", not_negative, same, options, COUNT_SIZE)


def flag(name: str, decode: Convert | None = None, **options: Unpack[Options]) -> Any:
    """Declare a boolean."""
    return _attribute(name, "BOOL", decode, same, options, FLAG_SIZE)


def texts(name: str, decode: Callable[[Any], Any] = tuple, **options: Unpack[Options]) -> Any:
    """Declare a list of texts."""
    return _attribute(name, "L", decode, list, options, LIST_SIZE)


def elements(name: str, decode: Callable[[Any], Any], **options: Unpack[Options]) -> Any:
    """Declare a list of values of any type."""
    return _attribute(name, "L", decode, list, options, LIST_SIZE)


def mapping(name: str, decode: Callable[[Any], Any] | None = None, **options: Unpack[Options]) -> Any:
    """Declare a map."""
    return _attribute(name, "M", decode, dict, options, MAP_SIZE)


def document(name: str, **options: Unpack[Options]) -> Any:
    """Declare a value of any type, decoded as JSON has it.

    Sets are decoded as lists, bytes as base64, and numbers that no float represents exactly as texts.
    """
    return _attribute(name, "M", _as_json, same, options, MAP_SIZE)


def moment(name: str, decode: Convert | None = None, **options: Unpack[Options]) -> Any:
    """Declare a time, stored as ISO 8601 in UTC with milliseconds. An empty text is None if a missing one is."""
    is_optional = options.get("missing", options.get("default", UNSET)) is None
    return _attribute(name, "S", decode or (from_iso_or_none if is_optional else from_iso), iso, options, MOMENT_SIZE)


def seconds(name: str, **options: Unpack[Options]) -> Any:
    """Declare a time in epoch seconds, rounded up when it is stored: the form of TTL attributes."""
    return _attribute(name, "N", from_seconds, to_seconds, options, SECONDS_SIZE)


def choice(name: str, members: Iterable[Enum], **options: Unpack[Options]) -> Any:
    """Declare a member of an enumeration, stored by its value."""
    by_value: Mapping[Any, Enum] = {member.value: member for member in members}
    lengths = [len(value) for value in by_value]
    return _attribute(name, "S", by_value, _value, options, ValueSize(round(fmean(lengths)), max(lengths)))


def choices(name: str, members: Iterable[Enum], **options: Unpack[Options]) -> Any:
    """Declare a list of members of an enumeration, stored by their values."""
    by_value: Mapping[Any, Enum] = {member.value: member for member in members}
    return _attribute(name, "L", lambda values: tuple(by_value[value] for value in values), _values, options, LIST_SIZE)


def json(name: str, kind: Any, **options: Unpack[Options]) -> Any:
    """Declare a value that is stored as JSON text. NULL counts as a missing attribute."""
    decode = msgspec.json.Decoder(kind).decode
    missing = options.get("missing", options.get("default", UNSET))
    read = decode if missing is UNSET else if_null(missing, decode)
    return _attribute(name, "S", read, _json, options, MAP_SIZE)


def compressed(name: str, kind: Any, **options: Unpack[Options]) -> Any:
    """Declare a value that is stored as compressed JSON."""
    decode = msgspec.json.Decoder(kind).decode
    return _attribute(name, "B", lambda packed: decode(_decompressed(packed)), _compressed, options, MAP_SIZE)


def version(name: str = VERSION, *, default: int, omit: Callable[[Any], bool] = _is_zero) -> Any:
    """Declare the version, which grows with every update. Items without one, and NULL, have version 0.

    The default is stated in each declaration, because type checkers recognise no other. Version 0 is not written.
    """
    return _attribute(name, "N", version_from, same, {"default": default, "omit": omit}, COUNT_SIZE)


def part(name: str = "", decode: Callable[[Any], Any] | None = None, **options: Unpack[Options]) -> Any:
    """Declare a value of the key: that of the parameter with the field's name. It is also written as an attribute."""
    return _attribute(name, "S", decode, same, {**options, "missing": FROM_KEY}, PART_SIZE, is_part=True)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """An attribute that is written and not read: a text, or a function of the record."""

    name: str
    value: str | Callable[[Any], Any]


def constant(name: str, value: str) -> Any:
    """Declare an attribute that has the same value in all items of this kind."""
    return Computed(name, value)


def computed(name: str, compute: Callable[[Any], Any]) -> Any:
    """Declare an attribute that is computed from the record when it is written. None is not written."""
    return Computed(name, compute)


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """An attribute of a record within the record."""

    attribute: Attribute
    path: str


def nested(attribute: Any, path: str) -> Any:
    """Declare an attribute whose value is at a path within the record, such as `live.status`.

    It is no field of the record: derived values are computed from it.
    """
    return Nested(attribute, path)


def derived(compute: Callable[..., Any], *names: str) -> Any:
    """Declare a value that is computed from other fields, and is not written."""
    return Derived(compute, names)


def key() -> Any:
    """Declare a field that is the item's key as it is stored, which other programs may write in another form."""
    return StoredKey()


class StoredKey:
    """The declaration of a field that holds the stored key."""


def _value(member: Enum) -> Any:
    return member.value


def _values(members: Iterable[Enum]) -> list[Any]:
    return [member.value for member in members]


def _as_json(value: Any) -> Any:
    return msgspec.to_builtins(value, order="deterministic")


def _json(value: Any) -> str:
    return _encode_json(value).decode()


def _compressed(value: Any) -> bytes:
    return zlib.compress(_encode_json(value), _COMPRESSION_LEVEL)


def _decompressed(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error as problem:
        raise ValueError(f"damaged: {problem}") from None
