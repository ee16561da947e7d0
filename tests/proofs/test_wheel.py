"""The wheel that `pipx install .` builds: the commands, GraphiQL and the engine work without the clone."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from zipfile import ZipFile

import pytest

from server.version import VERSION
from tests.support.command_line import GatewayProcess, serving_anew, surroundings
from tests.support.store_engines import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the contents of the wheel, and a `gateway.py` of its own for `serving_anew`."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"dynamodb_graphql_gateway-{VERSION}-py3-none-")
    with ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = Path(archive.extract(member, folder / "site"))
            target.chmod(member.external_attr >> 16)
    return folder / "site"


@pytest.fixture(scope="module")
def serving(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with serving_anew(tmp_path_factory.mktemp("data") / "data", "--workers", "2", root=installed) as gateway:
        yield gateway


def test_the_entry_point_prints_the_version(installed: Path) -> None:
    ((name, target),) = PROJECT["scripts"].items()
    module, _, command = EntryPoint(name, target, "console_scripts").value.partition(":")

    ran = _run(installed, f"from {module} import {command}; {command}()", "--version")

    assert ran.stdout.startswith(f"gateway {VERSION} (")
    assert ran.returncode == 0


def test_an_installed_gateway_serves_the_demo_and_graphiql(serving: GatewayProcess) -> None:
    assert serving.data("{ matches(ids: []) { id } earthquakes(first: 1) { nodes { place } } }")["earthquakes"]["nodes"]
    status, kind, page = serving.get("/graphql", "text/html")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    script = page.partition('src="')[2].partition('"')[0]
    assert serving.get(script)[0] == 200


def test_an_installed_gateway_refuses_to_generate_a_system(installed: Path) -> None:
    ran = _run(installed, "from gateway import cli; cli()", "new", "books")

    assert "run `python gateway.py new` in a clone" in ran.stderr
    assert ran.returncode == 1
    assert not (installed / "docs").exists()


def _run(installed: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = surroundings(PYTHONPATH=str(installed))
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True)
