"""How the command line speaks: notes and progress on stderr, and each mistake in one line."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn
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

T = TypeVar("T")

NAME_WIDTH = 28
MISTAKES = (
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

# Paths and messages are told as they are: nothing in them is markup.
notes = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


class OneLine(TyperGroup):
    """Tells a mistake in how it is called in one line on stderr, in place of a box; the status stays typer's."""

    def main(self, *args: Any, standalone_mode: bool = True, **rest: Any) -> Any:
        rest["standalone_mode"] = False
        if not standalone_mode:
            return super().main(*args, **rest)
        try:
            # What comes back is the status that a command ended with, or None.
            status = super().main(*args, **rest)
        except TyperException as problem:
            status = usage_mistake(problem)
        sys.exit(status)


def usage_mistake(problem: TyperException) -> int:
    """Tell it. A group without a command has shown its help instead, and has no words of its own."""
    words = " ".join(problem.format_message().replace("Value error, ", "").split())
    if words:
        context = getattr(problem, "ctx", None)
        stop = "" if words.endswith((".", "?")) else "."
        notes.print(f"Error: {words}{stop} See {context.command_path if context else 'gateway.py'} --help.")
    return problem.exit_code


def mistake(problem: object, status: int = 1) -> typer.Exit:
    """Tell what is wrong in a line; raise what this returns."""
    notes.print(f"Error: {problem}")
    return typer.Exit(status)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it; what a user can mend is one line, not a traceback."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work())
    except MISTAKES as problem:
        raise mistake(problem) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Until it is done, or Ctrl-C or SIGTERM ask for an end; then it may clean up."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        notes.print("Stopped.")


def log_in_lines() -> None:
    """For a command that ends soon: what went wrong, without tracebacks."""
    handler = logging.StreamHandler()
    handler.format = lambda record: record.getMessage()  # type: ignore[method-assign]
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def progress() -> Progress:
    """For whoever watches: nothing is drawn where no terminal is."""
    stored = TextColumn("{task.fields[stored]} events")
    name = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), name, BarColumn(bar_width=16), DownloadColumn(), stored)
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def show_progress(line: str) -> None:
    """Overwrite the present line of a terminal; print nothing where stderr is no terminal."""
    if notes.is_terminal:
        notes.print(line, end="\r")


def shortened(source: str) -> str:
    """A path or address by its end, so that the line it is in stays one."""
    return source if len(source) <= NAME_WIDTH else "…" + source[1 - NAME_WIDTH :]


def waiting(words: str) -> AbstractContextManager[object]:
    """Words that move, for whoever watches: nothing is drawn where no terminal is."""
    return notes.status(words) if notes.is_terminal else nullcontext()
