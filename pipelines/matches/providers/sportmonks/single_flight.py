"""Single-flight: one request for all concurrent callers with the same key."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiters: int = 0


class SingleFlight(Generic[T]):
    """The running requests by key. A request is cancelled when its last waiter is cancelled."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    async def join(self, key: str, start: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the running request for `key`; if there is none, start one."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(_run(start)))
            flight.task.add_done_callback(lambda _: self._forget(key, flight))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()

    def _forget(self, key: str, flight: Any) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


async def _run(start: Callable[[], Awaitable[T]]) -> T:
    return await start()
