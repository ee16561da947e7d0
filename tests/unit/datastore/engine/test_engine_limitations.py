"""The list of engines' limitations names existing tests."""

from pathlib import Path

import pytest

from tests.support.engine_limitations import COVERED, LIMITATIONS, UNDECIDED

MODULES = {path.name: path for path in Path(__file__).parents[3].rglob("test_*.py")}


@pytest.mark.parametrize("module", sorted(COVERED))
def test_each_listed_module_exists(module: str) -> None:
    assert f"{module}.py" in MODULES


@pytest.mark.parametrize("engine", LIMITATIONS)
def test_each_listed_test_exists_and_runs(engine: str) -> None:
    for listed in (*LIMITATIONS[engine], *UNDECIDED.get(engine, ())):
        module, _, name = listed.partition("::")
        assert engine == "dynoxide" or module.removesuffix(".py") in COVERED, listed
        assert f"def {name.partition('[')[0]}(" in MODULES[module].read_text(), listed


@pytest.mark.parametrize("engine", UNDECIDED)
def test_each_skipped_test_is_listed_with_a_replacement(engine: str) -> None:
    assert set(UNDECIDED[engine].values()) <= LIMITATIONS[engine].keys()
