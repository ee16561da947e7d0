"""Existing tables: compared with their declaration, changed without loss of data, and protected in AWS."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import RequestRefused
from datastore.infrastructure import table_updates, tables
from datastore.keyspace import TABLES
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Index, Table
from tests.support.aws_tables import Aws, be_aws
from tests.support.command_line import run_here
from tests.support.fault_proxy import Fault, Proxy, Seen, forward, refuse
from tests.support.store_engines import new_prefix

BY_COLOUR = Index("ByColour", "colour", "weight", "N", projection=("name", "price"))
BY_WEIGHT = Index("ByWeight", "pk", "weight", "N", projection="KEYS_ONLY")
RICH = Table("rich", "pk", "sk", indexes=(BY_COLOUR, BY_WEIGHT), ttl="until", stream="NEW_AND_OLD_IMAGES")
KEYS: Any = "KEYS_ONLY"  # a stream that no declaration has
POOR = replace(RICH, indexes=(), ttl=None, stream=None)


@pytest.fixture
async def database(engine: str) -> AsyncIterator[Database]:
    """Yield a store without tables."""
    async with open_database(StoreOptions(store=engine, prefix=new_prefix())) as database:
        yield database


async def make(database: Database, table: Table, **otherwise: Any) -> None:
    await database.client.call("CreateTable", tables.create_table_request(table, database.prefix) | otherwise)
    if table.ttl:
        await tables.create(database.client, [table], database.prefix)


async def update_texts(database: Database, table: Table = RICH) -> list[str]:
    found = await table_updates.compare(database.client, [table], database.prefix, in_aws=database.in_aws)
    assert {update.table for update in found} <= {database.prefix + table.name}
    return [update.text for update in found]


# --- Comparing --------------------------------------------------------------------------------------------------------


async def test_created_tables_equal_their_declaration(database: Database) -> None:
    await tables.create(database.client, [RICH, *TABLES], database.prefix)
    assert await update_texts(database) == []
    assert await database.compare_tables() == []


async def test_a_missing_table_is_not_compared(database: Database) -> None:
    assert await update_texts(database) == []


@pytest.mark.parametrize(
    ("existing", "difference"),
    [
        (replace(RICH, sort=None), "its key is pk (S, partition), and pk (S, partition), sk (S, sort) is declared"),
        (replace(RICH, indexes=(BY_WEIGHT,)), "the index ByColour is missing"),
        (
            replace(RICH, indexes=(replace(BY_COLOUR, sort="age"), BY_WEIGHT)),
            "the key of the index ByColour is colour (S, partition), age (N, sort), "
            "and colour (S, partition), weight (N, sort) is declared",
        ),
        (
            replace(RICH, indexes=tuple(replace(one, sort_type="S") for one in RICH.indexes)),
            "the key of the index ByWeight is pk (S, partition), weight (S, sort), "
            "and pk (S, partition), weight (N, sort) is declared",
        ),
        (
            replace(RICH, indexes=(replace(BY_COLOUR, projection=("name",)), BY_WEIGHT)),
            "the index ByColour projects INCLUDE name, and INCLUDE name, price is declared",
        ),
        (
            replace(RICH, indexes=(BY_COLOUR, replace(BY_WEIGHT, projection="ALL"))),
            "the index ByWeight projects ALL, and KEYS_ONLY is declared",
        ),
        (replace(RICH, stream=None), "its stream is off"),
        (replace(RICH, stream=KEYS), "its stream has KEYS_ONLY, and NEW_AND_OLD_IMAGES is declared"),
        (replace(RICH, ttl=None), "its items do not expire"),
        (replace(RICH, ttl="end"), "its items expire by end, and by until is declared"),
    ],
    ids=[
        "key",
        "index",
        "key of an index",
        "type of a key",
        "attributes",
        "projection",
        "stream",
        "images",
        "expiry",
        "other expiry",
    ],
)
async def test_differences_are_reported(database: Database, existing: Table, difference: str) -> None:
    await make(database, existing)
    assert difference in await update_texts(database)


async def test_an_undeclared_ttl_is_reported(database: Database) -> None:
    await make(database, RICH)
    assert await update_texts(database, replace(RICH, ttl=None)) == [
        "its items expire by until, and that they do not is declared"
    ]


async def test_provisioned_capacity_is_reported(database: Database) -> None:
    units = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    await make(database, POOR, BillingMode="PROVISIONED", ProvisionedThroughput=units)
    assert await update_texts(database, POOR) == ["its capacity is provisioned, and on demand is declared"]


async def test_additions_of_other_programs_are_kept(database: Database) -> None:
    await make(database, replace(RICH, ttl=None))
    assert await update_texts(database, POOR) == []


# --- Changing ---------------------------------------------------------------------------------------------------------


async def test_missing_parts_are_added_and_filled(database: Database) -> None:
    client, name = database.client, database.prefix + RICH.name
    await make(database, POOR)
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}, "colour": {"S": "red"}, "weight": {"N": "3"}, "until": {"N": "9"}}
    await database.client.call("PutItem", {"TableName": name, "Item": item})
    changed: list[str] = []

    left = await table_updates.update(
        client, [RICH], database.prefix, in_aws=False, on_change=lambda found: changed.append(str(found))
    )

    assert (left, await update_texts(database)) == ([], [])
    assert changed == [
        f"{name}: the index ByColour is missing",
        f"{name}: the index ByWeight is missing",
        f"{name}: its stream is off",
        f"{name}: its items do not expire",
    ]
    query = {
        "TableName": name,
        "IndexName": "ByColour",
        "KeyConditionExpression": "colour = :red",
        "ExpressionAttributeValues": {":red": {"S": "red"}},
    }
    assert (await database.client.call("Query", query))["Count"] == 1


async def test_commands_that_change_a_table_at_the_same_time_do_not_hinder_each_other(database: Database) -> None:
    await make(database, POOR)
    updates = [table_updates.update(database.client, [RICH], database.prefix, in_aws=False) for _ in range(4)]
    assert await asyncio.gather(*updates) == [[]] * 4
    assert await update_texts(database) == []


async def test_a_change_that_the_store_refuses_is_an_error(database: Database, proxy: Proxy) -> None:
    await make(database, replace(POOR, stream=RICH.stream))
    proxy.always = deny_operation("UpdateTable")
    async with open_database(StoreOptions(proxy.url, prefix=database.prefix)) as other:
        with pytest.raises(RequestRefused, match="AccessDeniedException"):
            await table_updates.update(other.client, [RICH], other.prefix, in_aws=False)
    assert "the index ByColour is missing" in await update_texts(database)


def deny_operation(operation: str) -> Fault:
    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        fault = refuse(400, "AccessDeniedException") if seen.operation == operation else forward
        return await fault(proxy, seen)

    return answer


async def test_a_change_with_a_loss_is_not_made(database: Database) -> None:
    existing = replace(RICH, indexes=(replace(BY_COLOUR, projection="ALL"),), stream=KEYS, ttl="end")
    await make(database, existing)
    left = await table_updates.update(database.client, [RICH], database.prefix, in_aws=False)
    assert [one.text for one in left] == [
        "the index ByColour projects ALL, and INCLUDE name, price is declared",
        "its stream has KEYS_ONLY, and NEW_AND_OLD_IMAGES is declared",
        "its items expire by end, and by until is declared",
    ]


@pytest.fixture
async def aws(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    """Yield a store in AWS without tables, which is the engine behind the proxy."""
    be_aws(proxy, monkeypatch)
    async with open_database(StoreOptions("aws", prefix=new_prefix(), region="eu-west-1")) as database:
        yield database


async def test_tables_in_aws_are_created_with_recovery_and_protection(aws: Database, proxy: Proxy) -> None:
    assert len(await aws.create_tables()) == len(TABLES)
    assert await aws.compare_tables() == []
    made = [seen.body for seen in proxy.seen if seen.operation == "CreateTable"]
    assert [one["DeletionProtectionEnabled"] for one in made] == [True] * len(TABLES)
    assert isinstance(proxy.always, Aws)
    assert proxy.always.recoverable == {aws.prefix + table.name: True for table in TABLES}
    asked = len(proxy.seen)

    assert await aws.create_tables() == []
    assert {seen.operation for seen in proxy.seen[asked:]} == {"CreateTable", "DescribeTable"}


@pytest.mark.proof
async def test_existing_tables_in_aws_are_compared_and_changed_on_request(aws: Database) -> None:
    await aws.client.call("CreateTable", tables.create_table_request(replace(BLIP, ttl=None), aws.prefix))
    await aws.create_tables()
    name = aws.prefix + BLIP.name
    missing = [
        f"{name}: its items do not expire",
        f"{name}: it is not protected from deletion",
        f"{name}: its point-in-time recovery is off",
    ]
    assert [str(found) for found in await aws.compare_tables()] == missing

    changed: list[str] = []
    assert await aws.update_tables(lambda found: changed.append(str(found))) == []
    assert (changed, await aws.compare_tables()) == (missing, [])


async def test_each_index_is_added_after_the_previous_one_is_filled(aws: Database, proxy: Proxy) -> None:
    await make(aws, POOR)
    assert await table_updates.update(aws.client, [RICH], aws.prefix, in_aws=True) == []
    # No update was refused because another was running.
    updates = [
        next(iter(seen.body.keys() - {"TableName", "AttributeDefinitions"}))
        for seen in proxy.seen
        if seen.operation == "UpdateTable"
    ]
    assert updates == [
        "GlobalSecondaryIndexUpdates",
        "GlobalSecondaryIndexUpdates",
        "StreamSpecification",
        "DeletionProtectionEnabled",
    ]


async def test_a_change_waits_for_a_change_of_another_command(aws: Database, proxy: Proxy) -> None:
    await make(aws, RICH, DeletionProtectionEnabled=False)
    as_aws, refusals = Aws(), [refuse(400, "ResourceInUseException"), refuse(400, "LimitExceededException")]

    async def busy(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        fault = refusals.pop() if seen.operation == "UpdateTable" and refusals else as_aws
        return await fault(proxy, seen)

    proxy.always = busy
    assert await table_updates.update(aws.client, [RICH], aws.prefix, in_aws=True) == []
    assert proxy.operations().count("UpdateTable") == 3


async def test_an_index_that_is_being_filled_is_reported(aws: Database, proxy: Proxy) -> None:
    await make(aws, replace(RICH, ttl=None))
    assert isinstance(proxy.always, Aws)
    proxy.always.filling = 1
    assert "the index ByWeight is CREATING" in await update_texts(aws)


@pytest.mark.proof
async def test_backups_are_not_requested_again_of_a_store_without_them(aws: Database, proxy: Proxy) -> None:
    proxy.always = None
    await aws.create_tables()
    assert await aws.compare_tables() == []
    assert "UpdateContinuousBackups" not in proxy.operations()


async def test_backups_are_not_requested_of_other_stores_than_aws(proxy: Proxy) -> None:
    async with open_database(StoreOptions(proxy.url, prefix=new_prefix())) as database:
        await database.create_tables()
        assert await database.compare_tables() == []
    assert not any(operation.endswith("ContinuousBackups") for operation in proxy.operations())
    assert not any("DeletionProtectionEnabled" in seen.body for seen in proxy.seen)


async def test_tables_of_an_older_embedded_store_are_updated_to_the_declaration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = replace(BLIP, indexes=(), stream=KEYS)
    async with open_database(StoreOptions(data_dir=tmp_path)) as database:
        await make(database, earlier)
    async with open_database(StoreOptions(data_dir=tmp_path)) as database:
        await database.create_tables()
        assert [found.text for found in await database.compare_tables()] == [
            "its stream has KEYS_ONLY, and NEW_AND_OLD_IMAGES is declared"
        ]
    assert "The table blip: its stream has KEYS_ONLY" in caplog.text


# --- The command ------------------------------------------------------------------------------------------------------


async def create_by_command(database: Database, engine: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        run_here, "tables", "create", "--store", engine, "--prefix", database.prefix, *arguments
    )


@pytest.mark.proof
async def test_the_command_reports_differences_and_has_an_exit_status_for_them(database: Database, engine: str) -> None:
    await make(database, replace(BLIP, indexes=()))
    name = f"{database.prefix}blip"

    done = await create_by_command(database, engine)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [f"{name}: the index {one.name} is missing" for one in BLIP.indexes]
    assert done.stderr == (
        "Error: 1 of the tables differs from the declaration: `tables create --update` adds what is missing.\n"
    )

    done = await create_by_command(database, engine, "--update")
    assert (done.returncode, done.stderr) == (0, "")
    changed = [f"Changing {name}: the index {one.name} is missing" for one in BLIP.indexes]
    assert done.stdout.splitlines() == ["All tables exist.", *changed]
    assert (await create_by_command(database, engine)).stdout == "All tables exist.\n"


async def test_the_command_reports_changes_that_it_cannot_make(database: Database, engine: str) -> None:
    await make(database, replace(BLIP, stream=KEYS))
    for arguments in ((), ("--update",)):
        done = await create_by_command(database, engine, *arguments)
        assert done.returncode == 1
        assert "1 of the tables differs from the declaration, and no command changes that" in done.stderr
