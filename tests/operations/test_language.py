"""Names and prose use the field's terms: see docs/glossary.md and CONTRIBUTING.md."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_engines import ROOT

PRODUCT = ("gateway.py", "runtime", "server", "jit", "schema", "resolvers", "datastore", "pipelines")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# The parts of the product without banned names and phrases, and those that still have some.
CLEAN = {
    "gateway.py",
    "runtime/__init__.py",
    "runtime/container.py",
    "runtime/jobs.py",
    "server/__init__.py",
    "server/admission",
    "server/app.py",
    "server/documents",
    "server/http",
    "server/media",
    "server/observability",
    "server/operations",
    "server/security",
    "server/settings.py",
    "server/shutdown.py",
    "server/subscriptions",
    "server/uvicorn.py",
    "server/websocket",
    "server/wiring.py",
    "jit/__init__.py",
    "jit/codegen.py",
    "jit/collect_fields.py",
    "jit/completion.py",
    "jit/coroutine_driver.py",
    "jit/execution.py",
    "jit/executor.py",
    "jit/field_plan.py",
    "jit/field_resolvers.py",
    "jit/operation.py",
    "jit/paths.py",
    "jit/strawberry_fields.py",
    "jit/variables.py",
    "schema/__init__.py",
    "schema/connections.py",
    "schema/earthquakes.py",
    "schema/feeds",
    "schema/fields.py",
    "schema/matches",
    "schema/me.py",
    "schema/nodes.py",
    "schema/photos",
    "schema/scalars.py",
    "schema/sightings.py",
    "schema/version_conflicts.py",
    "resolvers/__init__.py",
    "resolvers/earthquakes",
    "resolvers/feeds",
    "resolvers/matches",
    "resolvers/me.py",
    "resolvers/nodes.py",
    "resolvers/photos",
    "resolvers/shared",
    "resolvers/sightings",
    "datastore/__init__.py",
    "datastore/change_streams",
    "datastore/database.py",
    "datastore/dynamodb",
    "datastore/earthquakes",
    "datastore/engine",
    "datastore/errors.py",
    "datastore/explain",
    "datastore/feeds",
    "datastore/gateway",
    "datastore/infrastructure",
    "datastore/keyspace",
    "datastore/matches",
    "datastore/model",
    "datastore/objects",
    "datastore/photos",
    "datastore/private_files.py",
    "datastore/queues.py",
    "datastore/redis",
    "datastore/search",
    "datastore/session",
    "datastore/sightings",
    "datastore/tasks.py",
    "pipelines/consumer",
    "pipelines/demo",
    "pipelines/earthquakes",
    "pipelines/feeds",
    "pipelines/matches",
    "pipelines/photos",
}
OPEN = {
    "runtime/cli",
    "runtime/supervisor",
}
# Words of names, between underscores and capitals.
BANNED_NAMES = {
    *("told", "whoever", "nobody", "owing", "lingering", "mouth", "farewell", "whereabouts", "strand", "strands"),
    *("joiner", "anew", "therefor", "himself", "theirs", "standing"),
}
BANNED_PHRASES = [
    r"[Ww]ho(?:m)?ever",
    r"\btherefor\b",
    r"\banew\b",
    r"\b(?:is|are|was|were|be|been|being) told\b",
    r"\bso many\b",
    r"\bout of order\b",
    r"\bat the most\b",
    r"\bone who\b",
    r"\bthose who\b",
    r"\b(?:he|himself|theirs)\b",
    r"\b[Nn]obody\b",
]
PHRASE = re.compile("|".join(BANNED_PHRASES))
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def sources(folder: str) -> list[Path]:
    path = ROOT / folder
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def names_and_prose(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the kind (name or prose) and the text of each name, comment and string of a file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], "name", token.string
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], "prose", token.string


def problems(path: Path) -> Iterator[str]:
    where = path.relative_to(ROOT)
    for line, kind, text in names_and_prose(path):
        if kind == "name":
            words = {word.lower() for word in WORD.findall(text)} & BANNED_NAMES
            if words:
                yield f"{where}:{line}: {text}"
        else:
            for found in PHRASE.finditer(text):
                yield f"{where}:{line + text.count(chr(10), 0, found.start())}: {found[0]}"


@pytest.mark.parametrize("folder", sorted(CLEAN))
def test_no_banned_name_or_phrase(folder: str) -> None:
    assert [problem for path in sources(folder) for problem in problems(path)] == []


def test_each_part_of_the_product_is_clean_or_on_the_list_of_open_ones() -> None:
    parts = {
        str(path.relative_to(ROOT))
        for folder in PRODUCT
        for path in ([ROOT / folder] if folder.endswith(".py") else (ROOT / folder).iterdir())
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }

    assert parts == CLEAN | OPEN
    assert not CLEAN & OPEN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_banned_phrase_in_a_page(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [f"{page.name}:{number}: {found[0]}" for number, line in lines for found in PHRASE.finditer(line)] == []


def test_class_names_are_unique_but_for_a_record_and_its_schema_type() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in PRODUCT:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))

    def is_type_of_a_record(places: list[str]) -> bool:
        kinds = Counter(place.partition("/")[0] for place in places)
        return len(places) == 2 and kinds["schema"] == 1 and kinds["datastore"] + kinds["resolvers"] == 1

    assert {name: places for name, places in found.items() if len(places) > 1 and not is_type_of_a_record(places)} == {}


def test_a_module_has_at_most_400_lines() -> None:
    assert {
        str(path.relative_to(ROOT)): lines
        for folder in PRODUCT
        for path in sources(folder)
        if (lines := path.read_text().count("\n")) > 400
    } == {}
