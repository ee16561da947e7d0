"""The messages of logs and errors name a table as the store does: with the prefix.

An argument of a message that is a table's name is `prefix + table.name`, or a variable called `full_name`.
"""

import ast
from collections.abc import Iterator

import pytest

from datastore.keyspace import TABLES
from tests.support.layers import MAY_IMPORT
from tests.support.store_engines import ROOT

CONSTANTS = {table.name.upper().replace("-", "_") for table in TABLES}
SOURCES = sorted(path for layer in MAY_IMPORT if (ROOT / layer).is_dir() for path in (ROOT / layer).rglob("*.py"))
FULL = ("prefix", "full_name")
# This reports a mistake in a declaration, where names have no prefix.
OF_DECLARATIONS = "datastore/items/sizes.py"


def is_message(call: ast.Call) -> bool:
    """Return whether a call logs a message, prints a note, or creates an exception."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    return "logger." in name or last in ("note", "warn", "echo", "mistake") or (last[:1].isupper() and _is_error(last))


def _is_error(name: str) -> bool:
    return name.endswith(
        ("Error", "Unavailable", "Missing", "Throttled", "Internal", "Failed", "Lost", "Gone", "Refused")
    )


def plain_names(call: ast.Call) -> Iterator[str]:
    """Yield the arguments, or the parts of a formatted string, that are the name of a table without its prefix."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        parts = [part.value for part in ast.walk(argument) if isinstance(part, ast.FormattedValue)] or [argument]
        for number, part in enumerate(parts):
            text = ast.unparse(part)
            before = ast.unparse(parts[number - 1]) if number else ""
            if _is_table_name(part) and not text.endswith(FULL) and not before.endswith(FULL):
                yield text


def _is_table_name(part: ast.expr) -> bool:
    text = ast.unparse(part)
    if isinstance(part, ast.Attribute | ast.Name):
        last = text.rpartition(".")[2].lstrip("_")
        owner = text.removesuffix(".name").rpartition(".")[2].lstrip("_")
        return last == "table" or (last == "name" and (owner == "table" or owner in CONSTANTS))
    return False


def mistakes_in(source: str) -> list[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and is_message(node))
    return [f"{call.lineno}: {name}" for call in calls for name in plain_names(call)]


@pytest.mark.parametrize(
    ("line", "mistakes"),
    [
        ('logger.warning("The stream of %s is away.", self._table.name)', 1),
        ('logger.warning("The stream of %s is away.", table)', 1),
        ('logger.error("A change of %s is damaged.", change.table)', 1),
        ('logger.error("The stream of %s is away.", keys.ACTIVE_MATCHES.name)', 1),
        ('raise TableMissing(f"The table {table.name} does not exist.")', 1),
        ('raise TableMissing(f"The table {prefix}{table.name} does not exist.")', 0),
        ('logger.warning("The stream of %s is away.", self.prefix + self.table.name)', 0),
        ('logger.warning("The stream of %s is away.", self._full_name)', 0),
    ],
)
def test_a_table_without_its_prefix_is_found(line: str, mistakes: int) -> None:
    assert len(mistakes_in(line)) == mistakes


def test_messages_name_tables_with_their_prefix() -> None:
    found = {str(path.relative_to(ROOT)): mistakes_in(path.read_text()) for path in SOURCES}
    assert {path: mistakes for path, mistakes in found.items() if mistakes and path != OF_DECLARATIONS} == {}
