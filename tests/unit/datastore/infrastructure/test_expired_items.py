"""Each list of a table whose items expire has its line in the docs: what it reads of those that are not deleted yet."""

import re

from datastore.keyspace import PATTERNS
from tests.support.store_engines import ROOT

LISTS = {"Query", "Scan"}


def documented_patterns() -> set[str]:
    """The patterns in the table of the docs."""
    text = (ROOT / "docs" / "datastore.md").read_text()
    section = text.partition("## Expired items\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", section, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


def test_every_list_of_a_table_with_a_ttl_is_accounted_for() -> None:
    lists = {pattern.id for pattern in PATTERNS if pattern.table.ttl and LISTS & {*pattern.operations}}

    assert documented_patterns() == lists
