"""Output of the command line: notes and progress on stderr, errors in one line."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from datastore.database import StoreMisconfigured
from datastore.dynamodb.client import RequestRefused
from datastore.engine.process import EngineFailed
from datastore.engine.programs import EngineMissing
from datastore.errors import DomainError
from datastore.private_files import FolderUnusable
from server.settings import Misconfigured
from server.uvicorn import loop_factory

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

NAME_WIDTH = 28
# Errors that a user can correct: the command prints their message without a traceback.
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

# Paths and messages may contain brackets, which are no markup here.
notes = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


class OneLine(TyperGroup):
    """A command group that prints a usage error in one line on stderr. The exit status remains typer's."""

    def main(self, *args: Any, standalone_mode: bool = True, **rest: Any) -> Any:
        rest["standalone_mode"] = False
        if not standalone_mode:
            return super().main(*args, **rest)
        try:
            status = super().main(*args, **rest)  # the status of `typer.Exit`, or None
        except TyperException as problem:
            status = usage_mistake(problem)
        sys.exit(status)


def usage_mistake(problem: TyperException) -> int:
    """Print a usage error, and return its exit status.

    A group that was called without a command has printed its help already; its error has no message.
    """
    message = " ".join(problem.format_message().replace("Value error, ", "").split())
    if message:
        context = getattr(problem, "ctx", None)
        stop = "" if message.endswith((".", "?")) else "."
        notes.print(f"Error: {message}{stop} See {context.command_path if context else 'gateway.py'} --help.")
    return problem.exit_code


def mistake(problem: object, status: int = 1) -> typer.Exit:
    """Print an error in one line, and return the exception that the caller raises to end the command."""
    notes.print(f"Error: {problem}")
    return typer.Exit(status)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new event loop. Print an error that a user can correct in one line, without a traceback."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work())
    except USER_ERRORS as problem:
        raise mistake(problem) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends. Cancel it at SIGINT or SIGTERM, and wait for its cleanup."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        notes.print("Stopped.")


def log_in_lines() -> None:
    """Log warnings as bare messages without tracebacks, for a command that ends soon."""
    handler = logging.StreamHandler()
    handler.format = lambda record: record.getMessage()  # type: ignore[method-assign]
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def progress() -> "Progress":
    """Return a progress bar, which is invisible if stderr is no terminal."""
    # Imported late: most commands show no progress.
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    stored = TextColumn("{task.fields[stored]} events")
    name = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), name, BarColumn(bar_width=16), DownloadColumn(), stored)
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def show_progress(line: str) -> None:
    """Overwrite the current line of a terminal; print nothing if stderr is no terminal."""
    if notes.is_terminal:
        notes.print(line, end="\r")


def shortened(source: str) -> str:
    """Return the end of a long path or URL, so that the progress bar fits on one line."""
    return source if len(source) <= NAME_WIDTH else "…" + source[1 - NAME_WIDTH :]


def waiting(message: str) -> AbstractContextManager[object]:
    """Show an animated message during the context; show nothing if stderr is no terminal."""
    return notes.status(message) if notes.is_terminal else nullcontext()
