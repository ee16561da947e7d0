"""Every access pattern of the matches has a test on documented items."""

from importlib import import_module

from pattern_coverage import covered_by

from datastore.keyspace.matches import PATTERNS

MODULES = ("test_documents_matches", "test_documents_match_mixed", "test_documents_match_pipelines")


def test_every_pattern_is_run_on_the_documents_items() -> None:
    modules = [import_module(name) for name in MODULES]
    tests = [test for module in modules for name, test in vars(module).items() if name.startswith("test_")]
    covered = {id for test in tests for id in covered_by(test)}
    declared = {pattern.id for pattern in PATTERNS}

    assert (declared - covered, covered - declared) == (set(), set())
