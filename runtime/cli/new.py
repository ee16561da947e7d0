"""The command `new`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import decode_item
from datastore.infrastructure.tables import describe_table, describe_ttl
from runtime.cli.options import takes_store
from runtime.console import mistake, run
from runtime.scaffold.design import CannotGenerate, SystemDesign
from runtime.scaffold.from_options import check_name, design_from_options
from runtime.scaffold.from_table import SAMPLE, design_from_table
from runtime.scaffold.generate import generate, restored_after_error

ROOT = Path(__file__).parents[2]
SCHEMA = "schema/api.graphql"
# The modules that write the generated pages of a folder: its index, and a page for each system.
WRITERS = {"docs/access-patterns": "datastore.keyspace", "docs/stored-items": "datastore.stored_items"}
# The time after their creation at which items expire with `--ttl` alone.
LIFETIME_DAYS = 30
NEXT = """Next:{record}
  make conventions                  # what holds for all declarations
  make test ARGS=tests/api/{name}   # its own tests
docs/extending.md says how to change it."""
RECORD = """
  WRITTEN_ITEMS=record make test ARGS=tests/api/test_written_items.py   # records the items that its mutations write"""

REPORT = """The sample does not show:
  {unknown}
Only services and admins may read these items. To let others read them, state `who` in datastore/keyspace/{name}.py,
and the owner in resolvers/{name}.py.
"""


@takes_store
def new_system(
    name: Annotated[str, typer.Argument(help="The name of the system, a plural such as shopping_lists.")],
    key: Annotated[
        str, typer.Option(help="The attribute of the partition key: user, the owner of the items, or another name.")
    ] = "user",
    sort: Annotated[
        str, typer.Option(help="The attribute of the sort key: time, for lists with the newest first, or another name.")
    ] = "time",
    ttl: Annotated[
        bool, typer.Option("--ttl", help=f"Items expire {LIFETIME_DAYS} days after their creation.")
    ] = False,
    ttl_days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Items expire this number of days after their creation.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Updates may name the expected version.")] = False,
    live: Annotated[bool, typer.Option("--live", help="A subscription follows the items of a user.")] = False,
    from_table: Annotated[
        str | None, typer.Option(help="Read the items of this table of the store. No other option describes it.")
    ] = None,
    *,
    store: StoreOptions,
) -> None:
    """Generate a system: a table, its items, types with an id, lists, mutations, tests, examples and docs.

    The items have one text. Change it and its descriptions to what your system needs. With --from-table the items are
    those of an existing table, which are read and listed, without mutations.
    """
    if not (ROOT / "tests").is_dir():
        raise mistake(
            "An installed gateway has no tests and docs to extend: run `python gateway.py new` in a clone of it."
        )
    try:
        unknown: list[str] = []
        check_name(name)
        lifetime_days = LIFETIME_DAYS if ttl and ttl_days is None else ttl_days
        if from_table is not None and (key, sort, lifetime_days, version, live) != ("user", "time", None, False, False):
            raise CannotGenerate("--from-table describes the items: omit the options that describe new ones.")
        if from_table is None:
            system = design_from_options(name, key, sort, lifetime_days=lifetime_days, version=version, live=live)
        else:
            system, unknown = run(lambda: _described(store, name, from_table))
        texts = generate(ROOT, system)
    except CannotGenerate as refusal:
        raise mistake(refusal) from None
    pages = [SCHEMA, *(f"{folder}/{page}.md" for folder in WRITERS for page in ("README", name))]
    with restored_after_error(ROOT, [*texts, *pages]):
        _write(texts)
        (ROOT / SCHEMA).write_text(_python("gateway.py", "schema"))
        for writer in WRITERS.values():
            _python("-m", writer)
    for path in [*texts, *pages]:
        typer.echo(path)
    if from_table is not None:
        typer.echo(REPORT.format(name=name, unknown="\n  ".join(unknown) or "nothing"))
    typer.echo(NEXT.format(name=name, record=RECORD if system.writes else ""))


async def _described(store: StoreOptions, name: str, table: str) -> tuple[SystemDesign, list[str]]:
    async with open_database(store) as database:
        return await read_design(database, name, table)


async def read_design(database: Database, name: str, table: str) -> tuple[SystemDesign, list[str]]:
    """Return the design of a system for a table of the store, and what its sample does not show.

    `table` is its name without the store's prefix. Raises `CannotGenerate`.
    """
    client, stored = database.client, database.prefix + table
    description = await describe_table(client, stored)
    if description is None:
        raise CannotGenerate(f"The store has no table {stored}.")
    ttl = (await describe_ttl(client, stored)).get("AttributeName")
    items = await _sample(client, {"TableName": stored, "Limit": SAMPLE})
    return design_from_table(name, description | {"TableName": table}, ttl, [decode_item(item) for item in items])


async def _sample(client: Client, request: Mapping[str, Any]) -> list[Any]:
    """Return the first `SAMPLE` items of a Scan."""
    items: list[Any] = []
    page = await client.call("Scan", request)
    while (start := page.get("LastEvaluatedKey")) and len(items) + len(page["Items"]) < SAMPLE:
        items += page["Items"]
        page = await client.call("Scan", {**request, "ExclusiveStartKey": start})
    return [*items, *page["Items"]][:SAMPLE]


def _write(texts: Mapping[str, str]) -> None:
    """Write files. In those with code, remove unused imports, sort the others, and format all."""
    for path, text in texts.items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text)
    code = [path for path in texts if path.endswith(".py")]
    _python("-m", "ruff", "check", "--quiet", "--select", "I,F401", "--fix", *code)
    _python("-m", "ruff", "format", "--quiet", *code)


def _python(*arguments: str) -> str:
    ran = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise mistake(f"python {' '.join(arguments)} failed. No file was changed.\n{ran.stdout}{ran.stderr}")
    return ran.stdout
