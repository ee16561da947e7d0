"""The cancellation of a request whose client disconnects."""

import asyncio

from starlette.types import Receive

from server.http.cycle import RequestCycle


class ClientGone(Exception):
    """The client has disconnected: no response can be sent."""


class DisconnectWatch:
    """A watch that cancels the task which created it when the client disconnects, until it is stopped.

    `HttpProtocol` reports a disconnect through the request cycle. On other servers a task waits for the message. It
    starts when the request first suspends (`call_soon` runs only then), so that a request that never waits needs none.
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
            self._start = asyncio.get_running_loop().call_soon(self._start_listening)
        else:
            cycle.on_disconnect(self._on_disconnect)

    def _start_listening(self) -> None:
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()

    def _on_disconnect(self) -> None:
        # A lost connection notifies its running and its newest request, which may be the same: cancel only once.
        if not self._gone and self._work is not None:
            self._work.cancel()
        self._gone = True

    def raise_if_gone(self) -> None:
        """Raise `ClientGone` if this watch cancelled the task. A cancellation by another task stays as it is."""
        if self._gone and self._work is not None and self._work.uncancel() == 0:
            raise ClientGone from None

    def stop(self) -> None:
        if self._cycle is not None:
            self._cycle.on_disconnect(None)
        if self._start is not None:
            self._start.cancel()
        if self._task is not None:
            self._task.cancel()
