"""Each access pattern of the contract has a field, is named in a directive, and issues its declared calls only."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from graphql import GraphQLField, GraphQLObjectType, build_client_schema, get_introspection_query, print_schema

import schema as api
from datastore import stored_items
from datastore.dynamodb.calls import Call
from datastore.dynamodb.transport import STREAM_OPERATIONS
from datastore.keyspace import PATTERNS
from datastore.keyspace.page import pages as access_pattern_pages
from datastore.model.access_patterns import AccessPattern
from schema.access_pattern_directive import AccessPatternDirective
from tests.support.contract import (
    FIELDS,
    PAGE_OF,
    PAGES,
    ROWS,
    SUBSCRIPTIONS,
    every_call,
    feed,
    hints,
    send,
)
from tests.support.contract.pages import Field, Followed
from tests.support.request_rules import reserved_words_of
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


def directives(field: GraphQLField) -> list[AccessPatternDirective]:
    applied = field.extensions["strawberry-definition"].directives
    return [directive for directive in applied if isinstance(directive, AccessPatternDirective)]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_of_the_contract_agrees_with_the_declarations(row: Field | Followed) -> None:
    where = f"{PAGE_OF[row.name].file}, row {row.name!r}"
    found = [field for name, field in root_fields() if name == row.name]
    assert found, f"{where}: the schema has no such field. Remove the row, or declare the field in schema/."
    declared = declared_patterns(found[0])

    assert {(pattern.id, pattern.who) for pattern in declared} == {(id, who) for id, who, _ in row.uses}, (
        f"{where}: state the ids and callers of the patterns that the field declares in schema/."
    )
    for id, who, operations in row.uses:
        assert operations in [
            set(pattern.operations) for pattern in declared if (pattern.id, pattern.who) == (id, who)
        ], f"{where}: the operations of {id} differ from those in datastore/keyspace/."
    for pattern in declared:
        assert row.name in pattern.fields, f"Add {row.name!r} to `fields` of {pattern.id} in datastore/keyspace/."
        assert pattern.id in {named.id for named in directives(found[0])}, row.name


def test_every_declared_field_is_in_the_schema_and_names_its_pattern() -> None:
    declared = {(field, pattern.id) for pattern in PATTERNS for field in pattern.fields if "." not in field}
    served = {(name, pattern.id) for name, field in root_fields() for pattern in declared_patterns(field)}

    missing = [f"{name}: pass the pattern {id} to its `pattern_field` in schema/." for name, id in declared - served]
    unnamed = [f"{id}: add {name!r} to its `fields` in datastore/keyspace/." for name, id in served - declared]
    assert missing + unnamed == []


def test_every_field_has_a_row() -> None:
    declared = {name: field for name, field in root_fields() if declared_patterns(field)}
    subscribed = {name for name in declared if any("-S" in pattern.id for pattern in declared_patterns(declared[name]))}
    where = "the page of its system in tests/support/contract/"

    elsewhere = {"node", "nodes"}.union(*[page.elsewhere for page in PAGES])
    assert hints(where, declared.keys() - subscribed - elsewhere, {*FIELDS}, "`Field({!r}, ...)`") == []
    assert hints(where, subscribed, {*SUBSCRIPTIONS}, "`Followed({!r}, ...)`") == []


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
async def test_a_field_makes_its_declared_calls_only(served: Served, feed: str, field: Field) -> None:
    page = PAGE_OF[field.name]
    prepared = await page.prepare(served) | {"feed": feed}
    patterns = [pattern for pattern in PATTERNS if field.name in pattern.fields]

    with every_call(served) as calls:
        answer = await send(served, field, prepared)

    where = f"{page.file}, row {field.name!r}"
    assert answer.errors is None, f"{where}: the operation fails. Correct it, or store what it needs in `prepare`."
    (report,) = served.reports
    assert report.estimate >= 0.8 * report.cost, (
        f"{field.name}: estimated at {report.estimate} units, it cost {report.cost}. State its `extent` in schema/."
    )
    issued = sorted(call_name(call) for call in calls if not is_log(call))
    assert issued == field.calls, f"{where}: state the calls that it makes, or make fewer."
    operations = {call.partition(" ")[0] for call in issued}
    assert operations <= {name for pattern in patterns for name in pattern.operations}, (
        f"{field.name}: add the operations to its pattern in datastore/keyspace/."
    )
    reads = [call for call in calls if call.operation in ("GetItem", "Query", "Scan")]
    if field.name != "ingestEarthquakes":
        assert {bool(call.request.get("ConsistentRead")) for call in reads} <= {
            pattern.consistent for pattern in patterns
        }, f"{field.name}: `consistent` of its pattern in datastore/keyspace/ differs from its reads."


def is_log(call: Call) -> bool:
    return bool(call.request.get("Item", {}).get("entity") == {"S": "LOG"})


SNAPSHOTS = [
    (followed, selection)
    for followed in SUBSCRIPTIONS.values()
    if followed.snapshot
    for selection in (followed.selection, *followed.also_selected)
]


@pytest.mark.parametrize(("followed", "selection"), SNAPSHOTS, ids=[selection for _, selection in SNAPSHOTS])
async def test_a_subscription_reads_its_snapshot_once_and_consistently(
    served: Served, followed: Followed, selection: str
) -> None:
    assert followed.snapshot is not None
    table, expected = followed.snapshot
    await PAGE_OF[followed.name].prepare(served)
    with every_call(served) as calls:
        listener = await served.listen(f"subscription {{ {selection} }}", user="ada")
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

    assert bare == [], "Add a `description` in schema/ or to the argument in resolvers/."


async def test_clients_can_read_the_whole_schema(served: Served) -> None:
    answer = await served.ask(
        get_introspection_query(input_value_deprecation=True, specified_by_url=True, directive_is_repeatable=True)
    )

    assert answer.errors is None
    assert print_schema(build_client_schema(answer.data)) == print_schema(api.build()._schema)


@pytest.mark.parametrize(
    ("folder", "pages"), [("access-patterns", access_pattern_pages()), ("stored-items", stored_items.pages())]
)
def test_generated_pages_are_current(folder: str, pages: dict[str, str]) -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs" / folder).iterdir()}
    assert written == pages, "Run `make docs`."


def test_the_committed_schema_is_the_schema() -> None:
    assert (ROOT / "schema" / "api.graphql").read_text() == f"{api.build().as_str()}\n", "Run `make docs`."


def test_expressions_use_the_declared_keys() -> None:
    for pattern in PATTERNS:
        if "Query" in pattern.operations and pattern.key:
            names = set(re.findall(r"(\w+) (?:=|>=|BETWEEN)|begins_with\((\w+),", pattern.key))
            used = {name for pair in names for name in pair if name}
            assert used <= set(pattern.table.key_attributes(pattern.index)), pattern.id


def expressions_of(pattern: AccessPattern) -> list[str]:
    """Return the expressions that are sent to DynamoDB. The key of a pattern without a Query describes a key."""
    key = pattern.key if "Query" in pattern.operations else ""
    return [key, *pattern.filters, pattern.condition, *pattern.guard, pattern.update]


def test_expressions_have_an_alias_for_each_reserved_word() -> None:
    words = [
        f"{pattern.id} ({pattern.question!r}): DynamoDB reserves `{word}`. Write `#{word}` in datastore/keyspace/."
        for pattern in PATTERNS
        for word in reserved_words_of(*expressions_of(pattern))
    ]

    assert words == []
