"""Detection of a hung event loop: the measure of silence, and the watchdog that ends the process."""

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

# EX_SOFTWARE of sysexits.h. The process ends with no other failure by this status.
HUNG_STATUS = 70
# The watchdog looks this often at the loop, or more often where it allows less than ten such intervals.
LOOK_SECONDS = 1.0
# Standard error may be a pipe without a reader: writing to it must not keep the process from ending.
WRITE_SECONDS = 5


class Silence:
    """Time since a sign of life, in seconds, measured by a watcher that may be suspended itself.

    `limit` is the longest allowed silence. A watcher whose checks are more than half of `limit` apart was suspended, by
    a signal or with the machine. The watched loop may have been suspended as well, so that the silence is reset.
    """

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._since = self._looked = now

    def is_over_limit(self, now: float, *, heard: bool) -> bool:
        """Return whether the silence has reached the limit. `heard` is whether anything came since the last call."""
        if heard or now - self._looked > self._limit / 2:
            self._since = now
        self._looked = now
        return now - self._since >= self._limit


class Watchdog:
    """A thread that calls `act` when the event loop has not run for `seconds`.

    The thread needs the interpreter's lock to look at the loop. It therefore notices Python code that never returns to
    the loop, and calls that block. It does not notice an extension module that keeps the lock.
    `faulthandler.dump_traceback_later()` would, but its deadline passes while the process is stopped: it kills the
    process at SIGCONT.
    """

    def __init__(
        self, seconds: float, act: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._act = act
        self._clock = clock
        self._every = min(LOOK_SECONDS, seconds / 10)
        self._turns = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the running loop until it is closed."""
        self._turn(loop)
        threading.Thread(target=self._watch, args=(loop,), name="watchdog", daemon=True).start()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns += 1
        loop.call_later(self._every, self._turn, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        silence, seen = Silence(self._seconds, self._clock()), self._turns
        while not loop.is_closed():
            time.sleep(self._every)
            turns = self._turns
            if silence.is_over_limit(self._clock(), heard=turns != seen) and not loop.is_closed():
                self._act(self._seconds)
                return
            seen = turns


def watch_loop(seconds: float) -> None:
    """End the process with `HUNG_STATUS` once the running event loop has not run for `seconds`; 0 is never.

    Call it when the start is complete: before that, the schema is built and the store opened without a pause for the
    loop.
    """
    if seconds:
        Watchdog(seconds, end_hung_process).start(asyncio.get_running_loop())


def end_hung_process(seconds: float) -> NoReturn:
    """Write all threads' stacks to standard error, and end the process."""
    end_process(
        f"The event loop has not run for {seconds:g} s (GATEWAY_WATCHDOG_SECONDS). The process ends with status "
        f"{HUNG_STATUS}; the stacks of its threads follow.",
        HUNG_STATUS,
        with_stacks=True,
    )


def end_process(message: str, status: int, *, with_stacks: bool = False) -> NoReturn:
    """Write `message` to standard error, and end the process as it is, whatever else hangs.

    Where standard error takes nothing for `WRITE_SECONDS` the process ends without the message, with status 1.
    """
    try:
        with suppress(OSError):
            # Its thread needs no lock of the interpreter, which `dump_traceback()` keeps while it writes.
            faulthandler.dump_traceback_later(WRITE_SECONDS, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        with suppress(OSError, ValueError, AttributeError):  # there may be no standard error
            os.write(sys.stderr.fileno(), f"{message}\n".encode())
            if with_stacks:
                faulthandler.dump_traceback(sys.stderr, all_threads=True)
    finally:
        os._exit(status)
