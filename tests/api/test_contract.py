"""Each access pattern of the contract has a field, is named in its description, and issues its declared calls only."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from graphql import GraphQLField, GraphQLObjectType, build_client_schema, get_introspection_query, print_schema

import schema as api
from datastore.dynamodb.calls import Call
from datastore.dynamodb.transport import STREAM_OPERATIONS
from datastore.keyspace import PATTERNS
from datastore.keyspace.__main__ import page
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Operation, Table, Who
from tests.support import photo_contract
from tests.support.contract import (
    ASK,
    BY_GRACE,
    CONTRACT,
    SETUP,
    begin_polled_match,
    every_call,
    feed,
    prepare_operation,
)
from tests.support.photo_items import ADA
from tests.support.served import Served, call_name
from tests.support.store_engines import ROOT

__all__ = ["feed"]  # fixtures


def root_fields() -> Iterator[tuple[str, GraphQLField]]:
    schema = api.build()._schema
    for root in (schema.query_type, schema.mutation_type, schema.subscription_type):
        assert isinstance(root, GraphQLObjectType)
        yield from root.fields.items()


def declared_patterns(field: GraphQLField) -> tuple[AccessPattern, ...]:
    found: tuple[AccessPattern, ...] = field.extensions["strawberry-definition"].metadata.get("patterns", ())
    return found


@pytest.mark.parametrize(("id", "name", "operations", "who"), CONTRACT, ids=[row[1] for row in CONTRACT])
def test_a_pattern_of_the_contract_declares_its_field(id: str, name: str, operations: set[Operation], who: Who) -> None:
    (field,) = [field for field_name, field in root_fields() if field_name == name]

    (pattern,) = [pattern for pattern in declared_patterns(field) if (pattern.id, pattern.who) == (id, who)]

    assert set(pattern.operations) == operations
    assert {pattern.id for pattern in declared_patterns(field)} == {row[0] for row in CONTRACT if row[1] == name}
    assert name in pattern.fields
    assert pattern.summary in (field.description or "")


def test_every_declared_field_is_in_the_schema_and_names_its_pattern() -> None:
    declared = {(field, pattern.id) for pattern in PATTERNS for field in pattern.fields if "." not in field}
    served = {(name, pattern.id) for name, field in root_fields() for pattern in declared_patterns(field)}

    assert declared == served


def test_every_field_of_the_contract_has_an_operation() -> None:
    subscribed = {pattern.fields[0] for pattern in PATTERNS if "-S" in pattern.id}

    assert {name for _, name, _, _ in CONTRACT} == ASK.keys() | subscribed
    assert {pattern.id for pattern in PATTERNS if pattern.fields} - {id for id, *_ in CONTRACT} == {
        "BLIP-N1",
        "BLIP-N2",
        "FEED-N1",
        "FEED-N2",
        "FEED-N3",
        "FEED-N4",
        "FEED-N5",
        "FEED-N6",
        "FOL-2",
        "FXC-1",
        "LA-1",
        "QUAKE-N1",
        "QUAKE-N2",
        "SPARKS-N2",
    }


@pytest.mark.parametrize("name", ASK)
async def test_a_field_makes_its_declared_calls_only(served: Served, feed: str, name: str) -> None:
    await assert_declared_calls(served, name, await prepare_operation(served, name, feed))


async def assert_declared_calls(served: Served, name: str, ids: dict[str, str]) -> None:
    query, role, expected = ASK[name]
    patterns = [pattern for pattern in PATTERNS if name in pattern.fields]

    with every_call(served) as calls:
        answer = await served.ask(
            query.replace("%s", ids.get(name, "")),
            user="grace" if name in BY_GRACE else "ada",
            role=role,
            email=ADA if name in photo_contract.ASK else None,
        )

    assert answer.errors is None
    (report,) = served.reports
    assert report.estimate >= 0.8 * report.cost, (report.estimate, report.cost)
    issued = sorted(call_name(call) for call in calls if not is_log(call))
    assert issued == expected
    assert {call.partition(" ")[0] for call in issued} <= {name for pattern in patterns for name in pattern.operations}
    reading = [call for call in calls if call.operation in ("GetItem", "Query", "Scan") and name != "ingestEarthquakes"]
    assert {bool(call.request.get("ConsistentRead")) for call in reading} <= {
        pattern.consistent for pattern in patterns
    }


def is_log(call: Call) -> bool:
    return bool(call.request.get("Item", {}).get("entity") == {"S": "LOG"})


@pytest.mark.parametrize(
    ("field", "table", "expected"),
    [
        ('watchAlerts(userId: "ada") { area }', BLIP, "Query blip"),
        ('matchUpdates(matchId: "m3") { version }', ACTIVE_MATCHES, "GetItem active-matches"),
        ('homeFeedUpdated(userId: "ada") { postId }', FEED, "Query feed"),
        ('postEngagement(postId: "p1") { likeCount }', FEED, "GetItem feed"),
        ("liveScores { isSnapshot }", ACTIVE_MATCHES, "Scan active-matches"),
        ('liveScores(leagueCode: "ONE") { isSnapshot }', ACTIVE_MATCHES, "Scan active-matches"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
async def test_a_subscription_reads_its_snapshot_once_and_consistently(
    served: Served, field: str, table: Table, expected: str
) -> None:
    assert (await served.ask(SETUP, user="ada")).errors is None
    await begin_polled_match(served)
    with every_call(served) as calls:
        listener = await served.listen(f"subscription {{ {field} }}", user="ada")
        await served.settle(table)
        async with asyncio.timeout(50):
            while expected not in [call_name(call) for call in calls]:  # noqa: ASYNC110 - the calls are made elsewhere
                await asyncio.sleep(0.01)

    reads = [call for call in calls if call.operation not in STREAM_OPERATIONS | {"DescribeTable"}]
    assert [(call_name(call), call.request.get("ConsistentRead")) for call in reads] == [(expected, True)]
    await listener.socket.close()


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


async def test_clients_can_read_the_whole_schema(served: Served) -> None:
    answer = await served.ask(get_introspection_query(input_value_deprecation=True, specified_by_url=True))

    assert answer.errors is None
    assert print_schema(build_client_schema(answer.data)) == print_schema(api.build()._schema)


def test_the_page_of_access_patterns_is_current() -> None:
    assert (ROOT / "docs" / "access-patterns.md").read_text() == page(), "Run `make docs`."


def test_the_committed_schema_is_the_schema() -> None:
    assert (ROOT / "schema" / "api.graphql").read_text() == f"{api.build().as_str()}\n", "Run `make docs`."


def test_expressions_use_the_declared_keys() -> None:
    for pattern in PATTERNS:
        if "Query" in pattern.operations and pattern.key:
            names = set(re.findall(r"(\w+) (?:=|>=|BETWEEN)|begins_with\((\w+),", pattern.key))
            used = {name for pair in names for name in pair if name}
            assert used <= set(pattern.table.key_attributes(pattern.index)), pattern.id
