"""Every access pattern of the five systems has a test on documented items."""

from collections.abc import Sequence
from importlib import import_module

import pytest

from datastore.keyspace import earthquake_statistics, earthquakes, feeds, matches, photos, sightings
from datastore.model.access_patterns import AccessPattern, patterns_of
from tests.support.pattern_coverage import covered_by

NODES = "test_documents_nodes"
SYSTEMS = {
    "sightings": (patterns_of(sightings), ["test_documents_sightings"]),
    "earthquakes": (patterns_of(earthquakes, earthquake_statistics), ["test_documents_earthquakes"]),
    "feeds": (feeds.PATTERNS, ["test_documents_feed", "test_documents_feed_items", "test_documents_search"]),
    "matches": (
        matches.PATTERNS,
        ["test_documents_matches", "test_documents_match_mixed", "test_documents_match_pipelines"],
    ),
    "photos": (photos.PATTERNS, ["test_documents_photos"]),
}
# Each consumer reads shard leases. The consumer of earthquakes runs on documented items.
ELSEWHERE = {"feeds": {"FEED-P1"}}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_pattern_has_a_test_on_documented_items(system: str) -> None:
    patterns, modules = SYSTEMS[system]
    declared = {pattern.id for pattern in patterns}

    covered = ids_of(modules) | by_nodes() | ELSEWHERE.get(system, set())

    assert declared - covered == set()


def test_tests_name_declared_patterns_only() -> None:
    every: Sequence[AccessPattern] = [pattern for patterns, _ in SYSTEMS.values() for pattern in patterns]
    named = by_nodes().union(*(ids_of(modules) for _, modules in SYSTEMS.values()))

    assert named - {pattern.id for pattern in every} == set()


def ids_of(modules: Sequence[str]) -> set[str]:
    tests = [test for name in modules for title, test in vars(import_module(name)).items() if title.startswith("test_")]
    return {id for test in tests for id in covered_by(test)}


def by_nodes() -> set[str]:
    return {case.pattern for case in import_module(NODES).CASES.values()}
