"""The documentation says for each list of a table with a TTL how it treats expired items that are not deleted yet."""

import re

from datastore import stored_items
from datastore.keyspace import PATTERNS
from tests.support.store_engines import ROOT

LISTS = {"Query", "Scan"}
# A job deletes the reservations of photos, with their files. The next owner replaces an expired lock.
WITHOUT_TTL = {"sparks", "cricket-locks"}


def documented_patterns() -> set[str]:
    """Return the ids of the patterns in the documentation's table."""
    text = (ROOT / "docs" / "datastore.md").read_text()
    section = text.partition("## Expired items\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", section, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


def test_every_list_of_a_table_with_a_ttl_is_documented() -> None:
    lists = {pattern.id for pattern in PATTERNS if pattern.table.ttl and LISTS & {*pattern.operations}}

    assert documented_patterns() == lists, "Add or remove a row under Expired items in docs/datastore.md."


def test_the_time_at_which_an_item_expires_is_the_ttl_of_its_table() -> None:
    """Otherwise neither DynamoDB deletes expired items, nor do reads leave them out."""
    wrong = []
    for kind in stored_items.item_classes():
        table, attribute = kind.__declaration__.key.table, kind.__declaration__.attributes.get("expires_at")
        if attribute is not None and attribute.written_as != table.ttl and table.name not in WITHOUT_TTL:
            wrong.append(f"Declare Table(name={table.name!r}, ttl={attribute.written_as!r}) in datastore/keyspace/.")

    assert not wrong
