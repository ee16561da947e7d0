"""Listens in the place of the embedded engine, and admits connections whose first request bears the access key.

Each connection is checked once, at the head of its first request. That is enough. A connection has one peer, so all
that follows comes from a client that has the key, and could do as much by a first request. A proxy that mixes requests
of several clients in one connection must check the key itself. A page in a browser does not know the key, and cannot
use a connection of another client.
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

logger = logging.getLogger(__name__)

HEAD_BYTES = 2**14
HEAD_SECONDS = 5.0
# Connections that have not shown the key yet. Beyond that the oldest is closed: a client with the key sends it at once.
MOST_UNKNOWN = 256
LINGER_SECONDS, LINGER_BYTES = 1.0, 2**20
BACKLOG = 1024
ACCEPT_AGAIN_SECONDS = 0.1
CLOSE_SECONDS = 2.0


class ConnectionTarget(Protocol):
    """What admitted connections are given to: `engine_seccomp.Handover` or `engine_relay.Relay`."""

    @property
    def problem(self) -> OSError | None: ...
    def attend(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    async def take(self, client: socket.socket, head: bytes, /) -> None: ...
    def close(self) -> None: ...


class EngineListener:
    """Admits connections for one life of an engine, in a thread of its own: the starting thread may block on a client.

    `bound` is the socket that clients connect to once `open` was called. With `hands_over`, `behind` takes connections
    whose first head has only been peeked at. The constructor raises `OSError` when no descriptor is left.
    """

    def __init__(self, bound: socket.socket, key: str, behind: ConnectionTarget, *, hands_over: bool) -> None:
        self._listener = bound
        self._listener.setblocking(False)
        self._key = key
        self._behind = behind
        self._looks = socket.MSG_PEEK if hands_over else 0
        self._unknown: dict[asyncio.Task[bool], None] = {}
        self._do: Callable[[Callable[[], object]], object] = lambda _: None
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="engine-listener", daemon=True)
        attended = threading.Event()
        self._attended = attended.set
        self._failure: Exception | None = None
        self._thread.start()
        attended.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def problem(self) -> OSError | None:
        """Why the engine cannot work behind this listener, None as long as it can."""
        return self._behind.problem

    def open(self) -> None:
        """Accept connections from now on. Raises `OSError` when another process has the port."""
        self._listener.listen(BACKLOG)
        self._do(self._listen)

    def close(self) -> None:
        """Accept no more connections. Those that were handed over stay open."""
        self._do(self._stop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            # uvloop and Windows' own loop have no readers for every descriptor.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except Exception as problem:
            logger.exception(
                "The listener of the embedded engine failed: no client can connect any more. Restart the process."
            )
            self._failure = problem
        finally:
            self._attended()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def do(act: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed: `close` was called before
                loop.call_soon_threadsafe(act)

        self._do, self._stop = do, stopped.set
        try:
            self._behind.attend(loop)
            self._attended()
            await stopped.wait()
        finally:
            loop.remove_reader(self._listener)
            self._listener.close()
            for task in self._unknown:
                task.cancel()
            await asyncio.gather(*self._unknown, return_exceptions=True)
            self._behind.close()

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            loop.remove_reader(self._listener)  # no descriptor is free
            loop.call_later(ACCEPT_AGAIN_SECONDS, self._listen)
            return
        client.setblocking(False)
        if len(self._unknown) >= MOST_UNKNOWN:
            next(iter(self._unknown)).cancel()
        task = loop.create_task(self._is_admitted(client))
        self._unknown[task] = None
        task.add_done_callback(partial(self._decided, client))

    def _decided(self, client: socket.socket, task: asyncio.Task[bool]) -> None:
        self._unknown.pop(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None or not task.result():
            client.close()
        if failure is not None:
            logger.error("A connection to the embedded engine failed before it was admitted.", exc_info=failure)

    async def _is_admitted(self, client: socket.socket) -> bool:
        """Give the connection to the engine, or answer why not. Return whether it was given."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await self._head(client)
            refusal = refusal_of(head, self._key)
            if refusal is None:
                await self._behind.take(client, head)
            else:
                await _refuse(client, refusal)
        except (OSError, EOFError):  # a TimeoutError is an OSError
            return False
        return refusal is None

    async def _head(self, client: socket.socket) -> bytes:
        """The first bytes that were sent, up to the end of a head and maybe more. Raises `EOFError` without one."""
        head = b""
        while END_OF_HEAD not in head:
            if len(head) >= HEAD_BYTES:
                raise EOFError
            if self._looks:
                # What has been looked at stays: wait until there is more than that.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(head) + 1)
            await _readable(client)
            found = client.recv(HEAD_BYTES - (0 if self._looks else len(head)), self._looks)
            if len(found) <= (len(head) if self._looks else 0):
                raise EOFError
            head = found if self._looks else head + found
        if self._looks:
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
    """Answer 403. What was sent is read first: a connection that is closed before loses the answer."""
    loop = asyncio.get_running_loop()
    body = orjson.dumps({"__type": "com.amazon.coral.service#AccessDeniedException", "message": reason})
    head = (
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(LINGER_SECONDS):
        await loop.sock_sendall(client, head.encode() + body)
        client.shutdown(socket.SHUT_WR)
        left = LINGER_BYTES
        while left > 0 and (found := await loop.sock_recv(client, 2**16)):
            left -= len(found)
