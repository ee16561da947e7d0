"""Copies of the project, in which tests change files and run commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.store_engines import ROOT

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "node_modules", "build", ".data", "__pycache__", ".*_cache", ".hypothesis"
)
# The commands run with the environment of the test, which is complete.
MAKE = (
    "make",
    "-o",
    "setup",
    "-o",
    "tests/__pycache__/.ready",
    "-o",
    ".venv-ministack/.ready",
    "-o",
    "examples/node_modules/.ready",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project."""
    copy = tmp_path / "project"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    for name in ("node_modules", "tests/clients/node_modules"):
        if (ROOT / name).exists():
            (copy / name).symlink_to((ROOT / name).resolve())
    (copy / ".venv").symlink_to(sys.prefix)
    return copy


def run_in(project: Path, *command: str, **variables: str) -> str:
    """Run a command that must succeed. Return its output."""
    ran = attempt_in(project, *command, **variables)
    assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def attempt_in(project: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that may fail."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=project, env=environment | variables, capture_output=True, text=True)
