"""Where clients of the embedded engine connect: whose first request bears the access key is let through.

Each connection is checked once, at the head of its first request. That is enough. A connection has one peer, so all
that follows comes from who has shown the key, and could do as much by a first request. Nobody else's requests share
the connection, so there is nobody to smuggle one to: a proxy that mixes requests of several peers in one connection
must check the key itself. A page in a browser cannot come by such a connection, as it does not know the key.
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

from datastore.engine_access import END_OF_HEAD, refusal_of

logger = logging.getLogger(__name__)

HEAD_BYTES = 2**14
HEAD_SECONDS = 5.0
# Connections that have not shown the key yet. Beyond that the oldest goes: who has the key shows it at once.
MOST_UNKNOWN = 256
LINGER_SECONDS, LINGER_BYTES = 1.0, 2**20
BACKLOG = 1024
ACCEPT_AGAIN_SECONDS = 0.1
CLOSE_SECONDS = 2.0


class Behind(Protocol):
    """What is behind the door: `engine_gate.Gate` or `engine_relay.Relay`."""

    @property
    def problem(self) -> OSError | None: ...
    def attend(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    async def take(self, visitor: socket.socket, head: bytes, /) -> None: ...
    def close(self) -> None: ...


class Door:
    """One per life of an engine, in a thread of its own: who connects may block the thread that started the engine.

    `bound` is the socket that clients connect to once the door is opened. `hands_over` tells that what is behind takes
    connections whose first head has only been looked at. Making one raises `OSError` when no descriptor is left.
    """

    def __init__(self, bound: socket.socket, key: str, behind: Behind, *, hands_over: bool) -> None:
        self._listener = bound
        self._listener.setblocking(False)
        self._key = key
        self._behind = behind
        self._looks = socket.MSG_PEEK if hands_over else 0
        self._unknown: dict[asyncio.Task[bool], None] = {}
        self._do: Callable[[Callable[[], object]], object] = lambda _: None
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="engine-door", daemon=True)
        attended = threading.Event()
        self._attended = attended.set
        self._failure: Exception | None = None
        self._thread.start()
        attended.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def problem(self) -> OSError | None:
        """Why the engine cannot work behind this door, None as long as it can."""
        return self._behind.problem

    def open(self) -> None:
        """Let in who comes from now on. Raises `OSError` when another process has the port."""
        self._listener.listen(BACKLOG)
        self._do(self._listen)

    def close(self) -> None:
        """Let nobody in any more. Connections that were handed over are the engine's."""
        self._do(self._stop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            # uvloop and Windows' own loop have no readers for every descriptor.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except Exception as problem:
            logger.exception("Nobody can connect to the embedded engine any more.")
            self._failure = problem
        finally:
            self._attended()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def do(act: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the door was closed before
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
            visitor, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            loop.remove_reader(self._listener)  # no descriptor is free
            loop.call_later(ACCEPT_AGAIN_SECONDS, self._listen)
            return
        visitor.setblocking(False)
        if len(self._unknown) >= MOST_UNKNOWN:
            next(iter(self._unknown)).cancel()
        task = loop.create_task(self._is_admitted(visitor))
        self._unknown[task] = None
        task.add_done_callback(partial(self._decided, visitor))

    def _decided(self, visitor: socket.socket, task: asyncio.Task[bool]) -> None:
        self._unknown.pop(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None or not task.result():
            visitor.close()
        if failure is not None:
            logger.error("A connection to the embedded engine was not let in.", exc_info=failure)

    async def _is_admitted(self, visitor: socket.socket) -> bool:
        """Whether the connection was handed over; if not, its peer has been told why."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await self._head(visitor)
            refusal = refusal_of(head, self._key)
            if refusal is None:
                await self._behind.take(visitor, head)
            else:
                await _refuse(visitor, refusal)
        except (OSError, EOFError):  # a TimeoutError is an OSError
            return False
        return refusal is None

    async def _head(self, visitor: socket.socket) -> bytes:
        """The first bytes that were sent, up to the end of a head and maybe more. Raises `EOFError` without one."""
        head = b""
        while END_OF_HEAD not in head:
            if len(head) >= HEAD_BYTES:
                raise EOFError
            if self._looks:
                # What has been looked at stays: wait until there is more than that.
                visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(head) + 1)
            await _readable(visitor)
            found = visitor.recv(HEAD_BYTES - (0 if self._looks else len(head)), self._looks)
            if len(found) <= (len(head) if self._looks else 0):
                raise EOFError
            head = found if self._looks else head + found
        if self._looks:
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return head


async def _readable(visitor: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(visitor, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(visitor)


async def _refuse(visitor: socket.socket, reason: str) -> None:
    """Answer 403. What was sent is read first: a connection that is closed before loses the answer."""
    loop = asyncio.get_running_loop()
    body = orjson.dumps({"__type": "com.amazon.coral.service#AccessDeniedException", "message": reason})
    head = (
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(LINGER_SECONDS):
        await loop.sock_sendall(visitor, head.encode() + body)
        visitor.shutdown(socket.SHUT_WR)
        left = LINGER_BYTES
        while left > 0 and (found := await loop.sock_recv(visitor, 2**16)):
            left -= len(found)
