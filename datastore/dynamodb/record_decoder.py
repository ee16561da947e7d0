"""Items to records by functions that are written for each kind of record, once, from what is declared of it.

A `RecordDecoder` makes records of plain items (as `attributes.decode_item` has them) and of items as DynamoDB answers
them (`raw`), the same ones: a raw item's attributes are taken where they stand, and no plain item is made in between.
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
# Which values are left out is up to what clients select.
VARIANT_CACHE_SIZE = 256
Kind = Literal["S", "N", "BOOL", "L"]

Convert = Callable[[Any], Any] | Mapping[Any, Any]

REQUIRED: Final = object()


def _not_negative(value: Any) -> int:
    return max(int(value), 0)


# What is taken without a call, of the attribute value `{v}`; another type than the usual, as NULL, `decode` takes.
_DECODE_SOURCE: Mapping[Kind, str] = {
    "S": 'v["S"] if "S" in {v} else decode(v)',
    "N": '(int(n) if (n := v["N"]).isdigit() else number(n)) if "N" in {v} else decode(v)',
    "BOOL": 'v["BOOL"] if "BOOL" in {v} else decode(v)',
    "L": '[e["S"] if "S" in e else decode(e) for e in v["L"]] if "L" in {v} else decode(v)',
}
# What functions do that nearly all records are made by, of `{}`, where they need not be called.
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
    """Where a value of a record comes from: the attribute `name`, as a rule of that kind, through `make`.

    `make` is a function, or says what each word stands for.
    Where it is missing the value is `default`, or what another attribute says; without one the item is damaged. With
    `given`, the name of another attribute, the value is None in an item without that.
    """

    name: str
    kind: Kind
    convert: Convert | None
    default: Any
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
    """What others count: not below 0, also where what was taken back is still to be counted."""
    return RecordAttribute(name, "N", _not_negative, default, requires)


def flag(name: str, convert: Callable[[Any], Any] | None = None, *, default: Any = REQUIRED) -> RecordAttribute:
    return RecordAttribute(name, "BOOL", convert, default, None)


def texts(
    name: str, convert: Callable[[Any], Any] = tuple, *, default: Any = REQUIRED, requires: str | None = None
) -> RecordAttribute:
    """A list of texts."""
    return RecordAttribute(name, "L", convert, default, requires)


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that follows from others, by their names."""

    compute: Callable[..., Any]
    names: tuple[str, ...]


def derived(compute: Callable[..., Any], *names: str) -> Derived:
    return Derived(compute, names)


class RecordDecoder(Generic[T]):
    """Makes records of items: `build` is called with the values by name, but those whose names begin with `_`.

    Those are there for others to be derived from, which come after them. Raises `TypeError` at once where a value is
    missing that `build` needs, and later what `records.DAMAGE` names for an item that is not as it should be. Damage in
    what is not read does not show: neither in attributes that no value is made of, nor in what `without` leaves out.
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
        """One with other values in the place of these."""
        return RecordDecoder(self._build, **{**self._values, **values})

    def without(self, names: frozenset[str]) -> "RecordDecoder[T]":
        """One that leaves these values as they are by default, for readers that do not look at them."""
        if names not in self._variants:
            if len(self._variants) >= VARIANT_CACHE_SIZE:
                self._variants.clear()
            kept = {name: value for name, value in self._values.items() if name not in names}
            self._variants[names] = RecordDecoder(self._build, **kept)
        return self._variants[names]

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of an item that it looks at."""
        return tuple(sorted(set(_attribute_names(self._values.values()))))

    def _compile(self, *, raw: bool) -> Callable[[Any], T]:
        scope: dict[str, Any] = {"build": self._build, **_GLOBALS}
        lines = [f"value_{name} = {_value_source(value, raw, scope)}" for name, value in self._values.items()]
        lines.append(f"return build({', '.join(self._arguments(scope))})")
        exec("def decoded(item):\n    " + "\n    ".join(lines), scope)
        decoded: Callable[[Any], T] = scope["decoded"]
        return decoded

    def _arguments(self, scope: dict[str, Any]) -> Iterator[str]:
        """The arguments of `build`: by position is faster than by name, and so are defaults than to leave them out."""
        for name, parameter in self._parameters.items():
            yield f"value_{name}" if name in self._values else _bind(parameter.default, scope)


def _attribute_names(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, RecordAttribute):
            yield value.name
            yield from [value.requires] if value.requires else []
            yield from _attribute_names([value.default])


def _value_source(value: RecordAttribute | Derived, raw: bool, scope: dict[str, Any]) -> str:
    """An expression for the value in `item`; what it calls and answers is put into the scope."""
    if isinstance(value, Derived):
        return f"{_bind(value.compute, scope)}({', '.join(f'value_{name}' for name in value.names)})"
    there = f"item[{value.name!r}]"
    source = _converted_source(
        value.convert, _DECODE_SOURCE[value.kind].format(v=f"(v := {there})") if raw else there, scope
    )
    if value.default is not REQUIRED:
        default = value.default
        otherwise = (
            _value_source(default, raw, scope) if isinstance(default, RecordAttribute) else _bind(default, scope)
        )
        source = f"(({source}) if {value.name!r} in item else {otherwise})"
    return f"({source}) if {value.requires!r} in item else None" if value.requires else source


def _converted_source(convert: Convert | None, source: str, scope: dict[str, Any]) -> str:
    """An expression for what is made of the value of another."""
    if convert is None:
        return source
    if isinstance(convert, Mapping):
        return f"{_bind(convert, scope)}[{source}]"
    written = _INLINE_SOURCE.get(convert)
    return written.format(f"({source})") if written else f"{_bind(convert, scope)}({source})"


def _bind(value: object, scope: dict[str, Any]) -> str:
    name = f"_{len(scope)}"
    scope[name] = value
    return name
