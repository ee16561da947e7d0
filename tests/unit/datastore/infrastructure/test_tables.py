"""The declaration, creation, description and export of tables."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.infrastructure import tables
from datastore.keyspace import TABLES
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Table
from tests.support.store_engines import new_prefix
from tests.support.tables import ALL, described_shape, ttl


@pytest.fixture
def store_options(engine: str) -> StoreOptions:
    """Return options of a store without tables."""
    return StoreOptions(store=engine, prefix=new_prefix())


@pytest.fixture
async def database(store_options: StoreOptions) -> AsyncIterator[Database]:
    async with open_database(store_options) as database:
        yield database


# --- Creating ---------------------------------------------------------------------------------------------------------


async def test_tables_are_created_once(database: Database) -> None:
    names = [database.prefix + table.name for table in TABLES]

    assert await database.create_tables() == names
    assert await database.create_tables() == []
    assert [table["TableStatus"] for table in await database.describe_tables()] == ["ACTIVE"] * len(TABLES)


async def test_tables_equal_their_declaration(database: Database) -> None:
    await tables.create(database.client, ALL, database.prefix)

    described = await tables.describe(database.client, ALL, database.prefix)

    expected = [
        {"GlobalSecondaryIndexes": [], **definition, "AttributeDefinitions": _sorted(definition)}
        for definition in map(tables.create_table_request, ALL)
    ]
    assert [described_shape(table, database.prefix) for table in described] == expected
    assert [await ttl(database, table) for table in ALL] == [
        {"TimeToLiveStatus": "ENABLED", "AttributeName": table.ttl} if table.ttl else {"TimeToLiveStatus": "DISABLED"}
        for table in ALL
    ]
    assert [("LatestStreamArn" in table) for table in described] == [table.stream is not None for table in ALL]


def _sorted(definition: dict[str, Any]) -> list[dict[str, str]]:
    return sorted(definition["AttributeDefinitions"], key=str)


async def test_commands_that_start_together_create_each_table_once(
    database: Database, store_options: StoreOptions
) -> None:
    async with open_database(store_options) as other:
        created = await asyncio.gather(*[one.create_tables() for one in (database, other, database, other)])

    assert sorted(name for names in created for name in names) == sorted(
        database.prefix + table.name for table in TABLES
    )
    for table in TABLES:
        assert (await ttl(database, table))["TimeToLiveStatus"] == ("ENABLED" if table.ttl else "DISABLED")


async def test_ttl_is_enabled_if_another_command_ended_before_it_did(database: Database) -> None:
    await database.client.call("CreateTable", tables.create_table_request(BLIP, database.prefix))
    assert (await ttl(database, BLIP))["TimeToLiveStatus"] == "DISABLED"

    assert await database.create_tables() == [database.prefix + table.name for table in TABLES if table is not BLIP]

    assert await ttl(database, BLIP) == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}


class Stale(Client):
    """A client that first reads an outdated TTL status, and whose update AWS then refuses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._describes = 0

    async def call(self, operation: str, request: Any, /, **options: Any) -> dict[str, Any]:
        if operation == "UpdateTimeToLive":
            raise RequestRefused("ValidationException", "TimeToLive is already enabled")
        self._describes += operation == "DescribeTimeToLive"
        if operation == "DescribeTimeToLive" and self._describes == 1:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return await self._client.call(operation, request, **options)


async def test_enabling_ttl_at_the_same_time_as_another_command_is_no_error(database: Database) -> None:
    await tables.create(database.client, [BLIP], database.prefix)

    assert await tables.create(Stale(database.client), [BLIP], database.prefix) == []

    assert (await ttl(database, BLIP))["TimeToLiveStatus"] == "ENABLED"


async def test_a_failure_to_enable_ttl_is_an_error(database: Database) -> None:
    await database.client.call("CreateTable", tables.create_table_request(BLIP, database.prefix))

    with pytest.raises(RequestRefused, match="already enabled"):
        await tables.create(Stale(database.client), [BLIP], database.prefix)


async def test_another_prefix_is_another_set_of_tables(database: Database, store_options: StoreOptions) -> None:
    await database.create_tables()
    prefix = f"{store_options.prefix}dev_"
    async with open_database(StoreOptions(store=store_options.store, prefix=prefix)) as other:
        missing = [{"TableName": prefix + table.name, "TableStatus": "MISSING"} for table in TABLES]
        assert await other.describe_tables() == missing

        assert await other.create_tables() == [prefix + table.name for table in TABLES]
        assert {table["TableStatus"] for table in await other.describe_tables()} == {"ACTIVE"}


async def test_a_missing_table_is_reported_beside_an_existing_one(database: Database) -> None:
    await tables.create(database.client, [BLIP], database.prefix)

    existing, *missing = await database.describe_tables()

    assert (existing["TableName"], existing["TableStatus"]) == (f"{database.prefix}blip", "ACTIVE")
    assert missing == [
        {"TableName": database.prefix + table.name, "TableStatus": "MISSING"} for table in TABLES if table is not BLIP
    ]


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=[table.name for table in TABLES])
def test_no_index_includes_more_attributes_than_dynamodb_accepts(table: Table) -> None:
    """The limits are 20 in an index and 100 in all of a table's indexes. The local engine has none."""
    included = [index.projection for index in table.indexes if isinstance(index.projection, tuple)]

    assert all(1 <= len(names) <= 20 for names in included)
    assert sum(map(len, included)) <= 100


@pytest.mark.parametrize("table", ALL, ids=[table.name for table in ALL])
def test_exactly_the_attributes_of_keys_are_defined(table: Table) -> None:
    definition = tables.create_table_request(table)
    schemas = [definition["KeySchema"], *[one["KeySchema"] for one in definition.get("GlobalSecondaryIndexes", ())]]

    defined = [one["AttributeName"] for one in definition["AttributeDefinitions"]]

    assert len(defined) == len(set(defined))
    assert set(defined) == {key["AttributeName"] for schema in schemas for key in schema}
