"""Every access pattern of the contract has its field, says so, and issues what it declares and nothing else."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT, Served
from graphql import GraphQLField, GraphQLObjectType

import schema as api
from datastore.declarations import AccessPattern, Operation, Who
from datastore.keyspace import PATTERNS
from datastore.keyspace.__main__ import page
from resolvers.access import Role

# Pattern, field, operations, who: as the contract has them.
CONTRACT: list[tuple[str, str, set[Operation], Who]] = [
    ("BLIP-1", "sightings", {"Query"}, Who.ANY),
    ("BLIP-2", "userProfile", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("BLIP-3", "watches", {"Query"}, Who.USER),
    ("BLIP-4", "trending", {"Query"}, Who.ANY),
    ("BLIP-5", "confirmSighting", {"Query", "TransactWriteItems"}, Who.USER),
    # The tier is copied onto the sighting, so the profile is read before the transaction.
    ("BLIP-6", "reportSighting", {"GetItem", "TransactWriteItems"}, Who.USER),
    ("BLIP-7", "createWatch", {"PutItem"}, Who.USER),
    ("BLIP-7", "deleteWatch", {"DeleteItem"}, Who.USER),
    ("BLIP-8", "seedDemo", {"TransactWriteItems"}, Who.ADMIN),
    ("BLIP-S1", "sightingReported", set(), Who.ANY),
    ("BLIP-S2", "watchAlerts", {"Query"}, Who.USER),
    # Beside the puts, what the last ingest saw is read and kept.
    ("QUAKE-1", "ingestEarthquakes", {"GetItem", "PutItem"}, Who.SYSTEM),
    ("QUAKE-2", "earthquakes", {"Query"}, Who.ANY),
    ("QUAKE-4", "requestLogs", {"Query"}, Who.ADMIN),
    ("QUAKE-5", "earthquake", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("QUAKE-S1", "earthquakeDetected", set(), Who.ANY),
]
# One operation for each field; what it needs is put in place by SETUP.
SETUP = """mutation {
  reportSighting(input: {area: "Downtown", category: "Cats", description: "x"}) { sightingId }
  createWatch(input: {area: "Downtown", category: "Cats"}) { watchId }
}"""
ASK: dict[str, tuple[str, Role]] = {
    "sightings": ('{ sightings(area: "Downtown") { nodes { area } } }', Role.USER),
    "userProfile": ('{ userProfile(userId: "ada") { userId } }', Role.USER),
    "watches": ('{ watches(userId: "ada") { watchId } }', Role.USER),
    "trending": ("{ trending { score sightings { nodes { area } } } }", Role.USER),
    "confirmSighting": ('mutation { confirmSighting(area: "Downtown", sightingId: "%s") { area } }', Role.USER),
    "reportSighting": (SETUP.replace("createWatch", "other: createWatch").split("\n  other")[0] + "}", Role.USER),
    "createWatch": ('mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { area } }', Role.USER),
    "deleteWatch": ('mutation { deleteWatch(area: "Downtown", category: "Cats", watchId: "%s") { area } }', Role.USER),
    "seedDemo": ("mutation { seedDemo { area } }", Role.ADMIN),
    "ingestEarthquakes": ('mutation { ingestEarthquakes(feed: "http://127.0.0.1:1/x") { error } }', Role.SYSTEM),
    "earthquakes": ("{ earthquakes(minMagnitude: 9) { nodes { place } } }", Role.USER),
    "requestLogs": ("{ requestLogs(type: QUERY) { nodes { route } } }", Role.ADMIN),
    "earthquake": ('{ earthquake(eventId: "x") { place } }', Role.USER),
}


def root_fields() -> Iterator[tuple[str, GraphQLField]]:
    schema = api.build()._schema
    for root in (schema.query_type, schema.mutation_type, schema.subscription_type):
        assert isinstance(root, GraphQLObjectType)
        yield from root.fields.items()


def patterns_of(field: GraphQLField) -> tuple[AccessPattern, ...]:
    found: tuple[AccessPattern, ...] = field.extensions["strawberry-definition"].metadata.get("patterns", ())
    return found


@pytest.mark.parametrize(("id", "name", "operations", "who"), CONTRACT, ids=[row[1] for row in CONTRACT])
def test_a_pattern_of_the_contract_is_declared_as_its_field(
    id: str, name: str, operations: set[Operation], who: Who
) -> None:
    (field,) = [field for field_name, field in root_fields() if field_name == name]

    (pattern,) = patterns_of(field)

    assert (pattern.id, set(pattern.operations), pattern.who) == (id, operations, who)
    assert name in pattern.fields
    assert pattern.summary in (field.description or "")


def test_every_declared_field_is_in_the_schema_and_says_its_pattern() -> None:
    declared = {(field, pattern.id) for pattern in PATTERNS for field in pattern.fields if "." not in field}
    served = {(name, pattern.id) for name, field in root_fields() for pattern in patterns_of(field)}

    assert declared == served


@pytest.mark.parametrize("name", ASK)
async def test_a_field_issues_what_its_pattern_declares_and_nothing_else(served: Served, name: str) -> None:
    prepared = (await served.ask(SETUP, user="ada")).data
    query, role = ASK[name]
    ids = {
        "confirmSighting": prepared["reportSighting"]["sightingId"],
        "deleteWatch": prepared["createWatch"]["watchId"],
    }
    user = "grace" if name == "confirmSighting" else "ada"

    answer = await served.ask(query.replace("%s", ids.get(name, "")), user=user, role=role)

    (pattern,) = [pattern for pattern in PATTERNS if name in pattern.fields]
    assert answer.errors is None
    assert {call.operation for call in answer.calls} <= set(pattern.operations)
    assert {call.index for call in answer.calls if call.operation == "Query"} <= {pattern.index}
    assert {table.split("__")[1] for call in answer.calls for table in call.tables} <= {pattern.table.name}
    assert answer.calls or name == "ingestEarthquakes"


def test_every_field_type_and_argument_is_described() -> None:
    schema = api.build()._schema

    bare = [name for name, kind in schema.type_map.items() if not name.startswith("__") and not kind.description]
    for name, kind in schema.type_map.items():
        members: dict[str, Any] = {} if name.startswith("__") else getattr(kind, "fields", {})
        bare += [f"{name}.{field}" for field, member in members.items() if not member.description]
        bare += [
            f"{name}.{field}({argument})"
            for field, member in members.items()
            for argument, value in getattr(member, "args", {}).items()
            if not value.description
        ]

    assert bare == []


def test_the_page_of_access_patterns_is_fresh() -> None:
    assert (ROOT / "docs" / "access-patterns.md").read_text() == page(), "Run `make docs`."


def test_the_committed_schema_is_the_schema() -> None:
    assert (ROOT / "schema" / "api.graphql").read_text() == f"{api.build().as_str()}\n", "Run `make docs`."


def test_expressions_use_the_declared_keys() -> None:
    for pattern in PATTERNS:
        if "Query" in pattern.operations and pattern.key:
            names = set(re.findall(r"(\w+) (?:=|>=|BETWEEN)|begins_with\((\w+),", pattern.key))
            used = {name for pair in names for name in pair if name}
            assert used <= set(pattern.table.key_attributes(pattern.index)), pattern.id
