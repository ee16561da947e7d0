"""Messages and the log on stderr, and the end of a process by one: errors that a user can correct have no traceback.

It imports no library of the command line, because the workers of `serve --workers` use it too.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from datastore.database import StoreMisconfigured
from datastore.dynamodb.client import RequestRefused
from datastore.engine.process import EngineFailed
from datastore.engine.programs import EngineMissing
from datastore.errors import DomainError
from datastore.private_files import FolderUnusable
from server.observability.log_lines import MESSAGES, BareLines, JsonLines, MessagesFormat, TextLines, message_line
from server.settings import Misconfigured, log_format_of
from server.uvicorn import loop_factory

T = TypeVar("T")

# Errors that a user can correct.
USER_ERRORS = (
    Misconfigured,
    StoreMisconfigured,
    EngineMissing,
    EngineFailed,
    FolderUnusable,
    DomainError,
    RequestRefused,
    BotoCoreError,
    ClientError,
)


def begin_logging(environment: Mapping[str, str] = os.environ) -> None:
    """Write messages, and log records from WARNING on, to standard error in the format that the environment sets.

    In JSON, each line of the process is an object, those of warnings and uncaught errors included. End the process with
    a message if there is no such format.
    """
    try:
        MessagesFormat.is_json = log_format_of(environment) == "json"
    except Misconfigured as problem:
        raise mistake(problem, 2) from None
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if MessagesFormat.is_json else BareLines())
    # No format shows the thread or process: do not look them up for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if MessagesFormat.is_json:
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def log_as_service() -> None:
    """Log from INFO on, as a process that runs until it is stopped. Lines of text get time, level and logger."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        if isinstance(handler.formatter, BareLines):
            handler.setFormatter(TextLines())


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an uncaught error, as `sys.excepthook`."""
    logging.getLogger(MESSAGES).critical("The process ends with an error.", exc_info=(kind, error, trace))


def note(message: str, level: int = logging.INFO, fields: dict[str, Any] | None = None) -> None:
    """Print a message on stderr. `fields` are added to a line of JSON."""
    print(message_line(message, level, fields), file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    note(message, logging.WARNING)


def mistake(problem: object, status: int = 1) -> SystemExit:
    """Print an error in one line, and return the exception that the caller raises to end the process."""
    note(str(problem), logging.ERROR)
    return SystemExit(status)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new event loop. Print an error that a user can correct in one line, without a traceback."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work())
    except USER_ERRORS as problem:
        raise mistake(problem) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
