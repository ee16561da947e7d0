"""docs/extending.md works as written, and `gateway.py new` generates systems that pass all checks.

All run in a copy of the project.
"""

import asyncio
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from datastore.database import Database, StoreOptions
from datastore.dynamodb.codec import encode_item
from datastore.infrastructure.tables import create_table_request
from datastore.keyspace import TABLES_BY_NAME
from datastore.model.access_patterns import Table
from tests.support.command_line import serving_anew
from tests.support.contract import database_of, prepare_all
from tests.support.feed_changes import items_of
from tests.support.project_copies import MAKE, project, run_in
from tests.support.served import SECRET, Served
from tests.support.store_engines import ROOT

__all__ = ["project"]  # a fixture

INSERTION = re.compile(r"In `([^`]+)`, (?:after `([^`]+)`|at the end):\n\n```python\n(.*?)```\n", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```\n", re.DOTALL)


def run_as_written(project: Path, line: str) -> None:
    """Run a command of the tutorial. `make` does not install anything."""
    words = line.split()
    variables = dict(word.split("=", 1) for word in words if word.isupper() or word.startswith("WRITTEN_ITEMS="))
    command = [word for word in words if word not in {f"{name}={value}" for name, value in variables.items()}]
    if command[0] == "make":
        command = [*MAKE, "-o", "tests/clients/node_modules/.ready", *command[1:]]
    run_in(project, *command, **variables)


@pytest.mark.timeout(900)
def test_the_tutorial_works_as_written(project: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    tutorial = page.partition("## A new system\n")[2].partition("\n## ")[0]
    blocks = sorted([*INSERTION.finditer(tutorial), *COMMANDS.finditer(tutorial)], key=lambda block: block.start())
    assert len(blocks) == 7

    for block in blocks:
        if block.re is COMMANDS:
            for line in block[1].splitlines():
                run_as_written(project, line)
        else:
            insert_lines(project / block[1], block[2], block[3])
    run_in(project, sys.executable, "-m", "ruff", "check", ".")
    run_in(project, sys.executable, "-m", "mypy")


def insert_lines(path: Path, anchor: str | None, lines: str) -> None:
    """Insert lines after the line with the anchor, or at the end."""
    text = path.read_text()
    end = len(text) if anchor is None else text.index("\n", text.index(anchor)) + 1
    path.write_text(text[:end] + lines + text[end:])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "options",
    [(), ("--ttl-days", "7", "--version", "--live"), ("--key", "shop", "--sort", "sku", "--version")],
    ids=" ".join,
)
def test_a_generated_system_passes_all_checks(project: Path, options: tuple[str, ...]) -> None:
    run_in(project, sys.executable, "gateway.py", "new", "parking_spaces", *options)

    run_in(project, *MAKE, "conventions", "ARGS=tests/api/parking_spaces")
    run_in(project, sys.executable, "-m", "ruff", "check", ".")


# The tables of the project that have items after `prepare_all`, by the name of the system that reads a copy.
TABLES_OF_SYSTEMS = {
    "old_blips": "blip",
    "old_earthquake_events": "earthquake-events",
    "old_feeds": "feed",
    "old_sparks": "sparks",
}
TABLES_OF_MATCHES = {
    "old_devices": "cricket-devices",
    "old_fixtures": "cricket-fixtures",
    "old_leagues": "cricket-leagues",
    "old_live_activities": "live-activities",
    "old_match_follows": "cricket-match-follows",
    "old_matches": "active-matches",
    "old_teams": "cricket-teams",
}
YEAR = timedelta(days=365).total_seconds()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tables", [TABLES_OF_SYSTEMS, TABLES_OF_MATCHES], ids=["systems", "matches"])
async def test_a_gateway_reads_and_lists_the_items_of_existing_tables(
    served: Served, project: Path, store_options: StoreOptions, tmp_path: Path, tables: dict[str, str]
) -> None:
    await prepare_all(served)
    database = database_of(served)
    for name in tables.values():
        await copy_table(database, TABLES_BY_NAME[name])
    store = ("--store", store_options.store, "--prefix", store_options.prefix)
    await asyncio.to_thread(generate_and_ask, project, tables, store, tmp_path / "data")


async def copy_table(database: Database, table: Table) -> None:
    """Copy a table under another name. Its items expire ten years later: the other gateway has the time of the day."""
    copy = replace(table, name=f"old-{table.name}")
    await database.client.call("CreateTable", create_table_request(copy, database.prefix), timeout=60.0)
    name = database.prefix + copy.name
    if table.ttl:
        expiry = {"AttributeName": table.ttl, "Enabled": True}
        await database.client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": expiry})
    for item in await items_of(database, table):
        later = {table.ttl: item[table.ttl] + 10 * YEAR} if table.ttl in item else {}
        await database.client.call("PutItem", {"TableName": name, "Item": encode_item({**item, **later})})


def generate_and_ask(project: Path, tables: dict[str, str], store: tuple[str, ...], data: Path) -> None:
    """Generate a system for each copied table, run the checks, and ask a gateway for all items."""
    for system, table in tables.items():
        reported = run_in(project, sys.executable, "gateway.py", "new", system, "--from-table", f"old-{table}", *store)
        assert "Only services and admins" in reported
    run_in(project, sys.executable, "-m", "ruff", "check", ".")
    run_in(project, sys.executable, "-m", "mypy")
    tests = " ".join(f"tests/api/{system}" for system in tables)
    run_in(project, *MAKE, "conventions", f"ARGS={tests}")
    with serving_anew(data, *store, "--no-demo", root=project, GATEWAY_SECRET=SECRET) as gateway:
        token = run_in(project, sys.executable, "gateway.py", "token", "--role", "system", GATEWAY_SECRET=SECRET)
        asked = ("tests.support.described_tables", gateway.url, token.split()[-1], store[1], store[3])
        print(run_in(project, sys.executable, "-m", *asked, *tables))
