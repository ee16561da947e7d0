"""Random values of resolvers: of the right type in many forms, nulls, failures and wrong types."""

from __future__ import annotations

import asyncio
from collections import UserDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any
from zlib import crc32

from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLScalarType,
    Undefined,
    get_nullable_type,
    is_abstract_type,
    is_leaf_type,
)

from tests.support.random_schemas import POOL, Info, RandomSchema
from tests.support.random_waiting import Waiting


@dataclass(frozen=True)
class Temper:
    """The frequency of nulls, failures, exceptions as values, and values of a wrong type."""

    null: float = 0
    failure: float = 0
    returned: float = 0
    wrong: float = 0
    odd: float = 0  # a leaf in another form, or a wrong type name


CALM = Temper()
TEMPERS = [
    CALM,
    Temper(null=0.08, odd=0.1),
    Temper(failure=0.06),
    Temper(0.03, 0.03, 0.02, 0.03, 0.2),
    Temper(0.1, 0.08, 0.04, 0.08, 0.4),
]

EXACT: dict[str, list[Any]] = {
    "Int": [0, 1, -7, 2**31 - 1],
    "Float": [0.5, 1.0, -2.25, 1e300],
    "String": ["", "text", "ünï", "a\nb"],
    "Boolean": [True, False],
    "ID": ["1", "id"],
    "Odd": [1, 3, 99],
}


class Whole(int):
    """A subclass of int."""


class Text(str):
    """A subclass of str."""

    __slots__ = ()


ODD: dict[str, list[Any]] = {
    "Int": [True, "12", 3.0, Decimal(5), Whole(6), 2**31, -(2**31) - 1, "", "x", 1.5, float("nan"), [1], {}],
    "Float": [True, 3, "1.5", Decimal("2.5"), Whole(6), float("inf"), float("nan"), "", "x", [], 10**400],
    "String": [True, 3, 2.5, Text("own"), b"bytes", [], {"a": 1}, float("nan")],
    "Boolean": [0, 1, 2.5, "true", float("nan"), None, []],
    "ID": [7, Whole(8), Text("own"), 2.0, 2.5, True, [], {"a": 1}],
    "Odd": [2, 4, 6, 8, "1", None, []],
    "Color": ["RED", "PINK", 10, 99, None, [], {}],
}
WRONG: list[Any] = ["a text", 12, {"no": "source"}, True, [], [[]], b"", 2.5, object]


class Failure(Exception):
    """A failure with extensions, as `DomainError` has them."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.extensions = {"code": "FAILED"}


class Located(GraphQLError):
    """An error with its own path; `position` is where it was raised."""

    position: list[str | int]


class Values(Waiting):
    """Values that depend on the seed and the position only, whichever executor asks and in whatever order."""

    def __init__(self, world: RandomSchema, seed: int, temper: Temper) -> None:
        super().__init__()
        self.world = world
        self.seed = seed
        self.temper = temper
        self.path: list[str | int] = []

    def rng(self, key: str) -> Random:
        return Random(crc32(key.encode()) ^ self.seed * 0x9E3779B1)

    def outcome(self, rng: Random, kind: GraphQLOutputType, key: str, *, lasting: bool = False) -> Any:
        """Return the value of a field's resolver, or raise. A `lasting` value can be used repeatedly."""
        temper, fate = self.temper, rng.random()
        if (fate := fate - temper.null) < 0:
            return None if rng.random() < 0.8 else Undefined
        if (fate := fate - temper.failure) < 0:
            raise self._failure(rng, key)
        if (fate := fate - temper.returned) < 0:
            return self._failure(rng, key)
        if fate - temper.wrong < 0:
            return rng.choice(WRONG)
        return self._value(rng, kind, key, lasting)

    def _value(self, rng: Random, kind: GraphQLOutputType, key: str, lasting: bool) -> Any:
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        if isinstance(kind, GraphQLList):
            return self._list(rng, kind.of_type, key, lasting)
        if isinstance(kind, GraphQLEnumType):
            exact = [value.value for value in kind.values.values()]
            return rng.choice(ODD["Color"] if rng.random() < self.temper.odd else exact)
        if isinstance(kind, GraphQLScalarType):
            return rng.choice((ODD if rng.random() < self.temper.odd else EXACT)[kind.name])
        if is_abstract_type(kind):
            kind = rng.choice(self.world.schema.get_possible_types(kind))
        assert isinstance(kind, GraphQLObjectType)
        return source_of(self, rng, kind, key)

    def _failure(self, rng: Random, key: str) -> Exception:
        received = f"at {key}"
        kind = rng.randrange(9)
        if kind == 5 and not key[0].isdigit():
            kind = 4
        if kind < 4:
            return (ValueError(received), KeyError(received), Failure(received), AttributeError(received))[kind]
        if kind == 4:
            return GraphQLError(received, extensions={"place": key})
        if kind == 5:
            located = Located(received, path=["elsewhere", 3], extensions={"own": True})
            parts = key.partition(".")[0].split("/")[1:]
            if parts == ["root"]:  # the root value belongs to no field
                parts = []
            located.position = [int(part) if part.isdigit() else part for part in parts]
            return located
        if kind == 6:
            return GraphQLError(received, original_error=ValueError("the origin"))
        if kind == 7:
            return ValueError()
        return StopAsyncIteration(received)

    def _list(self, rng: Random, kind: GraphQLOutputType, key: str, lasting: bool) -> Any:
        items = range(rng.choice((0, 1, 2, 2, 3)))
        inner = key.rpartition("/")[2].isdigit()  # an executor that abandons the outer list never reads the inner one

        def item(index: int) -> Any:
            place = f"{key}/{index}"
            rng = self.rng(place)

            def finish() -> Any:
                return self._item(rng, kind, place)

            if not self.world.awaits or lasting or rng.random() < 0.75:
                return finish()
            return self.unhurried(rng, place, finish) if inner else self.later(rng, place, finish)

        shape = rng.randrange(10 if self.world.awaits else 8)
        if lasting or shape < 3 or inner:
            return [item(index) for index in items]
        if shape == 9:
            return _Counted(len(items), item)
        if shape == 8:
            return self._arriving(rng, key, len(items), item)
        if shape == 7:
            return self._generated(rng, key, len(items), item)
        made = [item(index) for index in items]
        if shape == 3:
            return tuple(made)
        if shape == 4:
            return deque(made)
        if shape == 5:
            return dict(enumerate(made)).values()
        if is_leaf_type(get_nullable_type(kind)) and all(isinstance(value, str | int) for value in made):
            return set(made)
        return iter(made)

    def _item(self, rng: Random, kind: GraphQLOutputType, key: str) -> Any:
        """Return the item or its exception: items do not raise while the list is built."""
        try:
            return self.outcome(rng, kind, key)
        except Exception as error:
            return error

    def _generated(self, rng: Random, key: str, count: int, item: Callable[[int], Any]) -> Iterator[Any]:
        for index in range(count):
            if rng.random() < self.temper.failure:
                raise ValueError(f"at {key}")
            yield item(index)

    async def _arriving(self, rng: Random, key: str, count: int, item: Callable[[int], Any]) -> AsyncIterator[Any]:
        self.began += 1
        place = f"{key} {self.began}"
        self.open.add(place)
        try:
            for index in range(count):
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.randint(0, 2))
                if rng.random() < self.temper.failure:
                    raise ValueError(f"at {key}")
                yield item(index)
        finally:
            self.open.discard(place)

    def plain(self, key: str, kind: GraphQLObjectType, name: str, *, lasting: bool) -> Any:
        """Return what the default resolver finds in a source: a value, an awaitable or a callable."""
        field = kind.fields[name]
        place = f"{key}.{name}"
        rng = self.rng(place)
        if not is_leaf_type(get_nullable_type(field.type)) or field.args or rng.random() < 0.2:
            return self._method(rng.random() < 0.4 and self.world.awaits)
        if self.world.awaits and rng.random() < 0.15:
            return self._future(rng, lambda: self.outcome(rng, field.type, place, lasting=True))
        return self.outcome(rng, field.type, place, lasting=lasting)

    def _method(self, later: bool) -> Callable[..., Any]:
        def call(info: Info, **args: Any) -> Any:
            return self.answer(info, args)

        async def call_later(info: Info, **args: Any) -> Any:
            return await self.answer_later(info, args)

        return call_later if later else call

    def answer(self, info: Info, args: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    async def answer_later(self, info: Info, args: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def type_of(self, value: Any, kind: Any) -> Any:
        """Return the result of the type resolver of an abstract type."""
        key, name = key_of(value), kind_of(value)
        rng = self.rng(f"type {kind} {key}")
        if rng.random() < self.temper.odd / 2:
            name = rng.choice([None, "Nothing", "Color", "D", "Query", 42, Undefined, True])
        failing = rng.random() < self.temper.failure / 2

        def finish() -> Any:
            if failing:
                raise Failure(f"no type for {kind}")
            return name

        return self._perhaps_later(rng, key, finish)

    def is_type(self, value: Any, name: str) -> Any:
        key, really = key_of(value), kind_of(value) == name
        rng = self.rng(f"is {name} {key}")
        if rng.random() < self.temper.odd / 4:
            really = not really
        failing = rng.random() < self.temper.failure / 4

        def finish() -> Any:
            if failing:
                raise Failure(f"whether {name} is not known")
            return really

        return self._perhaps_later(rng, key, finish)

    def _perhaps_later(self, rng: Random, key: str, finish: Callable[[], Any]) -> Any:
        if self.world.awaits and rng.random() < 0.2:
            return self.coroutine(rng, f"type of {key}", finish)
        return finish()


class _Counted:
    """An asynchronous iterable that is not a generator and cannot be closed."""

    def __init__(self, count: int, item: Callable[[int], Any]) -> None:
        self._count = count
        self._item = item
        self._next = 0

    def __aiter__(self) -> _Counted:
        return self

    async def __anext__(self) -> Any:
        if self._next == self._count:
            raise StopAsyncIteration
        self._next += 1
        await asyncio.sleep(0)
        return self._item(self._next - 1)


class ThingSource:
    """A source with attributes. The names of its type are in `kind` only."""

    def __init__(self, key: str, kind: str) -> None:
        self.key = key
        self.kind = kind


class Typed(ThingSource):
    """A source with the type name in the form that graphql-core's default type resolver reads."""

    def __init__(self, key: str, kind: str) -> None:
        super().__init__(key, kind)
        self.__typename = kind


class Lazy(ThingSource):
    """A source that creates its attributes when they are read."""

    def __init__(self, key: str, kind: str, plain: Callable[[str], Any]) -> None:
        super().__init__(key, kind)
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._plain(name)


class Properties(ThingSource):
    """A source with properties, some of which may fail."""

    def __init__(self, key: str, kind: str, plain: Callable[[str], Any]) -> None:
        super().__init__(key, kind)
        self._plain = plain


def _property(name: str) -> property:
    return property(lambda self: self._plain(name))


for _number in range(POOL):
    setattr(Properties, f"f{_number}", _property(f"f{_number}"))


class LazyMapping(UserDict[str, Any]):
    """A mapping that is not a dict."""


def source_of(values: Values, rng: Random, kind: GraphQLObjectType, key: str) -> Any:
    """Return an object of the type in one of the forms that the default resolver knows."""
    names = [name for name, field in kind.fields.items() if field.resolve is None]
    guise = rng.randrange(7)
    if guise < 2:
        made = Lazy if guise else Properties
        return made(key, kind.name, lambda name: values.plain(key, kind, name, lasting=False))
    attributes: dict[str, Any] = {}
    for name in names:
        if rng.random() < values.temper.null:
            continue
        try:
            attributes[name] = values.plain(key, kind, name, lasting=True)
        except Exception as error:
            attributes[name] = error
    if guise < 5:
        attributes |= {"key": key, "kind": kind.name}
        if rng.random() < 0.5:
            attributes["__typename"] = kind.name
        return attributes if guise < 4 else LazyMapping(attributes)
    thing = (Typed if guise == 5 else ThingSource)(key, kind.name)
    vars(thing).update(attributes)
    return thing


def key_of(value: Any) -> str:
    return str(value.get("key") if isinstance(value, Mapping) else getattr(value, "key", type(value).__name__))


def kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
