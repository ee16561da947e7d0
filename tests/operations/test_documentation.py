"""Names in the documentation exist: environment variables, files, headings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastore import errors
from datastore.errors import ErrorCode
from runtime.declared.page import declared, page
from tests.support.command_line import run_here
from tests.support.store_engines import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_LINES = 400
SOURCES = ("server", "schema", "resolvers", "datastore", "pipelines", "runtime")
_VARIABLE = re.compile(r"\b(?:GATEWAY|SPORTMONKS|APNS|DYNOXIDE)_[A-Z0-9_]*[A-Z0-9]\b")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.S | re.M)


def in_the_code() -> set[str]:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    read = [path for path in (*files, *ROOT.glob("*.py")) if path.parent.name != "declared"]
    return {name for path in read for name in _VARIABLE.findall(path.read_text())}


def test_every_variable_is_declared_and_in_the_help() -> None:
    known = in_the_code()
    assert "GATEWAY_SECRET" in known
    names = [name for variable in declared() for name in variable.names]
    assert len(names) == len(set(names))
    assert set(names) - {"AWS_REGION", "OTEL_EXPORTER_OTLP_ENDPOINT"} == known
    assert set(_VARIABLE.findall(run_here("serve", "--help", COLUMNS="400").stdout)) == known


def test_the_page_of_settings_is_current() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page(), "Run `make docs`."


def test_the_page_of_errors_explains_every_code() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.M) == [code.value for code in ErrorCode]


def test_the_page_of_errors_names_the_retryable_ones() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    column = dict(re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| ([^|]*) \|", page, re.M))
    types = [each for each in vars(errors).values() if isinstance(each, type)]
    kinds = [each for each in types if issubclass(each, errors.DomainError) and each is not errors.DomainError]
    assert {code for code, retryable in column.items() if retryable != "no"} == {
        kind.code for kind in kinds if kind.retryable
    }


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", link):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.stem)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """A page names a module by the last parts of its path. Tutorials also name modules of their examples."""
    folders = (*SOURCES, "jit", "tests", "benchmarks", "deploy")
    paths = ["/gateway.py", *(path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    named = re.findall(r"`([\w./]+\.py)`", _CODE.sub("", page.read_text()))
    missing = [name for name in named if not any(path.endswith(f"/{name}") for path in paths)]
    assert [name for name in missing if "books" not in name and "shopping_lists" not in name] == []


def test_no_page_is_long() -> None:
    """Split a longer page by concern. The changelog is read by release."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    lines = {page.name: page.read_text().count("\n") for page in pages if page.name != "CHANGELOG.md"}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_the_page_of_clients_shows_the_modules_that_are_tested() -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    modules = sorted((ROOT / "tests" / "clients" / "setup").glob("*.js"))
    assert modules
    assert [path.name for path in modules if f"```js\n{path.read_text()}```\n" not in page] == []


def test_the_documents_of_the_demo_are_valid() -> None:
    """`make serve` would not start with invalid ones: adapt them to a changed schema."""
    checked = run_here("documents", "check", ROOT / "pipelines" / "demo" / "data" / "documents.json")
    assert checked.stderr == ""
    assert checked.returncode == 0
