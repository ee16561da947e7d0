"""The format of the log: each line of each command, as text or as JSON."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run_command, surroundings
from tests.support.forking import Forked
from tests.support.ports import free_port
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

JSON = {"GATEWAY_LOG_FORMAT": "json"}
LOST_STORE = ["--store", "http://127.0.0.1:1"]
SERVICES = {
    "serve": ["serve", "--memory"],
    "serve-lost": ["serve", *LOST_STORE],
    "workers": ["serve", "--memory", "--workers", "1"],
    "engine": ["engine"],
    "feed": ["pipeline", "feed", *LOST_STORE],
    "earthquakes": ["pipeline", "earthquakes", *LOST_STORE],
    "cricket": ["pipeline", "cricket", "--matches", "demo", *LOST_STORE],
}
# A part of a line that the service writes after its start.
WRITTEN = {
    "serve": "The gateway has started",
    "serve-lost": "the store cannot be reached",
    "workers": "The gateway has started",
    "engine": "listens at",
    "feed": "The stream of feed",
    "earthquakes": "The stream of earthquake-events",
    "cricket": "store cannot be reached",
}
SECONDS = 40.0


@contextmanager
def service_log(name: str, folder: Path, **environment: str) -> Iterator[Path]:
    """Run a service until it has written what it writes after its start, then stop it. Yield its log."""
    log = folder / f"{name}.log"
    log.touch()
    command = SERVICES[name]
    if command[0] in ("serve", "engine"):
        command = [*command, "--port", str(free_port())]
    environment = surroundings(GATEWAY_DATA_DIR=str(folder / "data"), GATEWAY_SECRET="s" * 32, **environment)
    process = Forked("gateway.py", command, environment, stdout=log, stderr=log)
    try:
        until_blocking(lambda: WRITTEN[name] in log.read_text() or process.poll() is not None, SECONDS)
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
    finally:
        process.kill()
    yield log


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the lines of a log, each of which must be an object with time, level, logger and message."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert [*line][:4] == ["time", "level", "logger", "message"], line
        assert line["level"] in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
    assert lines
    return lines


@pytest.mark.proof
@pytest.mark.parametrize("name", SERVICES)
def test_each_line_of_a_service_is_json(name: str, tmp_path: Path) -> None:
    with service_log(name, tmp_path, **JSON) as log:
        lines = json_lines(log.read_text())
    if name == "serve":
        (started,) = [line for line in lines if line["message"] == "The gateway has started."]
        assert {"url", "store", "setUp"} <= started.keys()
        assert "eyJ" not in log.read_text()  # no token of the demo
    if name == "serve-lost":
        assert "WARNING" in {line["level"] for line in lines if WRITTEN[name] in line["message"]}


@pytest.mark.proof
@pytest.mark.parametrize("name", ["feed", "cricket"])
def test_a_line_of_a_pipeline_has_time_level_and_logger_in_text_too(name: str, tmp_path: Path) -> None:
    with service_log(name, tmp_path) as log:
        day, time, level, logger, _ = log.read_text().splitlines()[0].split(" ", 4)
    assert (day[:2], time[2], logger[-1]) == ("20", ":", ":")
    assert level in ("INFO", "WARNING", "ERROR")


@pytest.mark.parametrize("arguments", [["tables", "create", *LOST_STORE], ["tables", "create", "--nope"], ["nope"]])
def test_the_error_of_a_command_is_json(arguments: list[str]) -> None:
    done = run_command(*arguments, **JSON)
    assert done.returncode != 0
    (line,) = json_lines(done.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "gateway")
    assert not line["message"].startswith("Error")


def test_another_format_is_refused_by_every_command() -> None:
    done = run_command("tables", "describe", GATEWAY_LOG_FORMAT="xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: GATEWAY_LOG_FORMAT must be text or json, not 'xml'.\n"


def test_warnings_and_uncaught_errors_are_json_too() -> None:
    program = (
        "from runtime.console import begin_logging; import warnings; begin_logging();"
        "warnings.warn('old'); raise RuntimeError('of ada@example.com')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **JSON},
        capture_output=True,
        text=True,
        timeout=40,
    )
    warning, error = json_lines(done.stderr)
    assert (warning["level"], warning["logger"], "old" in warning["message"]) == ("WARNING", "py.warnings", True)
    assert (error["level"], error["message"]) == ("CRITICAL", "The process ends with an error.")
    assert "RuntimeError" in error["trace"]
    assert "ada@example.com" not in done.stderr
    assert done.returncode == 1
