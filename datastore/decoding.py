"""Items to records by functions that are written for each kind of record, once, from what is declared of it.

A `Decoder` makes records of plain items (as `attributes.decode_item` has them) and of items as DynamoDB answers them
(`raw`), the same ones: a raw item's attributes are taken where they stand, and no plain item is made in between.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, Final, Generic, Literal, TypeVar

from datastore.attributes import Raw, decode, decode_number

T = TypeVar("T")
Kind = Literal["S", "N", "BOOL", "L"]

MUST: Final = object()

# What is taken without a call, of the attribute value `{v}`; another type than the usual, as NULL, `decode` takes.
_TAKEN: Mapping[Kind, str] = {
    "S": 'v["S"] if "S" in {v} else decode(v)',
    "N": '(int(n) if (n := v["N"]).isdigit() else number(n)) if "N" in {v} else decode(v)',
    "BOOL": 'v["BOOL"] if "BOOL" in {v} else decode(v)',
    "L": '[e["S"] if "S" in e else decode(e) for e in v["L"]] if "L" in {v} else decode(v)',
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """Where a value of a record comes from: the attribute `name`, as a rule of that kind, through `make`.

    Where it is missing the value is `default`, or what another attribute says; without one the item is damaged. With
    `given`, the name of another attribute, the value is None in an item without that.
    """

    name: str
    kind: Kind
    make: Callable[[Any], Any] | None
    default: Any
    given: str | None


def text(
    name: str, make: Callable[[Any], Any] | None = None, *, default: Any = MUST, given: str | None = None
) -> Attribute:
    return Attribute(name, "S", make, default, given)


def number(
    name: str, make: Callable[[Any], Any] | None = None, *, default: Any = MUST, given: str | None = None
) -> Attribute:
    return Attribute(name, "N", make, default, given)


def flag(name: str, make: Callable[[Any], Any] | None = None, *, default: Any = MUST) -> Attribute:
    return Attribute(name, "BOOL", make, default, None)


def texts(name: str, make: Callable[[Any], Any] = tuple, *, default: Any = MUST, given: str | None = None) -> Attribute:
    """A list of texts."""
    return Attribute(name, "L", make, default, given)


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that follows from others, by their names."""

    make: Callable[..., Any]
    names: tuple[str, ...]


def derived(make: Callable[..., Any], *names: str) -> Derived:
    return Derived(make, names)


class Decoder(Generic[T]):
    """Makes records of items: `build` is called with the values by name, but those whose names begin with `_`.

    Those are there for others to be derived from, which come after them. Raises `TypeError` at once where a value is
    missing that `build` needs, and later what `records.DAMAGE` names for an item that is not as it should be. Damage in
    what is not read does not show: neither in attributes that no value is made of, nor in what `without` leaves out.
    """

    def __init__(self, build: Callable[..., T], **values: Attribute | Derived) -> None:
        self._build = build
        self._parameters = signature(build).parameters
        self._values = values
        for name, parameter in self._parameters.items():
            if parameter.default is Parameter.empty and name not in values:
                raise TypeError(f"{build!r} needs `{name}`, which is not declared and has no default.")
        self.name = getattr(build, "__name__", "record").strip("_")
        self._without: dict[frozenset[str], Decoder[T]] = {}

    def __call__(self, item: Mapping[str, Any]) -> T:
        return self.plain(item)

    @cached_property
    def plain(self) -> Callable[[Mapping[str, Any]], T]:
        return self._written(raw=False)

    @cached_property
    def raw(self) -> Callable[[Raw], T]:
        return self._written(raw=True)

    def but(self, **values: Attribute | Derived) -> "Decoder[T]":
        """One with other values in the place of these."""
        return Decoder(self._build, **{**self._values, **values})

    def without(self, names: frozenset[str]) -> "Decoder[T]":
        """One that leaves these values as they are by default, for readers that do not look at them."""
        if names not in self._without:
            kept = {name: value for name, value in self._values.items() if name not in names}
            self._without[names] = Decoder(self._build, **kept)
        return self._without[names]

    def _written(self, *, raw: bool) -> Callable[[Any], T]:
        scope: dict[str, Any] = {"build": self._build, "decode": decode, "number": decode_number, "missing": MUST}
        lines = [f"value_{name} = {_source(value, raw, scope)}" for name, value in self._values.items()]
        lines.append(f"return build({', '.join(self._given(scope))})")
        exec("def decoded(item):\n    " + "\n    ".join(lines), scope)
        decoded: Callable[[Any], T] = scope["decoded"]
        return decoded

    def _given(self, scope: dict[str, Any]) -> Iterator[str]:
        """The arguments of `build`: by position is faster than by name, and so are defaults than to leave them out."""
        for name, parameter in self._parameters.items():
            yield f"value_{name}" if name in self._values else _named(parameter.default, scope)


def _source(value: Attribute | Derived, raw: bool, scope: dict[str, Any]) -> str:
    """An expression for the value in `item`; what it calls and answers is put into the scope."""
    if isinstance(value, Derived):
        return f"{_named(value.make, scope)}({', '.join(f'value_{name}' for name in value.names)})"
    must = value.default is MUST
    there = f"item[{value.name!r}]" if must else "v"
    source = _TAKEN[value.kind].format(v=f"(v := {there})" if must else "v") if raw else there
    if value.make is not None:
        source = f"{_named(value.make, scope)}({source})"
    if not must:
        absent = "None" if raw else "missing"
        default = value.default
        otherwise = _source(default, raw, scope) if isinstance(default, Attribute) else _named(default, scope)
        source = f"(({source}) if (v := item.get({value.name!r}, {absent})) is not {absent} else {otherwise})"
    return f"({source}) if {value.given!r} in item else None" if value.given else source


def _named(value: object, scope: dict[str, Any]) -> str:
    name = f"_{len(scope)}"
    scope[name] = value
    return name
