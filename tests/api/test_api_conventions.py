"""The rules of docs/api-conventions.md, over the whole schema.

Each rule returns the coordinates that break it. Exceptions are in tests/support/api_exceptions.py, with their reasons.
An exception that is no longer needed is an error.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from graphql import (
    GraphQLArgument,
    GraphQLField,
    GraphQLInputField,
    GraphQLNonNull,
    GraphQLObjectType,
    Undefined,
    get_named_type,
    get_nullable_type,
    is_enum_type,
    is_input_object_type,
    is_interface_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
)
from strawberry.utils.str_converters import to_camel_case

import schema
from datastore.model.access_patterns import AccessPattern, Who
from tests.support.api_exceptions import EXCEPTIONS

SCHEMA: Any = schema.build()._schema
ROOTS = ("Query", "Mutation", "Subscription")
# Keys that are no ids.
KEYS = {"area", "category", "takenAt", "feed"}
PAGE = {"first", "after", "last", "before"}
# The names of the keys of one part.
OWN_KEYS = {
    kind.declaration.name: [to_camel_case(kind.declaration.parts[0])]
    for kind in schema.NODES
    if len(kind.declaration.parts) == 1
}
# The parts of the keys of all types with a point read.
KEY_PARTS = {kind.declaration.name: set(map(to_camel_case, kind.declaration.parts)) for kind in schema.NODES}
# Other words for what an argument of the conventions names.
SYNONYMS = {
    "limit": "first",
    "top": "first",
    "start": "from",
    "end": "to",
    "since": "from",
    "windowHours": "window",
    "month": "at",
    "descending": "order",
}
_BOUND = re.compile(r"\b(at most|up to|one|two|three|eight|each|\d[\d,]*)\b", re.I)
# Durations are no bounds.
_DURATION = re.compile(r"(up to )?\d+ (seconds|minutes|hours|days)")
_DEFAULT = re.compile(r"by default (\d|[A-Z]{2,}|true|false)")
_ORDER = re.compile(r"\border\b|\bby (`|name|id|email|user)|\b(first|last|highest|soonest)\b|\bunordered\b", re.I)
# The bounds of a value: numbers, or a set of which it is one.
_INPUT_BOUND = re.compile(r"\d|\bone of `|`id`|`image/")
_ACCEPTED_ID = re.compile(r"`id`|chosen by the client|at the source")
# Adjectives and participles that do not end in -ed.
ADJECTIVES = {"active", "consistent", "legal", "national", "possible", "won"}
# Names of times that do not end in At, and of days that do not end in On.
TIMES = {"startTime", "endTime", "from", "to", "at"}
DAYS = {"day", "from", "to"}
# What a stranger reads twice: empty words, other words for those of the glossary, and actors without a name.
_FORBIDDEN = re.compile(
    r"if nothing is said|one's own|likewise|\banswers?\b|\b(whoever|whom|told|tells? (you|nobody|others))\b"
    r"|\bthe same as above\b|\betc\b|\bN/A\b|\b(TODO|TBD)\b",
    re.I,
)
_SENTENCES = re.compile(r"[A-Z`@0-9].*[.`]$", re.S)
_STATES_ABSENCE = re.compile(r"\bnull\b|\bby default\b|\bomitted\b", re.I)
_STORE = re.compile(
    r"DynamoDB|gateway\.py|\bitems?\b|GetItem|PutItem|UpdateItem|DeleteItem|\bQuery on\b|Transact|\bGSI"
)

OBJECTS = [kind.name for kind in SCHEMA.type_map.values() if is_object_type(kind) and kind.name not in ROOTS]

Rule = Callable[[], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


def object_types() -> Iterator[GraphQLObjectType]:
    return (kind for kind in SCHEMA.type_map.values() if is_object_type(kind) and not kind.name.startswith("__"))


def fields(*names: str) -> Iterator[tuple[str, GraphQLField]]:
    """Return the coordinates and the fields of these object types, by default of all."""
    for kind in object_types():
        if not names or kind.name in names:
            for name, field in kind.fields.items():
                yield f"{kind.name}.{name}", field


def arguments(*names: str) -> Iterator[tuple[str, str, GraphQLArgument]]:
    for coordinate, field in fields(*names):
        for name, argument in field.args.items():
            yield f"{coordinate}({name}:)", name, argument


def inputs() -> Iterator[tuple[str, str, GraphQLInputField]]:
    for kind in SCHEMA.type_map.values():
        if is_input_object_type(kind):
            for name, field in kind.fields.items():
                yield f"{kind.name}.{name}", name, field


def values() -> Iterator[tuple[str, str, Any]]:
    """Return the arguments and the fields of inputs."""
    yield from arguments()
    yield from inputs()


def patterns_of(field: GraphQLField) -> tuple[AccessPattern, ...]:
    definition = field.extensions["strawberry-definition"]
    patterns: tuple[AccessPattern, ...] = definition.metadata.get("patterns", ())
    return patterns


@rule
def every_object_has_an_id() -> Iterator[str]:
    for kind in object_types():
        if kind.name in (*ROOTS, "PageInfo") or kind.name.endswith(("Connection", "Edge")):
            continue
        if "id" not in kind.fields or str(kind.fields["id"].type) != "ID!":
            yield kind.name


@rule
def mutations_take_keys_and_one_input() -> Iterator[str]:
    for coordinate, name, argument in arguments("Mutation"):
        is_key = get_named_type(argument.type).name == "ID" and not is_list_type(get_nullable_type(argument.type))
        if name != "input" and not is_key and name not in KEYS:
            yield coordinate


@rule
def inputs_of_updates_do_not_contain_the_key() -> Iterator[str]:
    for coordinate, field in fields("Mutation"):
        own = get_named_type(field.type)
        if "input" not in field.args or is_list_type(get_nullable_type(field.args["input"].type)):
            continue
        kind: Any = get_named_type(field.args["input"].type)
        if not coordinate.startswith("Mutation.create") and is_object_type(own) and kind.name.startswith("Update"):
            yield from (f"{kind.name}.{name}" for name in kind.fields if name in KEY_PARTS.get(own.name, ()))


@rule
def the_own_key_of_an_object_is_the_argument_id() -> Iterator[str]:
    """A lookup, update or delete by a key of one part names it `id`."""
    for coordinate, field in fields("Query", "Mutation"):
        kind = get_named_type(field.type)
        if is_list_type(get_nullable_type(field.type)) or not is_object_type(kind):
            continue
        keys = [name for name in field.args if name not in ("input", "consistent")]
        if keys == OWN_KEYS.get(kind.name):
            yield coordinate


@rule
def descriptions_of_ids_name_the_global_id() -> Iterator[str]:
    """An argument that names a stored object says that it accepts the object's global id."""
    for coordinate, _, argument in arguments():
        if get_named_type(argument.type).name == "ID" and "`id`" not in (argument.description or ""):
            yield coordinate


@rule
def descriptions_of_ids_in_inputs_name_the_global_id() -> Iterator[str]:
    """So does a field of an input, unless the client chooses the id or the source alone knows it."""
    for coordinate, _, field in inputs():
        if get_named_type(field.type).name == "ID" and not _ACCEPTED_ID.search(field.description or ""):
            yield coordinate


@rule
def ids_of_mutations_are_keys_of_the_object() -> Iterator[str]:
    """An id that is no part of the object's key belongs into the input."""
    for coordinate, field in fields("Mutation"):
        kind = get_named_type(field.type)
        keys = {"id", *KEY_PARTS.get(kind.name, ())}
        for name, argument in field.args.items():
            if kind.name in KEY_PARTS and get_named_type(argument.type).name == "ID" and name not in keys:
                yield f"{coordinate}({name}:)"


@rule
def arguments_have_the_names_of_the_conventions() -> Iterator[str]:
    yield from (coordinate for coordinate, name, _ in arguments() if name in SYNONYMS)


@rule
def connections_page_in_both_directions() -> Iterator[str]:
    for coordinate, field in fields():
        is_page = get_named_type(field.type).name.endswith("Connection")
        if is_page and not field.args.keys() >= PAGE:
            yield coordinate


@rule
def connections_are_named_after_their_nodes() -> Iterator[str]:
    """Or after their edges, if these have fields of their own."""
    for kind in object_types():
        if kind.name.endswith("Connection"):
            edge: Any = get_named_type(kind.fields["edges"].type)
            node = get_named_type(edge.fields["node"].type).name
            names = {node} if edge.fields.keys() == {"cursor", "node"} else {edge.name.removesuffix("Edge")}
            if {kind.name.removesuffix("Connection"), edge.name.removesuffix("Edge")} != names:
                yield kind.name


@rule
def lists_in_an_order_accept_the_other_order() -> Iterator[str]:
    for coordinate, field in fields():
        if field.args.keys() >= PAGE and "order" not in field.args:
            yield coordinate


@rule
def reads_of_base_tables_accept_consistent() -> Iterator[str]:
    for coordinate, field in fields("Query"):
        reads = [pattern for pattern in patterns_of(field) if {"GetItem", "Query", "Scan"} & set(pattern.operations)]
        if coordinate in ("Query.node", "Query.nodes") or not reads:
            continue
        if all(pattern.index is None and not pattern.consistent for pattern in reads) != ("consistent" in field.args):
            yield coordinate


@rule
def plain_lists_state_their_bound() -> Iterator[str]:
    for coordinate, field in fields():
        is_page = coordinate.partition(".")[0].endswith("Connection")
        text = _DURATION.sub("", field.description or "")
        if is_list_type(get_nullable_type(field.type)) and not is_page and not _BOUND.search(text):
            yield coordinate


@rule
def lists_state_their_order() -> Iterator[str]:
    for coordinate, field in fields():
        is_page = coordinate.partition(".")[0].endswith("Connection")
        is_list = is_list_type(get_nullable_type(field.type)) or field.args.keys() >= PAGE
        if is_list and not is_page and not _ORDER.search(field.description or ""):
            yield coordinate


@rule
def lists_by_an_object_are_fields_of_it() -> Iterator[str]:
    """A list that the system and owners do not keep for themselves is a root field and a field of the object."""
    nested = {
        pattern
        for kind in object_types()
        if kind.name not in ROOTS
        for _, field in fields(kind.name)
        for pattern in patterns_of(field)
    }
    for coordinate, field in fields("Query"):
        is_by_object = any(name == "leagueCode" or name.endswith("Id") for name in field.args)
        is_public = any(pattern.who is Who.ANY for pattern in patterns_of(field))
        if field.args.keys() >= PAGE and is_by_object and is_public and nested.isdisjoint(patterns_of(field)):
            yield coordinate


@rule
def inputs_state_their_bounds() -> Iterator[str]:
    for coordinate, name, field in inputs():
        is_list = is_list_type(get_nullable_type(field.type))
        is_bounded = is_list or get_named_type(field.type).name in ("String", "ID", "Int", "Float", "JSON")
        # A version has those of its type.
        if is_bounded and name != "expectedVersion" and not _INPUT_BOUND.search(field.description or ""):
            yield coordinate


@rule
def enums_explain_all_values_or_none() -> Iterator[str]:
    for kind in SCHEMA.type_map.values():
        if is_enum_type(kind) and not kind.name.startswith("__"):
            explained = [
                bool(value.description) or re.search(rf"\b{name}\b", kind.description or "") is not None
                for name, value in kind.values.items()
            ]
            if any(explained) and not all(explained):
                yield kind.name


@rule
def kinds_are_enums_and_types_are_words() -> Iterator[str]:
    named = [(coordinate, coordinate.partition(".")[2], field) for coordinate, field in fields()]
    for coordinate, name, value in (*named, *values()):
        is_enum = is_enum_type(get_named_type(value.type))
        if (re.search(r"^kind$|Kind$", name) and not is_enum) or (re.search(r"^type$|Type$", name) and is_enum):
            yield coordinate


@rule
def booleans_are_adjectives_or_participles() -> Iterator[str]:
    named = [(coordinate, coordinate.partition(".")[2], field) for coordinate, field in fields(*OBJECTS)]
    for coordinate, name, value in (*named, *values()):
        words = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower())
        is_described = words[0] in ("is", "has") or any(word.endswith("ed") or word in ADJECTIVES for word in words)
        if get_named_type(value.type).name == "Boolean" and not is_described:
            yield coordinate


@rule
def defaults_are_in_the_schema() -> Iterator[str]:
    for coordinate, name, value in values():
        has_default = value.default_value is not Undefined and value.default_value is not None
        # The default of a time moves with the clock.
        is_constant = name != "first" and get_named_type(value.type).name != "DateTime"
        if is_constant and not has_default and _DEFAULT.search(value.description or ""):
            yield coordinate


@rule
def descriptions_do_not_mention_the_store() -> Iterator[str]:
    yield from (coordinate for coordinate, description in all_descriptions() if _STORE.search(description))


@rule
def everything_has_a_description() -> Iterator[str]:
    for kind in SCHEMA.type_map.values():
        if kind.name.startswith("__") or not (is_object_type(kind) or is_interface_type(kind) or is_enum_type(kind)):
            continue
        if not kind.description:
            yield kind.name
    yield from (coordinate for coordinate, field in fields() if not field.description)
    yield from (coordinate for coordinate, _, value in values() if not value.description)


@rule
def descriptions_of_nullable_fields_state_what_null_means() -> Iterator[str]:
    for coordinate, field in fields():
        is_page = coordinate.partition(".")[0].endswith(("Connection", "Edge"))
        if not is_page and not is_non_null_type(field.type) and "null" not in (field.description or "").lower():
            # "Null" as a value, or the access of callers that makes the field null.
            yield coordinate


@rule
def descriptions_of_nullable_arguments_state_what_null_means() -> Iterator[str]:
    for coordinate, name, argument in arguments():
        is_null = not is_non_null_type(argument.type) and name not in PAGE
        if is_null and not _STATES_ABSENCE.search(argument.description or ""):
            yield coordinate


@rule
def new_objects_accept_an_id_of_the_client() -> Iterator[str]:
    """Except those that a caller or a parent can have once: their key is known before."""
    for coordinate, field in fields("Mutation"):
        kind: Any = get_named_type(field.args["input"].type) if "input" in field.args else None
        is_new = coordinate.startswith(("Mutation.create", "Mutation.tag"))
        if is_new and not any(
            "An id chosen by the client" in (value.description or "") for value in kind.fields.values()
        ):
            yield coordinate


@rule
def descriptions_of_nullable_inputs_state_what_null_means() -> Iterator[str]:
    """The description of an input of an update states it for all of its fields."""
    for coordinate, _, field in inputs():
        is_null = not is_non_null_type(field.type) and not coordinate.startswith("Update")
        if is_null and not _STATES_ABSENCE.search(field.description or ""):
            yield coordinate


@rule
def numbers_of_objects_and_extremes_have_the_names_of_the_conventions() -> Iterator[str]:
    for coordinate, _ in fields():
        name = coordinate.partition(".")[2]
        if name == "count" or re.match(r"(greatest|smallest|highest|lowest|largest)[A-Z]", name):
            yield coordinate


@rule
def subscriptions_name_the_key_of_the_policy_latest() -> Iterator[str]:
    for coordinate, field in fields("Subscription"):
        if "whenSlow" in field.args and "`whenSlow: LATEST`" not in (field.description or ""):
            yield coordinate


@rule
def versions_mention_counts_of_types_with_counts_only() -> Iterator[str]:
    for kind in object_types():
        version = (kind.fields["version"].description or "") if "version" in kind.fields else ""
        if "`expectedVersion`" in version:
            has_counts = any(name.endswith("Count") for name in kind.fields)
            if ("Changes of counts" in version) != has_counts:
                yield f"{kind.name}.version"


@rule
def updates_and_ends_accept_the_expected_version() -> Iterator[str]:
    for coordinate, field in fields("Mutation"):
        versions = getattr(get_named_type(field.type), "fields", {})
        is_versioned = any(
            "`expectedVersion`" in (versions[name].description or "")
            for name in ("version", "revision")
            if name in versions
        )
        kind: Any = get_named_type(field.args["input"].type) if "input" in field.args else None
        accepts = kind is not None and "expectedVersion" in kind.fields
        if coordinate.startswith(("Mutation.update", "Mutation.end")) and is_versioned and not accepts:
            yield coordinate


@rule
def times_and_days_have_the_names_of_the_conventions() -> Iterator[str]:
    named = [(coordinate, coordinate.partition(".")[2], field) for coordinate, field in fields()]
    for coordinate, name, value in (*named, *values()):
        kind: Any = get_named_type(value.type)
        if kind.name == "DateTime" and not name.endswith("At") and name not in TIMES:
            yield coordinate
        if kind.name == "Date" and not name.endswith("On") and name not in DAYS:
            yield coordinate


@rule
def root_fields_begin_with_a_verb() -> Iterator[str]:
    for root, verb in (("Query", "Return "), ("Query", "Search "), ("Subscription", "Receive ")):
        for coordinate, field in fields(root):
            description = field.description or ""
            is_search = coordinate.startswith("Query.search")
            if is_search == (verb == "Search ") and not description.startswith(verb):
                yield coordinate


def all_descriptions() -> Iterator[tuple[str, str]]:
    """Return the coordinates and the descriptions of types, fields, arguments, inputs and values of enums."""
    for kind in SCHEMA.type_map.values():
        if not kind.name.startswith("__"):
            yield kind.name, kind.description or ""
            if is_enum_type(kind):
                yield from ((f"{kind.name}.{name}", value.description or "") for name, value in kind.values.items())
    yield from ((coordinate, field.description or "") for coordinate, field in fields())
    yield from ((coordinate, value.description or "") for coordinate, _, value in values())


@rule
def descriptions_are_sentences_without_forbidden_words() -> Iterator[str]:
    for coordinate, description in all_descriptions():
        name = re.sub(r"`[^`]*`|[A-Z_]{4,}", "`", description)
        if _FORBIDDEN.search(name) or (description and not _SENTENCES.fullmatch(description)):
            yield coordinate


@rule
def lookups_are_nullable() -> Iterator[str]:
    for coordinate, field in fields("Query"):
        kind = get_nullable_type(field.type)
        if is_object_type(kind) and "id" in field.args and is_non_null_type(field.type):
            yield coordinate


@rule
def deletes_return_null_if_there_was_nothing() -> Iterator[str]:
    for coordinate, field in fields("Mutation"):
        is_one = is_object_type(get_named_type(field.type))
        if coordinate.startswith("Mutation.delete") and is_one and isinstance(field.type, GraphQLNonNull):
            yield coordinate


@pytest.mark.parametrize("name", RULES)
def test_the_schema_follows(name: str) -> None:
    assert set(RULES[name]()) == set(EXCEPTIONS.get(name, ())), f"docs/api-conventions.md: {name.replace('_', ' ')}"


def test_each_exception_belongs_to_a_rule() -> None:
    assert EXCEPTIONS.keys() <= RULES.keys()
