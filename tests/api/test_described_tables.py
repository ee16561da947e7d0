"""Tables of the gateway, described as if unknown: the code that is generated for them reads the items of the sample."""

import sys
from types import ModuleType
from typing import Any

import pytest

from datastore import keyspace
from datastore.keyspace import TABLES_BY_NAME
from datastore.model.access_patterns import Table
from datastore.model.composite_keys import key_of, split
from datastore.session.pagination import Span
from runtime.cli.new import read_design
from runtime.scaffold.design import CannotGenerate, ItemList, capital
from runtime.scaffold.generate import TEMPLATES, filled
from runtime.scaffold.names import names_of
from tests.support.contract import database_of, feeds, matches, photos, sightings
from tests.support.contract.pages import Page
from tests.support.feed_changes import items_of
from tests.support.served import NOON, Served


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Return the modules of a system, which can import one another: the keys, and the items."""
    keys, records = ModuleType("datastore.keyspace.things"), ModuleType("described_things")
    for module in (keys, records):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(keyspace, "things", keys, raising=False)
    return keys, records


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("blip", sightings.PAGE),
        ("feed", feeds.PAGE),
        ("sparks", photos.PAGE),
        ("cricket-leagues", matches.PAGE),
        ("cricket-match-follows", matches.PAGE),
    ],
)
async def test_generated_code_reads_the_items_of_the_table(
    served: Served, modules: tuple[ModuleType, ModuleType], name: str, page: Page
) -> None:
    await page.prepare(served)
    table = TABLES_BY_NAME[name]
    system, _ = await read_design(database_of(served), "things", name)
    for module, template in zip(modules, ("keyspace.py.txt", "datastore.py.txt"), strict=True):
        exec(filled((TEMPLATES / template).read_text(), names_of(system)), module.__dict__)
    keys, records = modules
    assert declared_form(keys.THINGS) == declared_form(table)
    stored = await items_of(database_of(served), table)
    things = records.Things(served.store(), NOON)

    read = 0
    for kind in system.kinds:
        form = getattr(keys, kind.name)
        for item in [item for item in stored if form.is_form_of(key_of(table, item))]:
            decoder = getattr(records, capital(kind.name)).decoder
            record = decoder(item)
            parts = [getattr(record, parameter) for parameter in form.parameters]
            assert await getattr(things, kind.name)(*parts) == record
            for listed in [each for each in kind.lists if each.attribute in item]:
                found = await getattr(things, listed.name)(*partition_of(listed, item), Span(100))
                assert record in map(decoder, found.items)
            read += 1
    assert read == len(stored) > 0


def declared_form(table: Table) -> tuple[Any, ...]:
    """Return the parts of a declaration that the description of the table contains."""
    indexes = {index.name: (index.partition, index.sort, index.sort_type, index.projection) for index in table.indexes}
    return table.name, table.partition, table.sort, indexes, table.ttl, table.stream


def partition_of(listed: ItemList, item: dict[str, Any]) -> list[str]:
    """Return the values of the parts of a partition key that differ from item to item."""
    parts = zip(split(item[listed.attribute]), listed.partition, strict=True)
    return [value for value, part in parts if not isinstance(part, str)]


async def test_a_missing_table_is_refused(served: Served) -> None:
    with pytest.raises(CannotGenerate, match="has no table"):
        await read_design(database_of(served), "things", "none")
