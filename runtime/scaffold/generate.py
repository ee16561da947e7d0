"""The files of a new system, made from templates, and the lines that it adds to existing files."""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphql import GraphQLSchema, build_schema

from datastore.keyspace import PATTERNS, TABLES_BY_NAME
from runtime.scaffold.design import CannotGenerate, SystemDesign
from runtime.scaffold.edits import edits_of
from runtime.scaffold.names import names_of, prefix_of

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_LINE = 115
# By template: the file of the system. `{module}` is the name of the system.
FILES = {
    "keyspace.py.txt": "datastore/keyspace/{module}.py",
    "package.py.txt": "datastore/{module}/__init__.py",
    "datastore.py.txt": "datastore/{module}/{module}.py",
    "resolvers.py.txt": "resolvers/{module}.py",
    "schema.py.txt": "schema/{module}.py",
    "contract.py.txt": "tests/support/contract/{module}.py",
    "tests.py.txt": "tests/api/{module}/test_{module}.py",
    "examples.graphql.txt": "web/examples/{module}.graphql",
}


def generate(root: Path, system: SystemDesign) -> dict[str, str]:
    """Return the texts of the files of a system, and of the existing files with the system added, by path.

    Raises `CannotGenerate` if a file or a name exists already.
    """
    _refuse_existing(root, [path.format(module=system.name) for path in FILES.values()])
    names = names_of(system)
    texts = {
        path.format(module=system.name): filled((TEMPLATES / template).read_text(), names)
        for template, path in FILES.items()
    }
    changed: dict[str, str] = {}
    for path, insert in edits_of(names, texts[f"datastore/{system.name}/{system.name}.py"]):
        text = insert(changed.get(path) or (root / path).read_text())
        if text is None:
            raise CannotGenerate(f"{path} has another form than the generator knows: add the system there by hand.")
        changed[path] = text
    _refuse_used_names(root, system, names)
    return texts | changed


def filled(template: str, names: Mapping[str, Any]) -> str:
    """Return a template with its names.

    It keeps the lines between `#if name` and `#end` if the name has a true value, else those after `#else`. It repeats
    the lines between `#for name` and `#end` for each of the mappings with this name, whose names they may contain, too.
    """
    return "".join(f"{line}\n" for line in _filled(iter(template.splitlines()), names))


def _filled(lines: Iterator[str], names: Mapping[str, Any]) -> Iterator[str]:
    for line in lines:
        word, _, name = line.partition(" ")
        if word == "#if":
            kept, otherwise = _block(lines)
            yield from _filled(iter(kept if names[name] else otherwise), names)
        elif word == "#for":
            repeated, _ = _block(lines)
            for each in names[name]:
                yield from _filled(iter(repeated), {**names, **each})
        else:
            yield _wrapped(re.sub(r"\{\{(\w+)\}\}", lambda found: names[found[1]], line))


def _wrapped(line: str) -> str:
    """Return the line. A long one that is a string of Python becomes several strings."""
    text = re.fullmatch(r" *'(.*)',", line)
    if text is None or len(line) <= LONGEST_LINE:
        return line
    pieces = re.findall(rf".{{1,{LONGEST_LINE - 20}}}(?: |$)", text[1])
    return "\n".join(f"'{piece}'" for piece in pieces) + ","


def _block(lines: Iterator[str]) -> tuple[list[str], list[str]]:
    """Return the lines until the `#end` of a block, and those after its `#else`."""
    kept: list[str] = []
    otherwise: list[str] = []
    current, depth = kept, 0
    for line in lines:
        depth += line.startswith(("#if ", "#for ")) - (line == "#end")
        if depth < 0:
            break
        if line == "#else" and depth == 0:
            current = otherwise
        else:
            current.append(line)
    return kept, otherwise


def _refuse_existing(root: Path, paths: Iterable[str]) -> None:
    """Raise `CannotGenerate` if a file exists, or a module or package with its name in Python."""
    for path in map(Path, paths):
        namesake = path.parent.with_suffix(".py") if path.name == "__init__.py" else path.with_suffix("")
        for taken in (path, namesake):
            if (root / taken).exists():
                raise CannotGenerate(f"There is {taken} already.")


def _refuse_used_names(root: Path, system: SystemDesign, names: Mapping[str, Any]) -> None:
    """Raise `CannotGenerate` if something else has one of the system's names already."""
    kinds = names["kinds"]
    fields = {each["list_field"] for kind in kinds for each in kind["lists"]}
    schema = build_schema((root / "schema/api.graphql").read_text())
    used = _names_in(schema) & {*fields, *(kind[name] for kind in kinds for name in ("Type", "noun"))}
    if used:
        raise CannotGenerate(f"The schema has the name {min(used)} already.")
    context = (root / "resolvers/shared/context.py").read_text()
    if re.search(rf"\b(def |self\.){system.name}\b", context):
        raise CannotGenerate(f"The context of resolvers has an attribute {system.name} already.")
    if system.table in TABLES_BY_NAME:
        raise CannotGenerate(f"The table {system.table} is declared in datastore/keyspace/ already.")
    prefix = prefix_of(system.name)
    if any(pattern.id.startswith(f"{prefix}-") for pattern in PATTERNS):
        raise CannotGenerate(f"There are access patterns with ids such as {prefix}-1 already.")


def _names_in(schema: GraphQLSchema) -> set[str]:
    """Return the names of the types and of the root fields."""
    roots = [root for root in (schema.query_type, schema.mutation_type, schema.subscription_type) if root]
    return set(schema.type_map).union(*[root.fields for root in roots])


@contextmanager
def restored_after_error(root: Path, paths: Iterable[str]) -> Iterator[None]:
    """Restore the files at these paths if the context ends with an exception. Remove those that did not exist."""
    files = [root / path for path in paths]
    before = {file: file.read_bytes() if file.exists() else None for file in files}
    new_folders = {file.parent for file in files if not file.parent.exists()}
    try:
        yield
    except BaseException:
        for file, content in before.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(content)
        for folder in new_folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise
