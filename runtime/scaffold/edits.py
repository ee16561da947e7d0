"""The lines that a new system adds to existing files. Ruff sorts the imports afterwards."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A function that returns the text of a file with a line more, or None if it finds no place for it.
Insert = Callable[[str], str | None]


def edits_of(names: Mapping[str, Any], records: str) -> Iterator[tuple[str, Insert]]:
    """Yield the edits of a system: a file, and what is inserted there. `records` is its datastore module."""
    module, kinds = names["module"], names["kinds"]
    keyspace, context = "datastore/keyspace/__init__.py", "resolvers/shared/context.py"
    yield keyspace, _import(f"from datastore.keyspace import {module}")
    yield keyspace, _entry("TABLES: tuple", f"    {module}.{names['TABLE']},\n")
    yield keyspace, _entry("PATTERNS: tuple", f"    *patterns_of({module}),\n")
    store = names["Store"]
    yield context, _import(f"from datastore.{module}.{module} import {store}")
    attribute = (
        f"    @LazyAttribute\n    def {module}(self) -> {store}:\n        return {store}(self.store, self.now)\n\n"
    )
    yield context, _before(r"^    @LazyAttribute\n    def visibility", attribute)
    yield "schema/__init__.py", _import(f"from schema import {module}")
    yield "schema/__init__.py", _entry("SYSTEMS: tuple", f"    {module}.SYSTEM,\n")
    yield "docs/architecture.md", _row(module, " ".join(sorted(_imported_packages(records) - {module})))
    for kind in kinds:
        if names["writes"]:
            yield "docs/mutations.md", _after(r"^\| responds as if [^|]*\| ", f"`delete{kind['Type']}`, ")
        if names["version"]:
            yield "docs/mutations.md", _after(r"^\| takes effect again[^|]*\| ", f"`update{kind['Type']}`, ")
            row = f"| `update{kind['Type']}` | in the input | updates |\n"
            yield "docs/mutations.md", _after(r"^\| mutation \| `expectedVersion` is .*\n(\|.*\n)*", row)
    lists = [each for kind in kinds for each in kind["lists"]]
    if names["ttl"] and lists:
        expiring = f"{names['lifetime_days']} days" if names["writes"] else "as the table states"
        row = f"| {', '.join(each['list_id'] for each in lists)} | {expiring} | items that DynamoDB deletes late |\n"
        yield "docs/datastore.md", _before(r"^\| GW-D3 \|", row)


def _imported_packages(code: str) -> set[str]:
    """Return the packages of the datastore from which a module imports names that it uses."""
    nodes = list(ast.walk(ast.parse(code)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return {
        node.module.split(".")[1]
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("datastore.")
        if any((each.asname or each.name) in used for each in node.names)
    }


def _before(anchor: str, text: str) -> Insert:
    def insert(page: str) -> str | None:
        found = re.search(anchor, page, re.MULTILINE)
        return None if found is None else page[: found.start()] + text + page[found.start() :]

    return insert


def _after(anchor: str, text: str) -> Insert:
    def insert(page: str) -> str | None:
        found = re.search(anchor, page, re.MULTILINE)
        return None if found is None else page[: found.end()] + text + page[found.end() :]

    return insert


def _import(line: str) -> Insert:
    return _before(r"^(from|import) (?!collections|abc|json|functools|typing)", f"{line}\n")


def _entry(declaration: str, line: str) -> Insert:
    """Insert the last line of a declaration whose brackets open and close on lines of their own."""

    def insert(page: str) -> str | None:
        found = re.search(rf"^{declaration}.*?(?=^[)\]}}])", page, re.MULTILINE | re.DOTALL)
        return None if found is None else page[: found.end()] + line + page[found.end() :]

    return insert


def _row(module: str, imports: str) -> Insert:
    """Insert the imports of a package of the datastore, in the order of names."""

    def insert(page: str) -> str | None:
        start = page.find("```text datastore\n")
        end = page.find("\n```\n", start)
        if start < 0:
            return None
        head, *rows = page[start:end].splitlines()
        rows = sorted([*rows, f"{module:<14} → {imports}"])
        return page[:start] + "\n".join([head, *rows]) + page[end:]

    return insert
