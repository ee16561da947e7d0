"""The log of operations and refused requests: a line for each."""

import logging
import time
from collections.abc import Callable
from typing import Any

from datastore.primitives.token_bucket import TokenBucket
from server.admission.callers import Caller
from server.documents.request import Stage
from server.observability.log_lines import FieldsLine
from server.operations.report import Report
from server.request_identity import running_identity

MAX_NAME_CHARACTERS = 100
LOGGER, REFUSALS = "gateway.operations", "gateway.refusals"
REFUSED_LINES, REFUSED_LINES_PER_SECOND = 100, 10

_log, _refusals = logging.getLogger(LOGGER), logging.getLogger(REFUSALS)


class LimitedLines:
    """A limit on the lines that clients cause at no cost to them: a burst of a hundred, then ten each second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines = TokenBucket(REFUSED_LINES, REFUSED_LINES_PER_SECOND, clock())
        self._omitted = 0

    def take(self) -> int | None:
        """Return the number of lines that were omitted before this one; None if this one must be omitted."""
        if not self._lines.take(1, self._clock()):
            self._omitted += 1
            return None
        omitted, self._omitted = self._omitted, 0
        return omitted


class OperationLog:
    """An observer that logs each operation. The line has neither text nor variables, and only the role of the caller.

    A refused operation costs a client next to nothing. The lines of refused operations are therefore limited to a burst
    of a hundred, then ten each second. The next line states the number of omitted lines as `omitted`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refused_lines = LimitedLines(clock)

    def __call__(self, report: Report) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        omitted = 0 if report.stage is Stage.EXECUTION else self._refused_lines.take()
        if omitted is not None:
            _write(_log, "operation", _fields(report), omitted)


class RefusalLog:
    """A log of the requests that were refused before an operation, with the limit of refused operations.

    The line has the status and the code, and neither the address nor the content of the request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = LimitedLines(clock)

    def __call__(self, status: int, code: str) -> None:
        if not _refusals.isEnabledFor(logging.INFO) or (omitted := self._lines.take()) is None:
            return
        identity = running_identity()
        fields: dict[str, Any] = {"status": status, "code": code}
        if identity is not None:
            fields["requestId"] = identity.id.decode()
            if identity.trace_id is not None:
                fields["traceId"] = identity.trace_id
        _write(_refusals, "refused", fields, omitted)


def _write(log: logging.Logger, message: str, fields: dict[str, Any], omitted: int) -> None:
    if omitted:
        fields["omitted"] = omitted
    # `Logger.info` would search the stack for the calling function.
    line = FieldsLine(message, fields)
    log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, line, (), None))


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
        "requestId": report.params.request_id.decode() or None,
        "traceId": report.trace_id or _received_trace(report.params.traceparent),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _received_trace(traceparent: str | None) -> str | None:
    """Return the id of the trace of a valid traceparent."""
    return None if traceparent is None else traceparent[3:35]


def caller_kind(caller: Caller) -> str:
    """Return anonymous, user, admin or system."""
    return caller.identity.role._value_ if caller.identity else "anonymous"
