"""Messages on stderr, and the end of a process by one: errors that a user can correct have no traceback.

It imports no library of the command line, because the workers of `serve --workers` use it too.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from datastore.database import StoreMisconfigured
from datastore.dynamodb.client import RequestRefused
from datastore.engine.process import EngineFailed
from datastore.engine.programs import EngineMissing
from datastore.errors import DomainError
from datastore.private_files import FolderUnusable
from server.settings import Misconfigured
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


def note(message: str, end: str = "\n") -> None:
    """Print a message on stderr."""
    print(message, end=end, file=sys.stderr, flush=True)


def mistake(problem: object, status: int = 1) -> SystemExit:
    """Print an error in one line, and return the exception that the caller raises to end the process."""
    note(f"Error: {problem}")
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
