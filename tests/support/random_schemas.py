"""Random schemas: every kind of type, wrapped in lists and non-null in every way, with arguments of every kind.

Fields of the same name have the same type and arguments everywhere, so that selections always merge. The resolvers'
values are random, too (`random_values`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from graphql import (
    GraphQLAbstractType,
    GraphQLEnumType,
    GraphQLError,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLResolveInfo,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLUnionType,
    Undefined,
    build_schema,
)

Info = GraphQLResolveInfo[Any]
HEAD = """
directive @experimental_disableErrorPropagation on QUERY | MUTATION | SUBSCRIPTION
scalar Odd
enum Color { RED GREEN BLUE }
input In { a: Int = 1 b: [String!] c: Color = GREEN d: In e: Odd f: Boolean! = true }
input One @oneOf { a: Int b: String }
"""
LEAVES = ["Int", "Int", "Float", "String", "String", "Boolean", "ID", "Color", "Odd", "Odd"]
WRAPPED = ["{}", "{}", "{}", "{}!", "{}!", "[{}]", "[{}!]", "[{}]!", "[{}!]!", "[[{}]]", "[[{}!]!]", "[[{}]!]!"]
ARGUMENTS = [
    "(n: Int)",
    "(n: Int = 3, s: String)",
    '(n: Int!, s: String! = "x")',
    "(in: In)",
    "(in: In = {a: 7, b: []})",
    "(one: One)",
    "(c: Color = RED, l: [Int!])",
    "(l: [[Int]!] = [[1], []], odd: Odd)",
    "(f: Float = 1, id: ID, b: Boolean = false)",
]
OBJECTS = ["A", "B", "C", "D"]
COMPOSITES = [*OBJECTS, *OBJECTS, "Named", "Aged", "Named", "AorB", "Any"]
POOL = 18
# How a field gets its value. "default" uses the default resolver on the parent's value.
FORMS = ["default", "default", "sync", "sync", "partial", "callable", "async", "async"]


@dataclass
class RandomSchema:
    """A schema with resolvers, which get their values from `info.context` and report their calls to it."""

    schema: GraphQLSchema
    text: str
    awaits: bool


def random_schema(seed: int) -> RandomSchema:
    """Return a random schema. A third of the schemas awaits nothing: there, everything happens in one order."""
    rng = Random(seed)
    awaits = rng.random() < 0.67
    text = _text(rng)
    schema = build_schema(text)
    for kind in schema.type_map.values():
        if kind.name.startswith("__"):
            continue
        if isinstance(kind, GraphQLObjectType):
            _give_resolvers(kind, rng, awaits)
        elif isinstance(kind, GraphQLInterfaceType | GraphQLUnionType):
            _give_type_resolver(kind, rng)
        elif isinstance(kind, GraphQLEnumType):
            _give_values(kind, rng)
    odd = schema.type_map["Odd"]
    assert isinstance(odd, GraphQLScalarType)
    odd.coerce_output_value, odd.coerce_input_value = odd_out, odd_in
    _rename_arguments(schema, rng)
    return RandomSchema(schema, text, awaits)


def _text(rng: Random) -> str:
    fields = [f"f{number}" for number in range(POOL)]
    types: dict[str, str] = {}
    for number, name in enumerate(fields):
        base = rng.choice(LEAVES if number < POOL * 0.6 else COMPOSITES)
        given = rng.choice(ARGUMENTS) if rng.random() < 0.4 else ""
        types[name] = f"{name}{given}: {rng.choice(WRAPPED).format(base)}"
    leaves, branches = fields[: int(POOL * 0.6)], fields[int(POOL * 0.6) :]

    def some(least: int, most: int) -> set[str]:
        return {*rng.sample(leaves, rng.randint(least, most)), *rng.sample(branches, rng.randint(1, 3))}

    def body(names: set[str]) -> str:
        return "{ " + " ".join(types[name] for name in fields if name in names) + " }"

    named = some(1, 2)
    aged = named | some(1, 1)
    parts = [HEAD, f"interface Named {body(named)}", f"interface Aged implements Named {body(aged)}"]
    parts.append(f"type A implements Named {body(some(3, 5) | named)}")
    parts.append(f"type B implements Named & Aged {body(some(2, 4) | aged)}")
    parts.append(f"type C implements Named & Aged {body(some(2, 4) | aged)}")
    parts.append(f"type D {body(some(2, 5))}")
    parts.append("union AorB = A | B union Any = A | B | C | D")
    for root in ("Query", "Mutation", "Subscription"):
        parts.append(f"type {root} {body(some(3, 6) | set(rng.sample(branches, 3)))}")
    return "\n".join(parts)


def _give_resolvers(kind: GraphQLObjectType, rng: Random, awaits: bool) -> None:
    for field in kind.fields.values():
        field.resolve = RESOLVERS[rng.choice(FORMS if awaits else FORMS[:-2])]
        if kind.name == "Subscription":
            field.subscribe = rng.choice([_subscribe, _subscribe_later] if awaits else [_subscribe])
    if kind.name in OBJECTS and rng.random() < 0.5:
        kind.is_type_of = partial(_is_type_of, kind.name)


def _give_type_resolver(kind: GraphQLAbstractType, rng: Random) -> None:
    if rng.random() < 0.6:
        kind.resolve_type = _resolve_type


def _give_values(kind: GraphQLEnumType, rng: Random) -> None:
    """Give the enum internal values in half of the schemas; otherwise graphql-core uses the names."""
    if rng.random() < 0.5:
        for number, value in enumerate(kind.values.values()):
            value.value = number + 10


def _rename_arguments(schema: GraphQLSchema, rng: Random) -> None:
    """Pass some arguments to the resolver by another name."""
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            for field in kind.fields.values():
                for name, argument in field.args.items():
                    if rng.random() < 0.2:
                        argument.out_name = f"{name}_out"


def odd_out(value: Any) -> Any:
    """Serialize the custom scalar Odd, which accepts odd numbers and fails in a different way for each other value."""
    if not isinstance(value, int):
        raise TypeError(f"Odd is no {type(value).__name__}")
    if value % 2:
        return {"odd": value} if value > 50 else value
    if value == 2:
        return None
    if value == 4:
        return Undefined
    if value == 6:
        raise GraphQLError("Odd is even", extensions={"even": value})
    raise ValueError(f"{value} is even")


def odd_in(value: Any) -> Any:
    if not isinstance(value, int) or value % 2 == 0:
        raise ValueError("Odd must be odd")
    return value


def _sync(source: Any, info: Info, **args: Any) -> Any:
    return info.context.answer(info, args)


async def _async(source: Any, info: Info, **args: Any) -> Any:
    return await info.context.answer_later(info, args)


class _Callable:
    def __call__(self, source: Any, info: Info, **args: Any) -> Any:
        return info.context.answer(info, args)


RESOLVERS: dict[str, Callable[..., Any] | None] = {
    "default": None,
    "sync": _sync,
    "async": _async,
    "partial": partial(_sync),
    "callable": _Callable(),
}


def _subscribe(source: Any, info: Info, **args: Any) -> Any:
    return info.context.events(info, args)


async def _subscribe_later(source: Any, info: Info, **args: Any) -> Any:
    return await info.context.events_later(info, args)


def _is_type_of(name: str, value: Any, info: Info) -> Any:
    return info.context.is_type(value, name)


def _resolve_type(value: Any, info: Info, kind: GraphQLAbstractType) -> Any:
    return info.context.type_of(value, kind)
