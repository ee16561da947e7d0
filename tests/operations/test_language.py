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
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The product and what is built around it.
EVERYTHING = (*PRODUCT, "benchmarks", "deploy")
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


@pytest.mark.parametrize("folder", EVERYTHING)
def test_no_banned_name_or_phrase(folder: str) -> None:
    assert [problem for path in sources(folder) for problem in problems(path)] == []


# A docstring begins with a verb or a noun.
BANNED_BEGINNINGS = {
    *("All", "And", "As", "At", "But", "By", "Else", "From", "How", "If", "In", "It", "Nobody", "Not", "Nothing"),
    *("Of", "On", "So", "That", "There", "Those", "To", "Until", "What", "When", "Where", "Which", "Who", "Whoever"),
}


@pytest.mark.parametrize("folder", EVERYTHING)
def test_a_docstring_begins_with_a_verb_or_a_noun(folder: str) -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    assert [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented) and (text := ast.get_docstring(node)) and text.split()[0] in BANNED_BEGINNINGS
    ] == []


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
