"""One request and its response on ASGI servers other than `HttpProtocol`."""

import asyncio

from starlette.types import Receive, Send

from server.http.cycle import ClientGone


class AsgiCycle:
    """A request with the methods of `RequestCycle`, which it implements with ASGI's `receive` and `send`."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._work = asyncio.current_task()
        self._is_gone = False
        self._start: asyncio.Handle | None = None
        self._listener: asyncio.Task[None] | None = None

    def take_content(self) -> None:
        """Return None: the content has to be received."""

    def watch(self) -> None:
        """Cancel the current task when the client disconnects, until `unwatch`.

        A task waits for the message. It starts when the request first suspends (`call_soon` runs only then), so that a
        request that never waits needs none.
        """
        self._start = asyncio.get_running_loop().call_soon(self._start_listening)

    def unwatch(self) -> None:
        if self._start is not None:
            self._start.cancel()
        if self._listener is not None:
            self._listener.cancel()

    def _start_listening(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._work is not None:
            self._work.cancel()

    def raise_if_gone(self) -> None:
        """Raise `ClientGone` if `watch` cancelled the task. A cancellation by another task stays as it is."""
        if self._is_gone and self._work is not None and self._work.uncancel() == 0:
            raise ClientGone from None

    def begin_stream(self) -> None:
        """Do nothing: the server buffers what it likes."""

    def abort(self) -> None:
        """Do nothing: the server closes the connection, since the response is incomplete."""

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` are its header lines."""
        headers = [tuple(line.split(b": ", 1)) for line in head.splitlines()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
