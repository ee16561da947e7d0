"""The version of the gateway where operators look for it, and warnings of misspelt settings."""

import json
import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from datastore.database import Database, StoreOptions
from datastore.model.identity import Role
from gateway import cli
from runtime.cli.variables import MOST_WARNINGS, known_variables, warn_of_unknown_variables
from runtime.container import Gateway
from server.settings import Settings
from server.version import VERSION, build_in, running_build
from tests.support.command_line import run_here, serve_process
from tests.support.observability import metric_samples
from tests.support.served import Served
from tests.support.store_engines import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def commands() -> TyperGroup:
    group = get_command(cli)
    assert isinstance(group, TyperGroup)
    return group


def test_the_version_is_printed() -> None:
    done = run_here("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"gateway {running_build()}\n"
    assert VERSION in done.stdout
    assert platform.python_version() in done.stdout


def test_the_revision_is_that_of_the_build_or_of_the_clone(tmp_path: Path) -> None:
    assert build_in({}, tmp_path).revision == ""
    assert str(build_in({}, tmp_path)) == f"{VERSION} (Python {platform.python_version()})"
    git = tmp_path / ".git"
    (git / "refs").mkdir(parents=True)
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert build_in({}, tmp_path).revision == COMMIT[:12]
    (git / "HEAD").write_text("ref: refs/main\n")
    (git / "refs" / "main").write_text(f"{COMMIT[::-1]}\n")
    assert build_in({}, tmp_path).revision == COMMIT[::-1][:12]
    assert build_in({"GATEWAY_REVISION": "of the image"}, tmp_path).revision == "of the image"


def test_the_revision_of_a_clone_and_of_its_worktree_is_gits(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "clone")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    git("-C", "clone", *identity, "commit", "-q", "--allow-empty", "-m", "first")
    git("-C", "clone", "worktree", "add", "-q", "../tree", "-b", "other")
    commit = git("-C", "clone", "rev-parse", "HEAD").strip()[:12]
    assert [build_in({}, tmp_path / name).revision for name in ("clone", "tree")] == [commit, commit]


async def test_the_version_is_in_the_metrics_and_in_the_health_check(served: Served) -> None:
    build = running_build()
    samples = await metric_samples(served, **served.headers("admin", Role.ADMIN))
    labels = tuple(sorted({"version": build.version, "revision": build.revision, "python": build.python}.items()))
    assert samples["gateway_build_info", labels] == 1
    async with served.http.get(f"{served.url}/healthz") as response:
        health = await response.json()
    assert (health["alive"], health["version"], health.get("revision", "")) == (True, build.version, build.revision)


@pytest.mark.parametrize("names", [(), ("GATEWAY_MAX_CONCURENT",)])
async def test_unknown_variables_are_in_the_readiness_and_in_the_metrics(
    names: tuple[str, ...], settings: Settings, store_options: StoreOptions, database: Database
) -> None:
    gateway = Gateway(replace(settings, unknown_variables=names), store_options)
    async with gateway.running(jobs=False):
        assert (await gateway.readiness(10)).get("unknownVariables", []) == [*names]
        assert gateway.metrics.registry.get_sample_value("gateway_unknown_variables") == len(names)


def test_serve_passes_the_unknown_variables_on(tmp_path: Path) -> None:
    with serve_process(tmp_path / "data", "--no-demo", GATEWAY_MAX_CONCURENT="3") as gateway:
        assert json.loads(gateway.get("/readyz")[2])["unknownVariables"] == ["GATEWAY_MAX_CONCURENT"]


def test_a_misspelt_setting_is_reported_with_the_nearest_one() -> None:
    done = run_here("schema", GATEWAY_MAX_CONCURENT="a-value-of-its-own", GATEWAY_SECRET_FILES="x", GATEWAY_XYZ="")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "Warning: GATEWAY_MAX_CONCURENT is no setting of the gateway, and has no effect. "
        "Did you mean GATEWAY_MAX_CONCURRENT?",
        "Warning: GATEWAY_SECRET_FILES is no setting of the gateway, and has no effect. "
        "Did you mean GATEWAY_SECRET_FILE?",
        "Warning: GATEWAY_XYZ is no setting of the gateway, and has no effect.",
    ]
    assert "a-value-of-its-own" not in done.stdout


def test_known_settings_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown_variables(commands(), dict.fromkeys(known_variables(commands()), "x"))
    assert capsys.readouterr().err == ""


def test_the_number_and_the_length_of_warnings_are_limited(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown_variables(commands(), {f"GATEWAY_{number}_{'X' * 1000}": "" for number in range(100)})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_WARNINGS
    assert max(map(len, lines)) < 200


def test_every_variable_in_the_settings_page_is_known() -> None:
    named = {*re.findall(r"`(GATEWAY_[A-Z_]+[A-Z])`", (ROOT / "docs" / "settings.md").read_text())}
    assert named
    assert named <= known_variables(commands())
