"""Lines on standard error: log records and messages, as text or as JSON. Each has the id of its request."""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from datastore.model.log_redaction import redact_emails
from server.request_identity import running_identity

#: The logger of messages to the user of a command, such as the banner of `serve`.
MESSAGES = "gateway"


class FieldsLine:
    """The message of a record with fields. It becomes a text only in a handler that writes text."""

    __slots__ = ("fields", "message")

    def __init__(self, message: str, fields: dict[str, Any]) -> None:
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.message} " + " ".join([f"{name}={_as_text(value)}" for name, value in self.fields.items()])


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value if value.isprintable() and " " not in value else repr(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _request_fields() -> dict[str, str]:
    """Return the ids of the request during which a line is written, none outside of requests."""
    identity = running_identity()
    if identity is None:
        return {}
    ids = {"requestId": identity.id.decode()}
    if identity.trace_id is not None:
        ids["traceId"] = identity.trace_id
    return ids


class JsonLines(logging.Formatter):
    """A formatter that writes a record as a line of JSON: time, level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        if type(record.msg) is FieldsLine:
            line["message"] = record.msg.message
            line.update(record.msg.fields)
        else:
            line["message"] = record.getMessage()
            line.update(getattr(record, "fields", {}))
            line.update(_request_fields())
        if record.exc_info:
            line["trace"] = redact_emails(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


class TextLines(logging.Formatter):
    """A formatter that writes a record as text: time, level, logger, message, and the id of the request."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        fields = {} if type(record.msg) is FieldsLine else _request_fields()
        return " ".join([line, *(f"{name}={value}" for name, value in fields.items())])


# How a message of this level begins in a text.
_PREFIXES = {logging.WARNING: "Warning: ", logging.ERROR: "Error: "}


class MessagesFormat:
    """The format of messages that are no log records: whether they are lines of JSON."""

    is_json = False


class BareLines(logging.Formatter):
    """A formatter that writes a record as its message alone, without a traceback, for commands that end soon."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage()


def message_line(message: str, level: int = logging.INFO, fields: dict[str, Any] | None = None) -> str:
    """Return a message as a line in the format of the process. `fields` are for JSON only."""
    if not MessagesFormat.is_json:
        return _PREFIXES.get(level, "") + message
    content = message if fields is None else FieldsLine(message, fields)
    return JsonLines().format(
        logging.makeLogRecord(
            {"msg": content, "levelno": level, "levelname": logging.getLevelName(level), "name": MESSAGES}
        )
    )
