"""A loop whose time jumps to the next timer: waiting costs no time, and a deadlock raises `Stuck`."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """A task waits, and no timer is left that could wake it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which work takes no time, so that the durations of two implementations can be compared.

    `complaints` holds what the loop would have logged, such as an exception that was never retrieved.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.complaints: list[str] = []
        super().__init__(_Jumping(self))
        self.set_exception_handler(
            lambda _, received: self.complaints.append(f"{received['message']} {received.get('exception')}")
        )

    def time(self) -> float:
        return self.now


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("Nothing is scheduled, and something is awaited.")
        exact = self._loop.now + max(0.0, timeout)
        rounded = round(exact, 6)
        # A loop runs the timers of the next nanosecond. A later one would never come due at a time rounded down.
        self._loop.now = exact if exact - rounded >= 1e-9 else rounded
        return []


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, list[str]]:
    """Run `work`. Return its result and the loop's complaints. Cancels remaining tasks. Raises `Stuck`."""
    loop = VirtualLoop()
    try:
        try:
            answer = loop.run_until_complete(work())
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(1000))
            loop.run_until_complete(loop.shutdown_asyncgens())
        return answer, loop.complaints
    finally:
        loop.close()
