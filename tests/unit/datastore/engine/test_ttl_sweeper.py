"""The TTL sweeper deletes all expired items and no others."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastore.database import Database
from datastore.dynamodb.codec import decode_item, encode_item
from datastore.engine.ttl_sweeper import sweep, sweep_forever
from datastore.keyspace import TABLES
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Table
from tests.support.fault_proxy import Proxy, Seen, client_of, forward, refuse
from tests.support.until import until

NOW = datetime(2026, 6, 25, 12, 0, tzinfo=UTC)
AT = int(NOW.timestamp())


def name_attribute(table: Table) -> str:
    """Return the attribute that distinguishes the items of a test."""
    return table.sort or table.partition


async def put_expiring_item(database: Database, table: Table, name: str, expires: Any = None, **more: Any) -> None:
    attribute = {} if expires is None else {str(table.ttl): expires}
    item = encode_item({table.partition: "P", name_attribute(table): name, **attribute, **more})
    await database.client.call("PutItem", {"TableName": database.prefix + table.name, "Item": item})


async def remaining_names(database: Database, table: Table) -> list[str]:
    scan: dict[str, Any] = {"TableName": database.prefix + table.name}
    found: list[str] = []
    while True:
        answer = await database.client.call("Scan", scan)
        found += [decode_item(item)[name_attribute(table)] for item in answer["Items"]]
        if not answer.get("LastEvaluatedKey"):
            return sorted(found)
        scan["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def test_expired_items_are_deleted_from_every_table(database: Database) -> None:
    expiring = [table for table in TABLES if table.ttl]
    lasting = [table for table in TABLES if not table.ttl]
    for table in expiring:
        await put_expiring_item(database, table, "long ago", 1)
        await put_expiring_item(database, table, "a second ago", AT - 1)
        await put_expiring_item(database, table, "just now", AT)
        await put_expiring_item(database, table, "half a second to go", AT + 0.5)
        await put_expiring_item(database, table, "a second to go", AT + 1)
        await put_expiring_item(database, table, "never")
        await put_expiring_item(database, table, "not a number", str(AT - 1))
        await put_expiring_item(database, table, "a list", [AT - 1])
    for table in lasting:
        await put_expiring_item(database, table, "long ago", None, ttl=1, expiresAt=1)

    assert await sweep(database.client, TABLES, database.prefix, NOW) == 3 * len(expiring)

    left = ["a list", "a second to go", "half a second to go", "never", "not a number"]
    assert [await remaining_names(database, table) for table in expiring] == [left] * len(expiring)
    assert [await remaining_names(database, table) for table in lasting] == [["long ago"]] * len(lasting)
    assert await sweep(database.client, TABLES, database.prefix, NOW) == 0


@settings(deadline=None, max_examples=20, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.dictionaries(st.integers(0, 99), st.none() | st.integers(-3, 3), max_size=40))
async def test_exactly_the_expired_items_are_deleted(database: Database, lives: Mapping[int, int | None]) -> None:
    for number, life in lives.items():
        await put_expiring_item(database, BLIP, f"{number:02}", None if life is None else AT + life)
    expired = [f"{number:02}" for number, life in lives.items() if life is not None and life <= 0]

    deleted = await sweep(database.client, [BLIP], database.prefix, NOW)

    assert deleted == len(expired)
    left = await remaining_names(database, BLIP)
    assert left == sorted({f"{number:02}" for number in lives} - {*expired})
    assert await sweep(database.client, [BLIP], database.prefix, NOW + timedelta(days=1)) <= len(left)
    await _clear(database, await remaining_names(database, BLIP))


async def _clear(database: Database, left: list[str]) -> None:
    name = f"{database.prefix}blip"
    for sort in left:
        await database.client.call("DeleteItem", {"TableName": name, "Key": encode_item({"PK": "P", "SK": sort})})


async def test_a_table_of_many_pages_is_swept_to_its_end(engine: str, database: Database) -> None:
    for number in range(12):
        expires = AT - 1 if number % 3 else AT + 60
        await put_expiring_item(database, BLIP, f"{number:02}", expires, text="x" * 300_000)
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        assert await sweep(client, [BLIP], database.prefix, NOW) == 8

    assert proxy.operations().count("Scan") > 2
    assert await remaining_names(database, BLIP) == ["00", "03", "06", "09"]


async def test_pages_of_one_item_each_are_swept_to_their_end(engine: str, database: Database) -> None:
    async def one_at_a_time(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await forward(proxy, Seen(seen.operation, _limited(seen), seen.request))

    for number in range(9):
        await put_expiring_item(database, BLIP, str(number), AT - number % 2)
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        proxy.always = one_at_a_time

        assert await sweep(client, [BLIP], database.prefix, NOW) == 9

    assert proxy.operations().count("Scan") >= 9
    assert await remaining_names(database, BLIP) == []


def _limited(seen: Seen) -> dict[str, Any]:
    return seen.body | {"Limit": 1} if seen.operation == "Scan" else seen.body


async def test_an_item_prolonged_between_scan_and_deletion_stays(engine: str, database: Database) -> None:
    async def prolong_first(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "DeleteItem" and seen.body["Key"]["SK"]["S"] == "prolonged":
            await put_expiring_item(database, BLIP, "prolonged", AT + 60)
        return await forward(proxy, seen)

    await put_expiring_item(database, BLIP, "prolonged", AT - 1)
    await put_expiring_item(database, BLIP, "expired", AT - 1)
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        proxy.always = prolong_first

        assert await sweep(client, [BLIP], database.prefix, NOW) == 1

    assert sorted(proxy.operations()) == ["DeleteItem", "DeleteItem", "Scan"]
    assert await remaining_names(database, BLIP) == ["prolonged"]


async def test_items_deleted_by_others_are_not_counted(engine: str, database: Database) -> None:
    async def delete_first(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "DeleteItem":
            await _clear(database, ["gone"])
        return await forward(proxy, seen)

    await put_expiring_item(database, BLIP, "gone", AT - 1)
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        proxy.always = delete_first

        assert await sweep(client, [BLIP], database.prefix, NOW) == 0


async def test_a_table_without_ttl_is_left_alone(engine: str, database: Database) -> None:
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        assert await sweep(client, [Table("blip", "PK", "SK")], database.prefix, NOW) == 0

    assert proxy.seen == []


async def test_the_sweep_continues_after_failures_with_the_current_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, engine: str, database: Database
) -> None:
    monkeypatch.setattr("datastore.engine.ttl_sweeper.SWEEP_SECONDS", 0.01)
    caplog.set_level(logging.WARNING, "datastore.engine.ttl_sweeper")
    clock = [NOW - timedelta(seconds=10)]
    await put_expiring_item(database, BLIP, "expires", AT)
    async with Proxy(engine) as proxy, client_of(proxy) as client:
        proxy.faults.append(refuse(400, "AccessDeniedException"))
        proxy.faults.extend([refuse(503, "ServiceUnavailable")] * 4)
        sweeping = asyncio.create_task(sweep_forever(client, [BLIP], database.prefix, lambda: clock[0]))
        await until(lambda: len(proxy.seen) > 7)
        assert await remaining_names(database, BLIP) == ["expires"]
        clock[0] = NOW
        async with asyncio.timeout(50):
            while await remaining_names(database, BLIP):  # noqa: ASYNC110 - the store has no event to await
                await asyncio.sleep(0.01)
        sweeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sweeping

    assert "DeleteItem" in proxy.operations()
    logged = [record for record in caplog.records if record.name == "datastore.engine.ttl_sweeper"]
    assert [record.getMessage().split(":")[0] for record in logged] == [
        "Expired items could not be deleted; the next sweep tries again"
    ] * 2
