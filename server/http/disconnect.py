"""The work in hand of a client that leaves is cancelled."""

import asyncio

from starlette.types import Receive

from server.http.cycle import RequestCycle
from server.http.refusals import ClientGone


class DisconnectWatch:
    """Cancels the task that makes it when its client disconnects, until it is stopped.

    Our own protocol tells of that by its cycle. On other servers a task listens: it begins when the work first
    suspends (`call_soon` runs only then), so work that never waits pays for none.
    """

    __slots__ = ("_cycle", "_gone", "_receive", "_start", "_task", "_work")

    def __init__(self, cycle: RequestCycle | None, receive: Receive) -> None:
        self._cycle = cycle
        self._work = asyncio.current_task()
        self._gone = False
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self._start: asyncio.Handle | None = None
        if cycle is None:
            self._start = asyncio.get_running_loop().call_soon(self._begin)
        else:
            cycle.on_disconnect(self._leave)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        # Of a connection that is lost its newest and its running request are told, which may be the same one.
        if not self._gone and self._work is not None:
            self._work.cancel()
        self._gone = True

    def absolve(self) -> None:
        """Turn our own cancellation into `ClientGone`; one from outside is left as it is."""
        if self._gone and self._work is not None and self._work.uncancel() == 0:
            raise ClientGone from None

    def stop(self) -> None:
        if self._cycle is not None:
            self._cycle.on_disconnect(None)
        if self._start is not None:
            self._start.cancel()
        if self._task is not None:
            self._task.cancel()
