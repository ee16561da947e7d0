"""Output of the command line: usage errors in one line, and progress on a terminal."""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup
from typer.exceptions import TyperException

from runtime.cli.variables import warn_of_unknown_variables
from runtime.console import begin_logging, note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

NAME_WIDTH = 28


class OneLine(TyperGroup):
    """A command group that prints a usage error in one line on stderr. The exit status remains typer's."""

    def main(self, *args: Any, standalone_mode: bool = True, **rest: Any) -> Any:
        begin_logging()
        warn_of_unknown_variables(self)
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
        note(f"{message}{stop} See {context.command_path if context else 'gateway.py'} --help.", logging.ERROR)
    return problem.exit_code


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends. Cancel it at SIGINT or SIGTERM, and wait for its cleanup."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        note("Stopped.")


def _console() -> "Console":
    from rich.console import Console  # imported late: most commands show no progress

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def progress() -> "Progress":
    """Return a progress bar, which is invisible if stderr is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    stored = TextColumn("{task.fields[stored]} events")
    name = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), name, BarColumn(bar_width=16), DownloadColumn(), stored)
    return Progress(*columns, console=_console(), transient=True, disable=not sys.stderr.isatty())


def show_progress(line: str) -> None:
    """Overwrite the current line of a terminal; print nothing if stderr is no terminal."""
    if sys.stderr.isatty():
        print(line, end="\r", file=sys.stderr, flush=True)


def shortened(source: str) -> str:
    """Return the end of a long path or URL, so that the progress bar fits on one line."""
    return source if len(source) <= NAME_WIDTH else "…" + source[1 - NAME_WIDTH :]


def waiting(message: str) -> AbstractContextManager[object]:
    """Show an animated message during the context; show nothing if stderr is no terminal."""
    return _console().status(message) if sys.stderr.isatty() else nullcontext()
