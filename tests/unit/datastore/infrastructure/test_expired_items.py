"""The documentation says for each list of a table with a TTL how it treats expired items that are not deleted yet."""

import re

from datastore.keyspace import PATTERNS
from tests.support.store_engines import ROOT

LISTS = {"Query", "Scan"}


def documented_patterns() -> set[str]:
    """Return the ids of the patterns in the documentation's table."""
    text = (ROOT / "docs" / "datastore.md").read_text()
    section = text.partition("## Expired items\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", section, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


def test_every_list_of_a_table_with_a_ttl_is_documented() -> None:
    lists = {pattern.id for pattern in PATTERNS if pattern.table.ttl and LISTS & {*pattern.operations}}

    assert documented_patterns() == lists
