"""Markers by which `make test-fast`, `make test` and `make proofs` choose tests.

Most follow from the fixtures of a test, the imports of its module and its folder. A test that takes long elsewhere than
in `tests/proofs/` has the marker `proof` itself.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MARKERS = {
    "engine": "starts DynamoDB",
    "process": "starts another process",
    "browser": "needs Chromium",
    "node": "needs the npm clients of tests/clients",
    "redis": "needs Redis",
    "proof": "takes long: run by `make proofs`",
}
# What a module imports from these modules shows what its tests start.
IMPORTS = {
    "process": {
        "asyncio.subprocess",
        "multiprocessing",
        "subprocess",
        "tests.support.command_line",
        "tests.support.deployment",
        "tests.support.forking",
        "tests.support.loaded_deployment",
        "tests.support.node_client",
        "tests.support.redis_server",
    },
    "browser": {"playwright.sync_api", "playwright.sync_api._generated"},
    "node": {"tests.support.node_client"},
    "redis": {"redis", "redis.client", "tests.support.redis_server"},
}
FIXTURES = {"engine": {"engine", "engines"}, "redis": {"redis", "redis_buckets", "redis_server"}}
PROOFS = Path(__file__).parents[1] / "proofs"
# Processes are started through these.
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}


def apply(items: list[pytest.Item]) -> None:
    """Add to each test the markers of what it uses."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        imports = _imports(getattr(item, "module", None))
        for marker in MARKERS:
            if fixtures & FIXTURES.get(marker, set()) or imports & IMPORTS.get(marker, set()):
                item.add_marker(marker)
        if item.path.is_relative_to(PROOFS):
            item.add_marker("proof")


def _imports(module: ModuleType | None) -> set[str]:
    values = [] if module is None else vars(module).values()
    return {value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "") for value in values}


class NoProcesses:
    """An audit hook by which a test fails that starts a process and does not have the marker `process`."""

    def __init__(self) -> None:
        self.is_on = False
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: Any) -> None:
        if self.is_on and event in STARTS:
            raise RuntimeError("A test of `make test-fast` starts a process: see IMPORTS in tests/support/markers.py.")
