"""The listener before the embedded engine. It admits connections whose first request contains the access key.

Each connection is checked once, at the head of its first request. A connection has one peer, so all further requests
come from a client that has the key. A proxy that mixes requests of several clients in one connection must check the key
itself. A page in a browser does not have the key, and cannot use the connection of another client.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import orjson

from datastore.engine.access_key import END_OF_HEAD, refusal_of
from datastore.primitives.tasks import cancel

logger = logging.getLogger(__name__)

HEAD_BYTES = 2**14
HEAD_SECONDS = 5.0
# The maximum number of connections that have not sent the key. The oldest is closed: clients send the key at once.
MAX_PENDING = 256
LINGER_SECONDS, LINGER_BYTES = 1.0, 2**20
BACKLOG = 1024
ACCEPT_RETRY_SECONDS = 0.1
CLOSE_SECONDS = 2.0


class ConnectionTarget(Protocol):
    """The target of admitted connections: `seccomp.Handover` or `byte_relay.ByteRelay`."""

    @property
    def problem(self) -> OSError | None: ...
    def start(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    async def admit(self, client: socket.socket, head: bytes, /) -> None: ...
    def close(self) -> None: ...


class EngineListener:
    """A listener for one engine process. It runs in a separate thread, since the starting thread may block on a client.

    `bound` is the socket that clients connect to after `open`. With `hands_over`, `target` receives connections whose
    first head was only peeked at. The constructor raises `OSError` when no descriptor is free.
    """

    def __init__(self, bound: socket.socket, key: str, target: ConnectionTarget, *, hands_over: bool) -> None:
        self._listener = bound
        self._listener.setblocking(False)
        self._key = key
        self._target = target
        self._receive_flags = socket.MSG_PEEK if hands_over else 0
        self._pending: dict[asyncio.Task[bool], None] = {}
        self._stopped = asyncio.Event()
        # uvloop and the default loop of Windows do not support readers for every descriptor.
        self._loop = asyncio.SelectorEventLoop()
        target.start(self._loop)
        self._thread = threading.Thread(target=self._run, name="engine-listener", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> OSError | None:
        """The reason why the engine cannot work behind this listener, or None."""
        return self._target.problem

    def open(self) -> None:
        """Start accepting connections. Raises `OSError` if another process has the port."""
        self._listener.listen(BACKLOG)
        self._call_in_thread(self._listen)

    def close(self) -> None:
        """Stop accepting connections. Connections that were handed over stay open."""
        self._call_in_thread(self._stopped.set)
        self._thread.join(CLOSE_SECONDS)

    def _call_in_thread(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed after `close`
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            logger.exception(
                "The listener of the embedded engine failed: no client can connect any more. Restart the process."
            )

    async def _serve(self) -> None:
        try:
            await self._stopped.wait()
        finally:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            await cancel(*self._pending)
            self._target.close()

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            # Not `sock_accept`: cancelling it would lose a connection that was just accepted.
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._loop.remove_reader(self._listener)  # no descriptor is free
            self._loop.call_later(ACCEPT_RETRY_SECONDS, self._listen)
            return
        client.setblocking(False)
        if len(self._pending) >= MAX_PENDING:
            next(iter(self._pending)).cancel()
        task = self._loop.create_task(self._admit(client))
        self._pending[task] = None
        task.add_done_callback(partial(self._check_done, client))

    def _check_done(self, client: socket.socket, task: asyncio.Task[bool]) -> None:
        self._pending.pop(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None or not task.result():
            client.close()
        if failure is not None:
            logger.error("A connection to the embedded engine failed before it was admitted.", exc_info=failure)

    async def _admit(self, client: socket.socket) -> bool:
        """Pass the connection to the engine, or respond with the refusal. Return whether it was passed."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await self._head(client)
            refusal = refusal_of(head, self._key)
            if refusal is None:
                await self._target.admit(client, head)
            else:
                await _refuse(client, refusal)
        except (OSError, EOFError):  # a TimeoutError is an OSError
            return False
        return refusal is None

    async def _head(self, client: socket.socket) -> bytes:
        """Return the first bytes, at least up to the end of the head. Raises `EOFError` if it does not arrive."""
        head = b""
        while END_OF_HEAD not in head:
            if len(head) >= HEAD_BYTES:
                raise EOFError
            if self._receive_flags:
                # Peeked bytes stay in the buffer: wait until more have arrived.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(head) + 1)
            await _readable(client)
            found = client.recv(HEAD_BYTES - (0 if self._receive_flags else len(head)), self._receive_flags)
            if len(found) <= (len(head) if self._receive_flags else 0):
                raise EOFError
            head = found if self._receive_flags else head + found
        if self._receive_flags:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return head


async def _readable(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(client, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(client)


async def _refuse(client: socket.socket, reason: str) -> None:
    """Respond with 403, and read the rest of the request: closing before that would lose the response."""
    loop = asyncio.get_running_loop()
    body = orjson.dumps({"__type": "com.amazon.coral.service#AccessDeniedException", "message": reason})
    head = (
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(LINGER_SECONDS):
        await loop.sock_sendall(client, head.encode() + body)
        client.shutdown(socket.SHUT_WR)
        unread = LINGER_BYTES
        while unread > 0 and (found := await loop.sock_recv(client, 2**16)):
            unread -= len(found)
