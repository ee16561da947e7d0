"""Checks of what was logged."""

import logging

import pytest


def unexpected_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged as an error, besides the errors that the server masks."""
    records = caplog.get_records("setup") + caplog.get_records("call")
    errors = [record for record in records if record.levelno >= logging.ERROR]
    return [record.getMessage() for record in errors if record.name != "server.operations.outcome"]
