"""The operation log: a line for each operation, as text or as JSON."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from datastore.model.log_redaction import redact_emails
from datastore.primitives.token_bucket import TokenBucket
from server.admission.callers import Caller
from server.documents.request import Stage
from server.operations.report import Report

MAX_NAME_CHARACTERS = 100
LOGGER = "gateway.operations"
REFUSED_LINES, REFUSED_LINES_PER_SECOND = 100, 10

_log = logging.getLogger(LOGGER)


class JsonLines(logging.Formatter):
    """A formatter that writes a record as a line of JSON: time, level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        if type(record.msg) is OperationLine:
            line["message"] = "operation"
            line.update(record.msg.fields)
        else:
            line["message"] = record.getMessage()
            line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["trace"] = redact_emails(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


class OperationLine:
    """The message of an operation's log record. It becomes a text only in a handler that writes text."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __str__(self) -> str:
        return "operation " + " ".join([f"{name}={_as_text(value)}" for name, value in self.fields.items()])


class OperationLog:
    """An observer that logs each operation. The line has neither text nor variables, and only the role of the caller.

    A refused operation costs a client next to nothing. The lines of refused operations are therefore limited to a burst
    of a hundred, then ten each second. The next line states the number of omitted lines as `omitted`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_lines = TokenBucket(REFUSED_LINES, REFUSED_LINES_PER_SECOND, clock())
        self._omitted = 0

    def __call__(self, report: Report) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        if report.stage is Stage.EXECUTION:
            _write(report, 0)
        elif self._refused_lines.take(1, self._clock()):
            omitted, self._omitted = self._omitted, 0
            _write(report, omitted)
        else:
            self._omitted += 1


def _write(report: Report, omitted: int) -> None:
    fields = _fields(report)
    if omitted:
        fields["omitted"] = omitted
    # `Logger.info` would search the stack for the calling function.
    line = OperationLine(fields)
    _log.handle(_log.makeRecord(LOGGER, logging.INFO, __file__, 0, line, (), None, "log_operation"))


def _fields(report: Report) -> dict[str, Any]:
    """Return the fields of the line, without those that are None."""
    # `_value_` is much faster than the property `value` of an enum.
    operation = report.operation
    name = operation.name if operation else report.params.name
    document, codes, patterns = report.document_hash, report.codes, report.patterns
    fields: dict[str, Any] = {
        "name": name[:MAX_NAME_CHARACTERS] if name else None,
        "type": operation.kind._value_ if operation else None,
        "document": document[:16] if document else None,
        "documentId": report.requested_id if document is None else None,
        "transport": report.transport._value_,
        "caller": caller_kind(report.caller),
        "stage": report.stage._value_,
        "codes": sorted(set(codes)) if codes else None,
        "errorIds": list(report.error_ids) or None,
        "replayed": report.replayed or None,
        "cost": round(report.estimate, 1),
        "units": report.units,
        "calls": report.calls,
        "patterns": sorted(patterns) if patterns else None,
        "retries": report.retries,
        "events": report.events or None,
        "bytes": report.sent_bytes,
        "ms": round(report.seconds * 1000, 1),
        "traceId": report.trace_id,
    }
    return {name: value for name, value in fields.items() if value is not None}


def caller_kind(caller: Caller) -> str:
    """Return anonymous, user, admin or system."""
    return caller.identity.role._value_ if caller.identity else "anonymous"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value if value.isprintable() and " " not in value else repr(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
