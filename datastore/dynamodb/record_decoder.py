"""Decoders of items into records: functions that are generated once per kind of record, from its declaration.

A `RecordDecoder` returns equal records for plain items (see `codec.decode_item`) and for items as DynamoDB returns them
(`raw`). The attributes of a raw item are decoded in place, without a plain item in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote

from datastore.dynamodb.codec import Raw, decode, decode_number
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso, in_utc

T = TypeVar("T")
# The number of variants of a decoder (see `without`). The selections of clients decide which ones there are.
VARIANT_CACHE_SIZE = 256
Kind = Literal["S", "N", "BOOL", "L"]

Convert = Callable[[Any], Any] | Mapping[Any, Any]

REQUIRED: Final = object()


def _not_negative(value: Any) -> int:
    return max(int(value), 0)


# Source that decodes the attribute value `{v}` of the usual type inline. `decode` handles other types, such as NULL.
_DECODE_SOURCE: Mapping[Kind, str] = {
    "S": 'v["S"] if "S" in {v} else decode(v)',
    "N": '(int(n) if (n := v["N"]).isdigit() else number(n)) if "N" in {v} else decode(v)',
    "BOOL": 'v["BOOL"] if "BOOL" in {v} else decode(v)',
    "L": '[e["S"] if "S" in e else decode(e) for e in v["L"]] if "L" in {v} else decode(v)',
}
# Source that replaces the call of a frequent function with the value `{}` in its common case.
_INLINE_SOURCE: Mapping[Any, str] = {
    second_part: '(part if "%" not in (part := {}.split("#")[1]) else unquote(part))',
    from_iso: "(at if (at := fromisoformat({})).tzinfo is UTC else in_utc(at))",
    _not_negative: "(c if (c := {}).__class__ is int and c >= 0 else not_negative(c))",
}
_GLOBALS: Mapping[str, Any] = {
    "UTC": UTC,
    "decode": decode,
    "fromisoformat": datetime.fromisoformat,
    "in_utc": in_utc,
    "not_negative": _not_negative,
    "number": decode_number,
    "unquote": unquote,
}


@dataclass(frozen=True, slots=True)
class RecordAttribute:
    """The declaration of a record's value that comes from an attribute."""

    #: The name of the attribute.
    name: str
    #: Its usual type.
    kind: Kind
    #: A function of the decoded value, or a mapping of the values that may occur.
    convert: Convert | None
    #: The value if the attribute is missing, or another attribute that has it. If `REQUIRED`, the item is damaged.
    default: Any
    #: The name of another attribute. The value is None in an item without that attribute.
    requires: str | None


def text(
    name: str, convert: Convert | None = None, *, default: Any = REQUIRED, requires: str | None = None
) -> RecordAttribute:
    return RecordAttribute(name, "S", convert, default, requires)


def number(
    name: str, convert: Callable[[Any], Any] | None = None, *, default: Any = REQUIRED, requires: str | None = None
) -> RecordAttribute:
    return RecordAttribute(name, "N", convert, default, requires)


def count(name: str, *, default: Any = REQUIRED, requires: str | None = None) -> RecordAttribute:
    """Declare a counter, which is at least 0. A stored counter may be negative while increments are outstanding."""
    return RecordAttribute(name, "N", _not_negative, default, requires)


def flag(name: str, convert: Callable[[Any], Any] | None = None, *, default: Any = REQUIRED) -> RecordAttribute:
    return RecordAttribute(name, "BOOL", convert, default, None)


def texts(
    name: str, convert: Callable[[Any], Any] = tuple, *, default: Any = REQUIRED, requires: str | None = None
) -> RecordAttribute:
    """Declare a list of texts."""
    return RecordAttribute(name, "L", convert, default, requires)


@dataclass(frozen=True, slots=True)
class Derived:
    """The declaration of a value that is computed from other values."""

    compute: Callable[..., Any]
    names: tuple[str, ...]


def derived(compute: Callable[..., Any], *names: str) -> Derived:
    return Derived(compute, names)


class RecordDecoder(Generic[T]):
    """A function from items to records. It passes the declared values to `build`, by the names of its parameters.

    Values without such a parameter serve derived values, which are declared after them. Only attributes that are read
    can be damaged. An attribute is not read if no value needs it, or if `without` leaves out its value.

    Raises `TypeError` at once if a value that `build` requires is not declared. A damaged item raises one of
    `records.DAMAGE_ERRORS`.
    """

    def __init__(self, build: Callable[..., T], **values: RecordAttribute | Derived) -> None:
        self._build = build
        self._parameters = signature(build).parameters
        self._values = values
        for name, parameter in self._parameters.items():
            if parameter.default is Parameter.empty and name not in values:
                raise TypeError(f"{build!r} needs `{name}`, which is not declared and has no default.")
        self.name = getattr(build, "__name__", "record").strip("_")
        self._variants: dict[frozenset[str], RecordDecoder[T]] = {}

    def __call__(self, item: Mapping[str, Any]) -> T:
        return self.plain(item)

    @cached_property
    def plain(self) -> Callable[[Mapping[str, Any]], T]:
        return self._compile(raw=False)

    @cached_property
    def raw(self) -> Callable[[Raw], T]:
        return self._compile(raw=True)

    def replacing(self, **values: RecordAttribute | Derived) -> "RecordDecoder[T]":
        """Return a decoder with other declarations of these values."""
        return RecordDecoder(self._build, **{**self._values, **values})

    def without(self, names: frozenset[str]) -> "RecordDecoder[T]":
        """Return a decoder that leaves these values at the defaults of `build`, for readers that do not need them."""
        if names not in self._variants:
            if len(self._variants) >= VARIANT_CACHE_SIZE:
                self._variants.clear()
            values = {name: value for name, value in self._values.items() if name not in names}
            self._variants[names] = RecordDecoder(self._build, **values)
        return self._variants[names]

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the decoder reads."""
        return tuple(sorted(set(_attribute_names(self._values.values()))))

    def _compile(self, *, raw: bool) -> Callable[[Any], T]:
        scope: dict[str, Any] = {"build": self._build, **_GLOBALS}
        lines = [f"value_{name} = {_value_source(value, raw, scope)}" for name, value in self._values.items()]
        lines.append(f"return build({', '.join(self._arguments(scope))})")
        exec("def decoded(item):\n    " + "\n    ".join(lines), scope)
        decoded: Callable[[Any], T] = scope["decoded"]
        return decoded

    def _arguments(self, scope: dict[str, Any]) -> Iterator[str]:
        """Yield the arguments of `build`.

        Positional arguments are faster than keywords, and passing a default is faster than omitting it.
        """
        for name, parameter in self._parameters.items():
            yield f"value_{name}" if name in self._values else _bind(parameter.default, scope)


def _attribute_names(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, RecordAttribute):
            yield value.name
            yield from [value.requires] if value.requires else []
            yield from _attribute_names([value.default])


def _value_source(value: RecordAttribute | Derived, raw: bool, scope: dict[str, Any]) -> str:
    """Return an expression of a value of `item`. The objects that it uses are added to the scope."""
    if isinstance(value, Derived):
        return f"{_bind(value.compute, scope)}({', '.join(f'value_{name}' for name in value.names)})"
    attribute = f"item[{value.name!r}]"
    source = _converted_source(
        value.convert, _DECODE_SOURCE[value.kind].format(v=f"(v := {attribute})") if raw else attribute, scope
    )
    if value.default is not REQUIRED:
        default = value.default
        otherwise = (
            _value_source(default, raw, scope) if isinstance(default, RecordAttribute) else _bind(default, scope)
        )
        source = f"(({source}) if {value.name!r} in item else {otherwise})"
    return f"({source}) if {value.requires!r} in item else None" if value.requires else source


def _converted_source(convert: Convert | None, source: str, scope: dict[str, Any]) -> str:
    """Return an expression of the converted value of another expression."""
    if convert is None:
        return source
    if isinstance(convert, Mapping):
        return f"{_bind(convert, scope)}[{source}]"
    inline = _INLINE_SOURCE.get(convert)
    return inline.format(f"({source})") if inline else f"{_bind(convert, scope)}({source})"


def _bind(value: object, scope: dict[str, Any]) -> str:
    """Add an object to the scope. Return its name there."""
    name = f"_{len(scope)}"
    scope[name] = value
    return name
