"""Names in the documentation exist: environment variables, files, headings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run_here
from tests.support.store_engines import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = ("server", "schema", "resolvers", "datastore", "pipelines", "runtime")
_VARIABLE = re.compile(r"\b(?:GATEWAY|SPORTMONKS|APNS|DYNOXIDE)_[A-Z0-9_]*[A-Z0-9]\b")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.S | re.M)


def in_the_code() -> set[str]:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    return {name for path in (*files, *ROOT.glob("*.py")) for name in _VARIABLE.findall(path.read_text())}


def in_the_readme() -> set[str]:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in _VARIABLE.findall(row.split("|")[1])}


def test_every_variable_is_in_the_readme_and_in_the_help() -> None:
    known = in_the_code()
    assert "GATEWAY_SECRET" in known
    assert in_the_readme() == known
    assert set(_VARIABLE.findall(run_here("serve", "--help", COLUMNS="400").stdout)) == known


def test_every_code_of_an_error_is_in_the_readme() -> None:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    codes = {code for path in files for code in re.findall(r'^    code = "([A-Z_]+)"$', path.read_text(), re.M)}
    assert "PERSISTED_QUERY_NOT_FOUND" in codes
    assert codes <= set(re.findall(r"`([A-Z_]+)`", (ROOT / "README.md").read_text()))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", link):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """A page names a module by the last parts of its path. The README also names those of an example, `books`."""
    folders = (*SOURCES, "jit", "tests", "benchmarks", "deploy")
    paths = ["/gateway.py", *(path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    named = re.findall(r"`([\w./]+\.py)`", _CODE.sub("", page.read_text()))
    assert [name for name in named if "books" not in name and not any(p.endswith(f"/{name}") for p in paths)] == []
