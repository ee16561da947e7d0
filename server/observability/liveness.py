"""Detection of a hung event loop, and the watchdog that ends the process."""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from server.observability.log_lines import message_line

# EX_SOFTWARE of sysexits.h. No other failure ends the process with this status.
HUNG_STATUS = 70
# The interval at which the watchdog checks the loop. A shorter limit than ten intervals has a tenth of itself.
CHECK_INTERVAL_SECONDS = 1.0
# Standard error may be a pipe without a reader. Writing to it must not keep the process from ending.
WRITE_SECONDS = 5


class Silence:
    """The time in seconds since a sign of life, measured by a watcher that may be suspended itself.

    `limit` is the longest allowed silence. If the checks of the watcher are more than half of `limit` apart, it was
    suspended, by a signal or with the machine. The watched loop may have been suspended as well, so the silence is
    reset.
    """

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._since = self._checked_at = now

    def is_over_limit(self, now: float, *, heard: bool) -> bool:
        """Return whether the silence has reached the limit. `heard`: there was a sign of life since the last call."""
        if heard or now - self._checked_at > self._limit / 2:
            self._since = now
        self._checked_at = now
        return now - self._since >= self._limit


class Watchdog:
    """A thread that calls `act` when the event loop has not run for `seconds`.

    The thread needs the interpreter's lock to check the loop. It therefore detects Python code that never returns to
    the loop, and calls that block. It does not detect an extension module that keeps the lock.
    `faulthandler.dump_traceback_later()` would detect it, but its timer runs while the process is stopped, and then
    kills the process at SIGCONT.
    """

    def __init__(
        self, seconds: float, act: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._act = act
        self._clock = clock
        self._interval = min(CHECK_INTERVAL_SECONDS, seconds / 10)
        self._turns = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the running loop until it is closed."""
        self._turn(loop)
        threading.Thread(target=self._watch, args=(loop,), name="watchdog", daemon=True).start()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns += 1
        loop.call_later(self._interval, self._turn, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        silence, seen = Silence(self._seconds, self._clock()), self._turns
        while not loop.is_closed():
            time.sleep(self._interval)
            turns = self._turns
            if silence.is_over_limit(self._clock(), heard=turns != seen) and not loop.is_closed():
                self._act(self._seconds)
                return
            seen = turns


def watch_loop(seconds: float) -> None:
    """End the process with `HUNG_STATUS` once the event loop has not run for `seconds`. 0 disables the watchdog.

    Call it after the start-up, which builds the schema and opens the store without returning to the loop.
    """
    if seconds:
        Watchdog(seconds, end_hung_process).start(asyncio.get_running_loop())


def end_hung_process(seconds: float) -> NoReturn:
    """Write the stacks of all threads to standard error, and end the process."""
    end_process(
        f"The event loop has not run for {seconds:g} s (GATEWAY_WATCHDOG_SECONDS). The process ends with status "
        f"{HUNG_STATUS}; the stacks of its threads follow.",
        HUNG_STATUS,
        with_stacks=True,
    )


def end_process(message: str, status: int, *, with_stacks: bool = False) -> NoReturn:
    """Write `message` to standard error, and end the process at once without any cleanup.

    If standard error accepts nothing for `WRITE_SECONDS`, the process ends without the message, with status 1.
    """
    try:
        with suppress(OSError):
            # This timer's thread works without the interpreter's lock, which `dump_traceback()` holds while it writes.
            faulthandler.dump_traceback_later(WRITE_SECONDS, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        with suppress(OSError, ValueError, AttributeError):  # there may be no standard error
            os.write(sys.stderr.fileno(), f"{message_line(message, logging.CRITICAL)}\n".encode())
            if with_stacks:
                faulthandler.dump_traceback(sys.stderr, all_threads=True)
    finally:
        os._exit(status)
