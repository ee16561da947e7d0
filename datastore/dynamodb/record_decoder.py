"""Decoders of items into records: functions that are generated once per kind of record, from its declaration.

A `RecordDecoder` returns equal records for plain items (see `codec.decode_item`) and for items as DynamoDB returns them
(`raw`). The attributes of a raw item are decoded in place, without a plain item in between.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, Final, Generic, Literal, TypeVar, get_args
from urllib.parse import unquote

from datastore.dynamodb.codec import Raw, decode, decode_number
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso, from_iso_or_none, in_utc
from datastore.model.versioning import version_from

T = TypeVar("T")
# The number of variants of a decoder (see `without`). The selections of clients decide which ones there are.
VARIANT_CACHE_SIZE = 256
Kind = Literal["S", "N", "BOOL", "B", "L", "M"]

Convert = Callable[..., Any] | Mapping[Any, Any]

REQUIRED: Final = object()


def not_negative(value: Any) -> int:
    """Return a stored count, which is negative while increments are outstanding, as a number of at least 0."""
    return max(int(value), 0)


_Source = Mapping[Kind, str]
# Source that returns the value of the attribute `{a}` of a plain item, by the usual type of the attribute.
_PLAIN: _Source = dict.fromkeys(get_args(Kind), "{a}")
# Source that decodes the attribute value `{a}` of the usual type inline. `decode` handles other types, such as NULL.
_RAW: _Source = {
    "S": 'v["S"] if "S" in (v := {a}) else decode(v)',
    "N": '(int(n) if (n := v["N"]).isdigit() else number(n)) if "N" in (v := {a}) else decode(v)',
    "BOOL": 'v["BOOL"] if "BOOL" in (v := {a}) else decode(v)',
    "L": '[e["S"] if "S" in e else decode(e) for e in v["L"]] if "L" in (v := {a}) else decode(v)',
    "B": "decode({a})",
    "M": "decode({a})",
}
# The same for attributes of the usual types alone, in half the time. Others are a `KeyError`.
_USUAL: _Source = {
    **_RAW,
    "S": '{a}["S"]',
    "N": '(int(n) if (n := {a}["N"]).isdigit() else number(n))',
    "BOOL": '{a}["BOOL"]',
    "L": '[e["S"] for e in {a}["L"]]',
}
# Source that replaces the call of a frequent function with the value `{}` in its common case.
_INLINE_SOURCE: Mapping[Any, str] = {
    second_part: '(part if "%" not in (part := {}.split("#")[1]) else unquote(part))',
    from_iso: "(at if (at := fromisoformat({})).tzinfo is UTC else in_utc(at))",
    from_iso_or_none: "((at if (at := fromisoformat(at)).tzinfo is UTC else in_utc(at)) if (at := {}) else None)",
    not_negative: "(c if (c := {}).__class__ is int and c >= 0 else not_negative(c))",
    version_from: "(c if (c := {}).__class__ is int else version_from(c))",
}
_GLOBALS: Mapping[str, Any] = {
    "UTC": UTC,
    "decode": decode,
    "fromisoformat": datetime.fromisoformat,
    "in_utc": in_utc,
    "not_negative": not_negative,
    "version_from": version_from,
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


@dataclass(frozen=True, slots=True)
class Derived:
    """The declaration of a value that is computed from other values."""

    compute: Callable[..., Any]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """The declaration of a value that is an element of another value."""

    name: str
    index: int


Value = RecordAttribute | Derived | Element


class RecordDecoder(Generic[T]):
    """A function from items to records. It passes the declared values to `build`, by the names of its parameters.

    Values without such a parameter serve derived values. Only attributes that are read can be damaged. An attribute is
    not read if no value needs it, or if `without` leaves out its value.

    Raises `TypeError` at once if a value that `build` requires is not declared. A damaged item raises one of
    `records.DAMAGE_ERRORS`.
    """

    def __init__(self, build: Callable[..., T], omitted: Collection[str] = (), /, **values: Value) -> None:
        self._build = build
        self._parameters = signature(build).parameters
        values = self._values = _needed(values, self._parameters.keys() - omitted)
        for name, parameter in self._parameters.items():
            if parameter.default is Parameter.empty and name not in values and name not in omitted:
                raise TypeError(f"{build!r} needs `{name}`, which is not declared and has no default.")
        self.name = getattr(build, "__name__", "record").strip("_")
        self._variants: dict[tuple[bool, frozenset[str]], RecordDecoder[T]] = {}

    def __call__(self, item: Mapping[str, Any]) -> T:
        return self.plain(item)

    @cached_property
    def plain(self) -> Callable[[Mapping[str, Any]], T]:
        return self._compile(raw=False)

    @cached_property
    def raw(self) -> Callable[[Raw], T]:
        return self._compile(raw=True)

    def replacing(self, **values: Value) -> "RecordDecoder[T]":
        """Return a decoder with other declarations of these values."""
        return RecordDecoder(self._build, **{**self._values, **values})

    def projected(self, names: frozenset[str]) -> "RecordDecoder[T]":
        """Return a decoder that reads these values alone: items may be projected to its `attributes`.

        The others have their defaults, or are None.
        """
        omitted = frozenset(self._values) - names
        return self._variant((True, omitted), lambda: RecordDecoder(self._build, omitted, **self._values))

    def reading(self, names: frozenset[str]) -> "RecordDecoder[T]":
        """Return a decoder that reads these values alone (see `projected`); this one if a name is not a value's.

        Such a name may be that of a property, which needs other values.
        """
        return self.projected(names) if names <= self._values.keys() else self

    def without(self, names: frozenset[str]) -> "RecordDecoder[T]":
        """Return a decoder that leaves these values at the defaults of `build`, for readers that do not need them."""
        values = {name: value for name, value in self._values.items() if name not in names}
        return self._variant((False, names), lambda: RecordDecoder(self._build, **values))

    def _variant(self, key: tuple[bool, frozenset[str]], make: Callable[[], "RecordDecoder[T]"]) -> "RecordDecoder[T]":
        if key not in self._variants:
            if len(self._variants) >= VARIANT_CACHE_SIZE:
                self._variants.clear()
            self._variants[key] = make()
        return self._variants[key]

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the decoder reads."""
        return tuple(sorted(set(_attribute_names(self._values.values()))))

    def _compile(self, *, raw: bool) -> Callable[[Any], T]:
        scope: dict[str, Any] = {"build": self._build, **_GLOBALS}
        lines = self._lines(_RAW if raw else _PLAIN, scope)
        if raw and self._values:
            # Nearly all items have values of the usual types. For all others, the values are decoded once more.
            lines = [
                "try:",
                *self._lines(_USUAL, scope, "    "),
                "except KeyError:",
                *[f"    {line}" for line in lines],
            ]
        lines.append(f"return build({', '.join(self._arguments(scope))})")
        exec("def decoded(item):\n    " + "\n    ".join(lines), scope)
        decoded: Callable[[Any], T] = scope["decoded"]
        return decoded

    def _lines(self, sources: _Source, scope: dict[str, Any], indent: str = "") -> list[str]:
        """Return the statements that set the values."""
        return [
            f"{indent}value_{name} = {_value_source(value, sources, scope)}" for name, value in self._values.items()
        ]

    def _arguments(self, scope: dict[str, Any]) -> Iterator[str]:
        """Yield the arguments of `build`.

        Positional arguments are faster than keywords, and passing a default is faster than omitting it.
        """
        for name, parameter in self._parameters.items():
            default = None if parameter.default is Parameter.empty else parameter.default
            yield f"value_{name}" if name in self._values else _bind(default, scope)


def _needed(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    """Return the values with these names, each after those from which it is computed."""
    ordered: dict[str, Value] = {}

    def add(name: str) -> None:
        if name in ordered:
            return
        value = values[name]
        for needed in value.names if isinstance(value, Derived) else [value.name] if isinstance(value, Element) else ():
            add(needed)
        ordered[name] = value

    for name in values:
        if name in names:
            add(name)
    return ordered


def _attribute_names(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, RecordAttribute):
            yield value.name
            yield from [value.requires] if value.requires else []
            yield from _attribute_names([value.default])


def _value_source(value: Value, sources: _Source, scope: dict[str, Any]) -> str:
    """Return an expression of a value of `item`. The objects that it uses are added to the scope."""
    if isinstance(value, Derived):
        return f"{_bind(value.compute, scope)}({', '.join(f'value_{name}' for name in value.names)})"
    if isinstance(value, Element):
        return f"value_{value.name}[{value.index}]"
    source = _converted_source(value.convert, sources[value.kind].format(a=f"item[{value.name!r}]"), scope)
    if value.default is not REQUIRED:
        default = value.default
        otherwise = (
            _value_source(default, sources, scope) if isinstance(default, RecordAttribute) else _bind(default, scope)
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
