"""Gateways whose event loop hangs: workers are replaced, and processes without a supervisor end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from server.observability.liveness import HUNG_STATUS
from tests.support.command_line import GatewayProcess, _serving, run_here, surroundings
from tests.support.store_engines import ROOT
from tests.support.supervisor import is_running
from tests.support.until import until_blocking
from tests.support.workers import QUIET, workers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
    pytest.mark.timeout(180),
]
COMMAND = [sys.executable, "tests/support/hanging_gateway.py"]


@contextmanager
def hanging_gateway(folder: Path, *arguments: str, **environment: str) -> Iterator[GatewayProcess]:
    def start(surrounded: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        surrounded["PYTHONPATH"] = str(ROOT)
        with log.open("wb") as file:
            return subprocess.Popen([*COMMAND, "serve", *arguments], cwd=ROOT, env=surrounded, stderr=file)

    with _serving(start, folder, environment) as gateway:
        yield gateway


def ask_hanging_path(gateway: GatewayProcess, path: str) -> None:
    """Send a request that never receives a response."""
    with pytest.raises((URLError, OSError)):
        urlopen(gateway.url + path, timeout=50)


@pytest.mark.parametrize("path", ["/spin", "/backtrack"])
def test_a_worker_that_hangs_is_replaced_and_its_stacks_are_in_the_log(path: str, tmp_path: Path) -> None:
    with hanging_gateway(tmp_path / "data", "--workers", "1", *QUIET, SILENT_SECONDS="3") as gateway:
        (first,) = workers(gateway)
        ask_hanging_path(gateway, path)
        until_blocking(lambda: workers(gateway) and first not in workers(gateway), 60)
        assert not is_running(first)
        until_blocking(lambda: is_gateway_answering(gateway), 60)
        assert f"Worker 1 (process {first}) sent no heartbeat for 3 s" in gateway.output
        assert f"in {path[1:]}\n" in gateway.output
        assert "Worker 1 ended (killed by the supervisor because its event loop did not run)" in gateway.output


def is_gateway_answering(gateway: GatewayProcess) -> bool:
    try:
        return gateway.get("/healthz")[0] == 200
    except OSError:
        return False


def test_one_process_that_hangs_ends_with_its_stacks_in_the_log(tmp_path: Path) -> None:
    with hanging_gateway(tmp_path / "data", *QUIET, GATEWAY_WATCHDOG_SECONDS="3") as gateway:
        ask_hanging_path(gateway, "/spin")
        assert gateway.process.wait(60) == HUNG_STATUS
        assert "The event loop has not run for 3 s (GATEWAY_WATCHDOG_SECONDS)." in gateway.output
        assert "in spin\n" in gateway.output


@pytest.mark.parametrize("arguments", [("feed",), ("cricket", "--matches", "demo")], ids=lambda given: given[0])
def test_a_pipeline_that_hangs_ends_with_its_stacks(arguments: tuple[str, ...], tmp_path: Path) -> None:
    given = {"PYTHONPATH": str(ROOT), "PIPELINE_SPINS": "1", "GATEWAY_WATCHDOG_SECONDS": "4"}
    command = [*COMMAND, "pipeline", *arguments, "--data-dir", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=surroundings(**given), capture_output=True, text=True, timeout=90)
    assert ended.returncode == HUNG_STATUS
    assert "in spin\n" in ended.stderr


@pytest.mark.parametrize("value", ["-1", "0.5", "inf", "nan", "soon"])
def test_an_invalid_time_is_refused(value: str, tmp_path: Path) -> None:
    words = f"Error: GATEWAY_WATCHDOG_SECONDS must be 0, or a number of seconds from 1, not '{value}'.\n"
    for command in (["serve"], ["pipeline", "feed"], ["pipeline", "cricket", "--matches", "demo"]):
        done = run_here(*command, "--data-dir", tmp_path, GATEWAY_WATCHDOG_SECONDS=value)
        assert (done.returncode, done.stderr) == (2, words)
    assert os.listdir(tmp_path) == []
