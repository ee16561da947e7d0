"""Checks of what was logged."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from server.observability.log_lines import JsonLines, TextLines


def unexpected_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged as an error, besides the errors that the server masks."""
    records = caplog.get_records("setup") + caplog.get_records("call")
    errors = [record for record in records if record.levelno >= logging.ERROR]
    return [record.getMessage() for record in errors if record.name != "server.operations.outcome"]


class AllLines(logging.Handler):
    """A handler that keeps all lines, decoded from JSON, and the same lines as text."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(json.loads(JsonLines().format(record)))
        self.texts.append(TextLines().format(record))

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.logged if line["logger"] == logger]


@contextmanager
def captured_lines() -> Iterator[AllLines]:
    """Yield a handler that receives all lines from the level INFO."""
    lines, root = AllLines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        root.setLevel(level)
