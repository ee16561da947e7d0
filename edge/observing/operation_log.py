"""One line in the log for each operation, as text for people or as JSON for programs."""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from datastore.emails import without_emails
from edge.operations import Caller
from edge.requests import Report

LONGEST_NAME = 100
LOGGER = "gateway.operations"

_log = logging.getLogger(LOGGER)


class JsonLines(logging.Formatter):
    """A JSON object a line: time, level, logger, message, and the fields that a record brings along."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = without_emails(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


def log_operation(report: Report) -> None:
    """What became of an operation: neither its text nor its variables, and not who asked but what kind of caller."""
    if not _log.isEnabledFor(logging.INFO):
        return
    fields = _fields(report)
    said = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
    _log.info("operation %s", said, extra={"fields": {**fields, "message": "operation"}})


def _fields(report: Report) -> dict[str, Any]:
    """What is known of it, in the order in which it is read; what there is nothing of is left out."""
    operation = report.operation
    name = operation.name if operation else report.asked.name
    fields: dict[str, Any] = {
        "name": name[:LONGEST_NAME] if name else None,
        "type": operation.kind.value if operation else None,
        "document": report.document_hash[:16] if report.document_hash else None,
        "documentId": report.asked_id,
        "transport": report.transport.value,
        "caller": kind_of(report.caller),
        "stage": report.stage.value,
        "codes": sorted(set(report.codes)),
        "errorIds": list(report.error_ids),
        "replayed": report.replayed or None,
        "cost": round(report.estimate, 1),
        "units": report.units,
        "calls": report.calls,
        "patterns": sorted(report.patterns),
        "retries": report.retries,
        "events": report.events or None,
        "bytes": report.sent,
        "ms": round(report.seconds * 1000, 1),
        "traceId": report.trace_id,
    }
    return {name: value for name, value in fields.items() if value is not None and value != []}


def kind_of(caller: Caller) -> str:
    """anonymous, user, admin or system."""
    return caller.identity.role.value if caller.identity else "anonymous"


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)
