"""The queries of the test of privacy, with every field of the library, and the search in decoded answers."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    get_named_type,
    is_composite_type,
    is_required_argument,
    is_required_input_field,
)

import schema as api
from datastore.keyspace.photos.table import SPARKS

SCHEMA = api.build()._schema
ROOTS = {"query": "Query", "mutation": "Mutation", "subscription": "Subscription"}
DEEPEST = 3
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{8,}")
PLAIN = {"Int": 1, "Float": 0.5, "Boolean": False, "DateTime": "2026-06-25T12:00:00Z", "JSON": {"a": 1}}
HEX = re.compile(r"(?:[0-9a-fA-F]{2}){4,}")

# The values of arguments and input fields by name, or by `field.name` where the name is ambiguous.
Values = Mapping[str, Sequence[Any]]


def root_type(kind: str) -> GraphQLObjectType:
    found = SCHEMA.type_map[ROOTS[kind]]
    assert isinstance(found, GraphQLObjectType)
    return found


def library_fields(kind: str) -> list[str]:
    """Return the fields of Query, Mutation or Subscription that read the library's table."""
    return [name for name, field in root_type(kind).fields.items() if _reads_library(field)]


def _reads_library(field: GraphQLField) -> bool:
    definition = field.extensions.get("strawberry-definition")
    patterns = definition.metadata.get("patterns", ()) if definition else ()
    return any(pattern.table is SPARKS for pattern in patterns)


def operation_variants(
    kind: str, name: str, values: Values, types: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield documents and variables for a field: with the required arguments, with each optional argument that has
    values, with all.

    `types` are the possible types of a field that returns an interface. Each has its own document, as fields of the
    same name may have different types.
    """
    field = root_type(kind).fields[name]
    declared = ", ".join(f"${argument}: {_declared(slot)}" for argument, slot in field.args.items())
    given = ", ".join(f"{argument}: ${argument}" for argument in field.args)
    returned = get_named_type(field.type)
    for shown in types if isinstance(returned, GraphQLInterfaceType) else [returned.name]:
        of = SCHEMA.type_map[shown]
        selected = f"{{ __typename ... on {shown} {_selection(of)} }}" if is_composite_type(of) else ""
        call = f"({declared}) {{ {name}({given}) {selected} }}" if declared else f"{{ {name} {selected} }}"
        for variables in _ways(name, field.args, values):
            yield f"{kind} {call}", variables


def _declared(slot: GraphQLArgument) -> str:
    """Return the declared type: an argument with a default is nullable."""
    return str(slot.type) if is_required_argument(slot) else str(slot.type).removesuffix("!")


def _selection(of: Any, path: tuple[str, ...] = ()) -> str:
    """Select all fields of a type and of their types, with each cycle at most once."""
    parts = ["__typename"]
    for name, field in of.fields.items():
        returned = get_named_type(field.type)
        if any(is_required_argument(argument) for argument in field.args.values()):
            continue
        if not is_composite_type(returned):
            parts.append(name)
        elif path.count(returned.name) < 1 and len(path) < DEEPEST:
            parts.append(f"{name} {_selection(returned, (*path, of.name))}")
    return "{ " + " ".join(parts) + " }"


def _ways(field: str, arguments: Mapping[str, GraphQLArgument], values: Values) -> Iterator[dict[str, Any]]:
    must = [name for name, slot in arguments.items() if is_required_argument(slot)]
    others = [name for name in arguments if name not in must and (name in values or f"{field}.{name}" in values)]
    ways = [must, *[[*must, name] for name in others], list(arguments)]
    for names in ways[: None if others or len(must) < len(arguments) else 1]:
        yield from _turns({name: _values(field, name, arguments[name], values) for name in names})


def _turns(choices: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield combinations that use every value at least once: as many as the longest choice has values."""
    for turn in range(max([1, *map(len, choices.values())])):
        yield {name: found[turn % len(found)] for name, found in choices.items()}


def _values(field: str, name: str, slot: GraphQLArgument | GraphQLInputField, values: Values) -> Sequence[Any]:
    of: Any = slot.type.of_type if isinstance(slot.type, GraphQLNonNull) else slot.type
    found = _values_of(field, name, get_named_type(of), values)
    return [found] if isinstance(of, GraphQLList) else found


def _values_of(field: str, name: str, of: Any, values: Values) -> Sequence[Any]:
    if isinstance(of, GraphQLInputObjectType):
        must = [name for name, slot in of.fields.items() if is_required_input_field(slot)]
        ways = [{name: _values(field, name, of.fields[name], values) for name in names} for names in (must, of.fields)]
        return [value for way in ways for value in _turns(way)]
    if isinstance(of, GraphQLEnumType):
        return list(of.values)[:1]
    given = values.get(f"{field}.{name}") or values.get(name)
    return given or [PLAIN.get(of.name, "words")]


# Search


def reveals(text: str, *needles: str) -> bool:
    """Return whether the text contains one of these: as it is, in URLs, or in base64 or hex, twice nested."""
    return any(needle in layer.lower() for layer in _layers(text, 2) for needle in needles)


def _layers(text: str, deep: int) -> Iterator[str]:
    yield text
    yield unquote(unquote(text))
    if deep == 0:
        return
    for run in set(HEX.findall(text)):
        yield bytes.fromhex(run).decode("latin-1")
    for run in set(ENCODED.findall(text)):
        # The start of the encoding is unknown: there may be a prefix.
        for cut in range(4):
            encoded = run[cut:].replace("+", "-").replace("/", "_")
            encoded = encoded[: len(encoded) - (len(encoded) % 4 == 1)]
            yield from _layers(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode("latin-1"), deep - 1)
