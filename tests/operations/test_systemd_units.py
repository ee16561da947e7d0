"""The systemd units, as far as systemd's own tools judge them without running them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.store_engines import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is needed.")
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_no_mistakes_and_few_rights(analyze: str, unit: Path, tmp_path: Path) -> None:
    # Where it is installed there is nothing here.
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/gateway/.venv/bin/python", "/bin/true"))

    verified = subprocess.run(
        [analyze, "verify", "--man=no", here.with_name(here.name.replace("@", "@8000"))], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stderr
    assert unit.name.partition("@")[0] not in verified.stderr

    rated = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=15", here], capture_output=True, text=True
    )
    assert rated.returncode == 0, rated.stdout[-200:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_ended_after_the_gateway_would_have_ended_by_itself(unit: Path) -> None:
    lines = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)
    assert lines["KillSignal"] == "SIGTERM"
    assert int(lines["TimeoutStopSec"]) > 25
