"""Imports point one way."""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import jit.strawberry
from tests.support.layers import MAY_IMPORT
from tests.support.store_engines import ROOT

# The libraries that a layer must not import.
FOREIGN = {
    "datastore": {"strawberry", "graphql", "starlette", "uvicorn"},
    "pipelines": {"strawberry", "graphql", "starlette", "uvicorn"},
    "resolvers": {"starlette", "uvicorn", "aiohttp", "boto3", "botocore"},
    "schema": {"starlette", "uvicorn", "aiohttp", "boto3", "botocore"},
    "server": {"boto3", "botocore"},
}

# The parts of the datastore that make calls and read their responses.
MAKING = (
    "dynamodb.batch_write",
    "dynamodb.client",
    "dynamodb.codec",
    "dynamodb.http1",
    "dynamodb.record_decoder",
    "dynamodb.requests",
    "dynamodb.sigv4",
    "dynamodb.transport",
    "keyspace",
    "session.pagination",
    "session.point_reads",
)


def layer_sources(layer: str) -> list[Path]:
    folder = ROOT / layer
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{layer}.py"]


def imported(source: Path) -> set[str]:
    """The top-level names a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@cache
def modules_imported(source: Path) -> set[str]:
    """The modules and names that a file imports, by their full names."""
    return {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def imports_within(package: str | None) -> dict[str, set[str]]:
    """Return the imports between the parts of a package, or between the layers."""
    found: dict[str, set[str]] = {}
    for layer in MAY_IMPORT:
        for source in layer_sources(layer):
            path = source.relative_to(ROOT).with_suffix("").parts
            for name in modules_imported(source):
                other = name.split(".")
                if package is None:
                    here, there = path[0], other[0]
                elif path[0] == other[0] == package and len(path) > 1 and path[1] != "__init__":
                    here, there = path[1], other[1]
                else:
                    continue
                if there in MAY_IMPORT if package is None else True:
                    found.setdefault(here, set()).add(there)
    return {here: there - {here} for here, there in found.items() if there - {here}}


@pytest.mark.parametrize("package", [None, "datastore", "server"])
def test_the_imports_equal_the_drawing_in_the_architecture_page(package: str | None) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    label = "text" if package is None else f"text {package}"
    drawn = re.findall(rf"^```{label}\n(.*?)\n```", page, re.DOTALL | re.MULTILINE)[0]
    arrows = (line.split("→") for line in drawn.splitlines())

    assert imports_within(package) == {here.strip(): set(there.split()) for here, there in arrows}


def test_the_packages_of_the_datastore_import_one_another_in_one_direction() -> None:
    imports = imports_within("datastore")
    TopologicalSorter(imports).prepare()  # raises CycleError

    assert "session" in imports["explain"]


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_in_the_order_of_layers_only(layer: str) -> None:
    assert imports_within(None).get(layer, set()) <= MAY_IMPORT[layer]
    assert layer_sources(layer)


@pytest.mark.parametrize("layer", FOREIGN)
def test_a_layer_does_not_import_forbidden_libraries(layer: str) -> None:
    wrong = {
        (str(source.relative_to(ROOT)), name)
        for source in layer_sources(layer)
        for name in imported(source) & FOREIGN[layer]
    }

    assert wrong == set()


def modules_of_jit() -> list[Path]:
    return [source for source in layer_sources("jit") if source.parent.name != "examples"]


def test_only_the_adapter_of_the_compiler_imports_strawberry() -> None:
    standard = sys.stdlib_module_names
    found = {source.name: imported(source) - standard - {"jit", "graphql"} for source in modules_of_jit()}

    assert {name: foreign for name, foreign in found.items() if foreign} == {"strawberry.py": {"strawberry"}}


def test_only_users_import_the_adapter_of_the_compiler() -> None:
    names = {name for source in modules_of_jit() for name in modules_imported(source)}

    assert "jit.executor.CompiledExecutor" in names
    assert not [name for name in names if name.startswith("jit.strawberry")]


def test_the_server_imports_public_names_of_the_compiler() -> None:
    sources = [source for layer in MAY_IMPORT if layer != "jit" for source in layer_sources(layer)]
    names = {name for source in sources for name in modules_imported(source) if name.partition(".")[0] == "jit"}
    public = {f"jit.{name}" for name in jit.__all__}
    public |= {f"jit.strawberry.{name}" for name in jit.strawberry.__all__}

    assert {"jit.operation_of", "jit.strawberry.StrawberryExecutor"} <= names <= public


def test_the_server_does_not_import_the_client_of_dynamodb() -> None:
    making = {f"datastore.{name}" for name in MAKING}
    known = {
        name
        for source in layer_sources("server")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in (node.module or "", *[f"{node.module}.{alias.name}" for alias in node.names])
    }

    assert "datastore.errors" in known
    assert not [name for name in known if any(name == made or name.startswith(f"{made}.") for made in making)]


# The mechanisms of the datastore, which know no table, and the packages that know tables.
MECHANISMS = ("change_streams", "dynamodb", "errors", "model", "queues", "session", "primitives")
OF_SYSTEMS = ("earthquakes", "feeds", "gateway", "keyspace", "matches", "photos", "sightings")


def test_mechanisms_know_no_table() -> None:
    found = {
        (str(source.relative_to(ROOT)), name)
        for mechanism in MECHANISMS
        for source in layer_sources(f"datastore/{mechanism}")
        for name in modules_imported(source)
        if name.split(".")[:1] == ["datastore"] and name.split(".")[1] in OF_SYSTEMS
    }

    assert found == set()


def test_the_client_knows_no_session() -> None:
    found = {
        (str(source.relative_to(ROOT)), name)
        for source in layer_sources("datastore/dynamodb")
        for name in modules_imported(source)
        if name.startswith("datastore.session.")
    }

    assert found == set()


# What holds a module for each entity, table, command or field, however many there are.
ENUMERATIONS = {
    *("datastore/feeds", "datastore/matches", "datastore/photos", "pipelines/feeds"),
    *("resolvers/matches", "runtime/cli"),
}
# What holds a module for each system, and becomes crowded with the next ones.
SYSTEMS = {"datastore/keyspace", "resolvers", "schema"}


def test_a_package_of_mechanisms_has_twelve_modules_at_most_and_states_its_purpose() -> None:
    packages = {path.parent for layer in MAY_IMPORT for path in layer_sources(layer) if path.parent != ROOT}
    crowded = {
        str(folder.relative_to(ROOT)): len(modules)
        for folder in packages
        if len(modules := [path for path in folder.glob("*.py") if path.name != "__init__.py"]) > 12
    }
    purposes = {folder: ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) for folder in packages}

    assert crowded.keys() - SYSTEMS == ENUMERATIONS
    assert [folder for folder, purpose in purposes.items() if not purpose] == []


# The packages of the server that import one another in one direction: each imports only those to its right.
SERVER_ORDER = ("subscriptions", "operations", "documents", "admission")


def test_subscriptions_operations_documents_and_admission_import_one_another_in_one_direction() -> None:
    wrong = {
        (str(source.relative_to(ROOT)), name)
        for place, package in enumerate(SERVER_ORDER)
        for source in layer_sources(f"server/{package}")
        for name in modules_imported(source)
        if name.startswith(tuple(f"server.{above}." for above in SERVER_ORDER[:place]))
    }

    assert wrong == set()
    assert len(layer_sources("server/admission")) <= 12
