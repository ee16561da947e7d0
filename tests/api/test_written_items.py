"""The items that every mutation writes are those in `tests/support/written_items.json`, byte for byte.

A change of a stored item needs a migration of the items that are stored already. If a change is intended, run the tests
with `WRITTEN_ITEMS=record` and review the difference.
"""

import json
import os
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from datastore.keyspace import TABLES
from datastore.keyspace.gateway import GATEWAY
from datastore.model.access_patterns import Table
from datastore.primitives.lru_cache import LruCache
from datastore.session.optimistic_locking import PUT_VERSIONS
from tests.support.contract import PAGES, database_of, every_page_with_mutations, feed, send
from tests.support.contract.pages import Page
from tests.support.served import Served
from tests.support.store_engines import ROOT

__all__ = ["feed"]

RECORD = "WRITTEN_ITEMS=record make test ARGS=tests/api/test_written_items.py"
RECORDED = ROOT / "tests" / "support" / "written_items.json"
# By table and key: the item as DynamoDB returns it, or None if it was deleted.
Items = dict[str, dict[str, Any]]


async def stored_items(served: Served) -> Items:
    """Return all items except idempotency records and request logs, whose attributes depend on the machine."""
    return {table.name: await _items_of(served, table) for table in TABLES if table is not GATEWAY}


async def _items_of(served: Served, table: Table) -> dict[str, Any]:
    database = database_of(served)
    answer = await database.client.call(
        "Scan", {"TableName": database.prefix + table.name, "ConsistentRead": True, "ReturnConsumedCapacity": "NONE"}
    )
    assert "LastEvaluatedKey" not in answer
    return {
        " / ".join(item[name]["S"] for name in table.key_attributes()): {
            name: {kind: sorted(value) if kind == "SS" else value}
            for name, of in item.items()
            for kind, value in of.items()
        }
        for item in answer["Items"]
        if item.get("entity") != {"S": "LOG"}
    }


def written_between(before: Items, after: Items) -> Items:
    """Return the items that were written between two states of the tables."""
    tables = {
        name: {
            key: items.get(key)
            for key in sorted(before.get(name, {}).keys() | items.keys())
            if before.get(name, {}).get(key) != items.get(key)
        }
        for name, items in after.items()
    }
    return {name: items for name, items in tables.items() if items}


@every_page_with_mutations
async def test_a_mutation_writes_the_recorded_items(
    served: Served, feed: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(1 + 1000 * PAGES.index(page))  # the engine remembers the tokens of transactions
    object.__setattr__(served.gateway.services, "new_id", lambda: str(UUID(int=next(numbers))))
    monkeypatch.setattr(PUT_VERSIONS, "_last", LruCache(100))
    written: dict[str, Items] = {}
    before = await stored_items(served)
    prepared = await page.prepare(served) | {"feed": feed}
    written["setup"] = written_between(before, before := await stored_items(served))
    for field in page.mutations:
        if field.is_prepared_again:
            await page.prepare(served)
        answer = await send(served, field, prepared)
        assert answer.errors is None, (field.name, answer.errors)
        after = await stored_items(served)
        written[field.name] = written_between(before, after)
        before = after

    # The port of the feed differs from run to run.
    written = json.loads(json.dumps(written).replace(feed.removesuffix("/feed.geojson"), "http://feed"))
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("WRITTEN_ITEMS") == "record":
        RECORDED.write_text(json.dumps({**recorded, page.name: written}, indent=1, sort_keys=True) + "\n")
    else:
        known = recorded.get(page.name, {})
        unrecorded = [name for name in written if name not in known]
        assert unrecorded == [], f"Run `{RECORD}`, and review {RECORDED.relative_to(ROOT)}."
        assert {name: items for name, items in written.items() if items != known[name]} == {}
        assert written.keys() == known.keys()
