"""The systemd units: by systemd's own tools, and their commands and environments as processes of this machine."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from server.version import running_build
from tests.support.command_line import surroundings
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.store_engines import ROOT
from tests.support.systemd_units import PIPELINES, UNITS, SystemdUnit, lines_of
from tests.support.until import until_blocking

PAGE = (ROOT / "docs" / "deployment.md").read_text()
# The file that all units of a machine share. The port in it must not reach two processes.
SHARED = f"""GATEWAY_SECRET={SECRET}
GATEWAY_STORE=http://127.0.0.1:8100
GATEWAY_ENGINE_KEY={"k" * 40}
GATEWAY_MATCHES=demo
GATEWAY_METRICS_PORT=9099
"""
SECONDS = 40.0


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        if os.environ.get("REQUIRE_SYSTEMD"):
            pytest.fail("systemd-analyze is needed.")
        pytest.skip("systemd-analyze is needed.")
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_no_mistakes_and_few_rights(analyze: str, unit: Path, tmp_path: Path) -> None:
    # Where it is installed there is nothing here.
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/gateway/.venv/bin/python", "/bin/true"))

    verified = subprocess.run(
        [analyze, "verify", "--man=no", here.with_name(here.name.replace("@.", "@8000."))],
        capture_output=True,
        text=True,
    )
    assert verified.returncode == 0, verified.stderr
    assert unit.name.partition("@")[0] not in verified.stderr

    rated = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=15", here], capture_output=True, text=True
    )
    assert rated.returncode == 0, rated.stdout[-200:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_ended_after_the_gateway_would_have_ended_by_itself(unit: Path) -> None:
    lines = dict(lines_of(unit))
    assert lines["KillSignal"] == "SIGTERM"
    assert int(lines["TimeoutStopSec"]) > 25


def test_the_units_have_the_same_rights() -> None:
    rights = []
    for unit in UNITS:
        lines = [*lines_of(unit)]
        begin = lines.index(("DynamicUser", "yes"))
        rights.append([line for line in lines[begin:] if line[0] not in ("StateDirectory", "WantedBy")])
    assert rights == [rights[0]] * len(UNITS)


def test_each_unit_answers_prometheus_at_a_port_of_its_own_by_the_documented_rule() -> None:
    names = ["gateway@8000", "gateway@8001", "gateway-engine", *(f"gateway-pipeline@{name}" for name in PIPELINES)]
    ports = {name: SystemdUnit(name, {"environment": SHARED}).metrics_port for name in names}

    assert len({*ports.values()}) == len(names)
    assert {name: ports[name] for name in names[:2]} == {"gateway@8000": 18000, "gateway@8001": 18001}
    for name in PIPELINES:
        assert f"{name} {ports[f'gateway-pipeline@{name}']}" in PAGE


def test_prometheus_scrapes_the_ports_of_the_units_in_the_recipe() -> None:
    configuration = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    scraped = {job["job_name"]: job["static_configs"][0]["targets"] for job in configuration["scrape_configs"]}
    units = {
        "gateway": ["gateway@8000", "gateway@8001"],
        "pipelines": ["gateway-pipeline@feed", "gateway-pipeline@earthquakes"],
        "engine": ["gateway-engine"],
    }
    assert scraped == {
        job: [f"127.0.0.1:{SystemdUnit(name, {'environment': SHARED}).metrics_port}" for name in names]
        for job, names in units.items()
    }


def test_a_file_of_a_unit_has_priority_over_the_shared_file() -> None:
    own = {"environment": SHARED, "pipeline-feed": "GATEWAY_METRICS_PORT=9200", "gateway-8000": "GATEWAY_MATCHES=none"}
    assert SystemdUnit("gateway-pipeline@feed", own).metrics_port == 9200
    assert SystemdUnit("gateway@8000", own).environment()["GATEWAY_MATCHES"] == "none"
    assert SystemdUnit("gateway@8001", own).environment()["GATEWAY_MATCHES"] == "demo"


def test_the_recipe_starts_every_unit_in_the_order_of_their_needs() -> None:
    section = PAGE.partition("\n## systemd\n")[2].partition("\n## ")[0]
    recipe = [line for line in section.splitlines() if line.startswith("systemctl")]
    started = re.findall(r"gateway[\w@-]*", " ".join(recipe))
    assert {name.partition("@")[0] for name in started} == {unit.name.split(".")[0].rstrip("@") for unit in UNITS}
    assert started[:2] == ["gateway-engine", "gateway-tables"]


class UnitMachine:
    """The processes of units, on free ports of this machine instead of those of the units."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, int] = {}
        self.processes: dict[str, Forked] = {}

    def port(self, of_unit: int) -> int:
        """Return the port of this machine in place of the port of a unit."""
        return self._ports.setdefault(str(of_unit), free_port())

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\d.])(8100|800\d|1800\d|9\d{3})(?!\d)", lambda found: str(self.port(int(found[0]))), text)

    def start(self, name: str, **given: str) -> Forked:
        unit = SystemdUnit(name, {"environment": SHARED})
        environment = {key: self._here(value) for key, value in unit.environment().items()}
        environment["GATEWAY_DATA_DIR"] = str(self._folder / Path(environment["GATEWAY_DATA_DIR"]).name)
        log = self.log(name)
        command = [self._here(argument) for argument in unit.command]
        environment = surroundings(**environment, GATEWAY_DRAIN_SECONDS="0", **given)
        self.processes[name] = process = Forked("gateway.py", command, environment, stdout=log, stderr=log)
        return process

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def answers(self, name: str, url: str) -> str:
        """Return the content of an URL once the unit's process answers there."""
        found = ""

        def has_answered() -> bool:
            nonlocal found
            assert self.processes[name].poll() is None, self.log(name).read_text()
            try:
                with urlopen(url, timeout=5) as response:
                    found = response.read().decode()
            except OSError:
                return False
            return True

        until_blocking(has_answered, SECONDS)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[UnitMachine]:
    machine = UnitMachine(tmp_path)
    yield machine
    for process in machine.processes.values():
        process.kill()
        process.wait()


@pytest.mark.proof
def test_the_units_of_a_machine_run_side_by_side_and_all_answer_prometheus(
    machine: UnitMachine, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        machine.start("gateway-engine", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert manager.recv(100) == b"READY=1"
    assert machine.start("gateway-tables").wait(SECONDS) == 0, machine.log("gateway-tables").read_text()
    serving = [f"gateway@800{number}" for number in range(2)]
    names = [*serving, *(f"gateway-pipeline@{name}" for name in PIPELINES)]
    for name in names:
        machine.start(name)

    for name in ["gateway-engine", *names]:
        port = machine.port(SystemdUnit(name, {"environment": SHARED}).metrics_port)
        expected = {"gateway-pipeline@cricket": "cricket_matches_polled", "gateway-engine": "disk"}
        page = machine.answers(name, f"http://127.0.0.1:{port}/metrics")
        assert expected.get(name, "stream_leases_held") in page
        assert f'gateway_build_info{{python="{running_build().python}"' in page
    for number in range(2):
        ready = machine.answers(serving[number], f"http://127.0.0.1:{machine.port(8000 + number)}/readyz")
        assert '"ready":true' in ready
    for process in machine.processes.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(SECONDS) for process in machine.processes.values()] == [0] * len(machine.processes)
