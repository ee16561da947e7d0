"""The code of the tests itself: each helper is defined once, and a test file has at most 500 lines."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import engine_modules
from tests.support.store_engines import ROOT

TESTS = ROOT / "tests"
MOST_LINES = 500
# Scripts have a `main`; the modules of pytest's hooks have an `apply`, called in tests/conftest.py.
ENTRY_POINTS = {"main", "apply"}


def source_files() -> list[Path]:
    folders = [path for path in TESTS.iterdir() if path.is_dir() and path.name != "clients"]
    return [TESTS / "conftest.py", *(path for folder in folders for path in sorted(folder.rglob("*.py")))]


def helper_names(path: Path) -> Iterator[str]:
    """Yield the public functions and classes of a module, besides its tests and fixtures."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        is_fixture = any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not is_fixture and not node.name.startswith(("test_", "Test", "pytest_", "_")):
            yield node.name


def test_each_test_module_has_a_name_of_its_own() -> None:
    """pytest refuses to collect two modules of one name in folders that are no packages."""
    names = Counter(path.name for path in source_files() if path.name.startswith("test_"))
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_each_helper_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for name in helper_names(path):
            places[name].append(path.relative_to(ROOT).as_posix())

    assert {name: where for name, where in places.items() if len(where) > 1 and name not in ENTRY_POINTS} == {}


def test_no_test_module_imports_another() -> None:
    imported = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        if not (node.module or "").startswith("tests.support")
    ]

    assert imported == []


def test_a_file_has_at_most_500_lines() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in source_files()}

    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_the_fast_run_leaves_out_no_fast_test(request: pytest.FixtureRequest) -> None:
    slow = {path for path in {item.path for item in request.session.items} if engine_modules.is_slow(path)}
    left_out = [
        item.nodeid
        for item in request.session.items
        if item.path in slow and not {mark.name for mark in item.iter_markers()} & {"engine", "proof"}
    ]
    assert left_out == []


def test_a_module_is_slow_if_each_of_its_tests_starts_the_engine(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"

    def is_slow(text: str) -> bool:
        module.write_text(text)
        return engine_modules.is_slow(module)

    assert is_slow("async def test_a(served): ...\ndef test_b(*, store_options): ...")
    assert not is_slow("async def test_a(served): ...\ndef test_b(): ...")
    assert not is_slow("@pytest.fixture\ndef served(): ...\n\n\ndef test_a(served): ...")
    assert is_slow("@pytest.fixture\ndef mine(served): ...\n\n\ndef test_a(mine): ...")
    assert not is_slow("def helper(served): ...")
