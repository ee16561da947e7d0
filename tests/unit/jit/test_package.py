"""The package graphql-core-jit: what it contains, its documentation, its examples and its benchmark."""

import asyncio
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import jit
import jit.strawberry
from jit.examples import benchmark, plain, with_strawberry
from tests.support.store_engines import ROOT

FOLDER = ROOT / "jit"
PROJECT: dict[str, Any] = tomllib.loads((FOLDER / "pyproject.toml").read_text())
README = (FOLDER / "README.md").read_text()


def test_the_package_contains_all_modules_but_the_examples() -> None:
    folders = {path.parent.relative_to(ROOT) for path in FOLDER.rglob("__init__.py")} - {Path("jit/examples")}
    settings = PROJECT["tool"]["setuptools"]

    assert set(settings["packages"]) == {".".join(folder.parts) for folder in folders}
    assert settings["package-dir"] == {"jit": "."}
    assert all((FOLDER / name).exists() for name in settings["package-data"]["jit"])
    assert (FOLDER / PROJECT["project"]["readme"]).exists()


def test_the_package_allows_the_versions_that_are_tested() -> None:
    project = PROJECT["project"]
    requirements = [Requirement(text) for text in project["dependencies"]]
    optional = [Requirement(text) for text in project["optional-dependencies"]["strawberry"]]

    assert [requirement.name for requirement in requirements] == ["graphql-core"]
    assert [requirement.name for requirement in optional] == ["strawberry-graphql"]
    for requirement in (*requirements, *optional):
        assert version(requirement.name) in requirement.specifier, requirement


def test_the_readme_names_the_public_names_and_all_reasons() -> None:
    names = {*jit.__all__, *(f"jit.strawberry.{name}" for name in jit.strawberry.__all__)}

    assert {name for name in names if f"`{name}`" not in README} == set()
    assert {reason for reason in jit.Reason if f"`{reason}`" not in README} == set()


def test_the_example_with_graphql_core(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(plain.main())

    *results, statistics = capsys.readouterr().out.splitlines()
    emma = "{'data': {'books': [{'title': 'Emma', 'reviews': ['Emma is worth reading.']}]}}"
    other = "{'data': {'books': [{'title': 'Middlemarch', 'reviews': ['Middlemarch is worth reading.']}]}}"
    assert results == [emma, other, emma, emma, emma]
    assert "compiled=3" in statistics


def test_the_example_with_strawberry(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(with_strawberry.main())

    *results, statistics = capsys.readouterr().out.splitlines()
    assert results[1] == "{'films': [{'title': 'Playtime', 'director': {'name': 'Jacques Tati'}}]} None"
    assert "compiled=2" in statistics


def test_the_benchmark_compares_each_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(1_000))
    asyncio.run(benchmark.main(size=2, rounds=1, clock=lambda: float(next(times))))

    _, *rows = capsys.readouterr().out.splitlines()
    assert [row[:36].strip() for row in rows] == [work.name for work in benchmark.comparisons(2)]
    assert {row.split()[-1] for row in rows} == {"1.0"}
