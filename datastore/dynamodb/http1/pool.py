"""A pool of kept connections, and the queue of callers that wait for one."""

import asyncio
import logging
from collections import deque
from typing import Any, NamedTuple

from msgspec import Struct

from datastore.dynamodb.http1.connection import CHUNK_BYTES, HttpConnection, ResponseFuture
from datastore.dynamodb.http1.connector import HttpOrigin, connect
from datastore.dynamodb.http1.proxies import TunnelFailed
from datastore.dynamodb.http1.types import DeadlineExceeded, HttpLimits, HttpResponse, NotConnected
from datastore.primitives.retries import OutageLog

CLOSING_SECONDS = 1.0

logger = logging.getLogger(__name__)


class StartedRequest(Struct, eq=False):
    """A request that was sent, and the future of its response."""

    connection: HttpConnection
    response: ResponseFuture

    def abandon(self) -> None:
        """Close the connection unless the response has arrived. Its caller has stopped waiting."""
        self.connection.abandon(self.response)


class Pool:
    """A pool of at most `limits.connections` connections, over all origins. Waiting callers are served in order.

    The pool does not depend on the current task or its cancellation, so that any driver of coroutines may call it.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.closed = False
        # A connection occupies a slot from before it is opened until it is lost.
        self._free_slots = limits.connections
        self._open: set[HttpConnection] = set()
        # The connection that has been idle for longest comes first.
        self._idle: list[HttpConnection] = []
        self._waiting: deque[_PoolWaiter] = deque()
        self._connecting: set[asyncio.Task[HttpConnection]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self._proxy_outages = OutageLog(
            lambda problem: logger.error("The store cannot be reached: %s", problem),
            lambda: logger.info("The store can be reached through the proxy again."),
        )

    async def send(
        self, origin: HttpOrigin, head: bytes, body: bytes, deadline: float, *, fresh: bool = False
    ) -> HttpResponse:
        """Send a request and return its response. With `fresh` no idle connection is used.

        `deadline` is in the event loop's time. Raises `NotConnected`, `ResponseLost`, `ResponseTimeout` or
        `DeadlineExceeded`.
        """
        connection = self._idle_connection(origin) if self._idle and not fresh else None
        if connection is None:
            connection = await self._acquire(origin, deadline)
        waiter = connection.send(head, body, deadline)
        try:
            if connection.writing:
                await connection.send_body(body, waiter)
            return await waiter
        except BaseException:
            connection.abandon(waiter)
            raise

    @property
    def has_idle(self) -> bool:
        """Whether a connection is idle, of any origin."""
        return bool(self._idle)

    def start(self, origin: HttpOrigin, head: bytes, body: bytes, deadline: float) -> StartedRequest | None:
        """Send a request on an idle connection. Return it, or None if there is no such connection or the body is large.

        The caller awaits the `response`, which raises the errors of `send`, or abandons it.
        """
        connection = self._idle_connection(origin) if len(body) <= CHUNK_BYTES else None
        return None if connection is None else StartedRequest(connection, connection.send(head, body, deadline))

    async def close(self) -> None:
        """Close all connections. Waiting callers receive an error."""
        self.closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in tuple(self._connecting):
            task.cancel()
        while self._waiting:
            self._waiting.popleft().fail(NotConnected())
        for connection in tuple(self._open):
            connection.close()
        pending: set[asyncio.Future[Any]] = {*self._connecting}
        if self._open:
            self._all_closed = self._loop.create_future()
            pending.add(self._all_closed)
        if pending:
            await asyncio.wait(pending, timeout=CLOSING_SECONDS)

    # --- Getting a connection -----------------------------------------------------------------------------------------

    def _idle_connection(self, origin: HttpOrigin) -> HttpConnection | None:
        """Return the connection that was used last, so that surplus connections stay idle and expire."""
        idle = self._idle
        at = len(idle)
        while at:
            at -= 1
            connection = idle[at]
            if connection.closing:
                del idle[at]  # the server has closed it: a request would be lost
            elif connection.origin == origin:
                del idle[at]
                if connection.idle_since > self._loop.time() - self._limits.idle_seconds:
                    return connection
                connection.close()
        return None

    async def _acquire(self, origin: HttpOrigin, deadline: float) -> HttpConnection:
        """Return a new connection, or one that another caller released."""
        while not self.closed:
            if self._loop.time() >= deadline:
                raise DeadlineExceeded(sent=False)
            if self._free_slots > 0:
                self._free_slots -= 1
                return await self._connect(origin, deadline)
            connection = await self._wait_for_connection(origin, deadline)
            if connection is None:
                return await self._connect(origin, deadline)
            if not connection.closing:
                return connection
            # The connection was lost before this caller resumed. Its slot goes to the next waiter.
        raise NotConnected

    async def _wait_for_connection(self, origin: HttpOrigin, deadline: float) -> HttpConnection | None:
        """Wait for a connection. Return None for the slot of a new one."""
        waiter = _PoolWaiter(origin, self._loop.create_future())
        self._waiting.append(waiter)
        if self._idle:
            # An idle connection has another origin or is not fresh. Closing it frees its slot.
            self._idle.pop(0).close()
        timer = self._loop.call_at(deadline, waiter.fail, DeadlineExceeded(sent=False))
        try:
            return await waiter.future
        except BaseException:
            if waiter.is_served:
                self._hand_over(waiter.future.result())
            waiter.future.cancel()
            raise
        finally:
            timer.cancel()

    async def _connect(self, origin: HttpOrigin, deadline: float) -> HttpConnection:
        """Open a connection in a slot that was taken. A task of its own does it, so that it can be cancelled."""
        task = self._loop.create_task(self._open_connection(origin))
        self._connecting.add(task)
        task.add_done_callback(self._connect_finished)
        try:
            await asyncio.wait([task], timeout=deadline - self._loop.time())
        except BaseException:
            if not task.cancel() and not task.cancelled() and task.exception() is None:
                self._hand_over(task.result())
            raise
        if task.cancel():
            raise DeadlineExceeded(sent=False)
        try:
            connection = task.result()
        except TimeoutError as problem:
            raise NotConnected(timed_out=True) from problem
        except (OSError, asyncio.CancelledError) as problem:  # cancelled by closing the pool
            raise NotConnected from problem
        if connection.closing:
            raise NotConnected
        return connection

    async def _open_connection(self, origin: HttpOrigin) -> HttpConnection:
        try:
            connection = await connect(
                origin, self._limits.connect_seconds, lambda: HttpConnection(origin, self._limits, self)
            )
        except TunnelFailed as problem:
            self._proxy_outages.record_failure(problem)
            raise
        self._proxy_outages.record_success()
        if connection.closing:
            raise ConnectionError("the connection was lost right after it was opened")
        self._open.add(connection)
        return connection

    def _connect_finished(self, task: asyncio.Task[HttpConnection]) -> None:
        """Free the slot of a connection that was not opened, also if the task was cancelled before it began."""
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._hand_over(None)

    # --- Returning a connection ---------------------------------------------------------------------------------------

    def release(self, connection: HttpConnection) -> None:
        """Pass a free connection to the next waiter, or keep it idle."""
        waiter = self._next_waiter() if self._waiting else None
        if waiter is not None:
            if waiter.origin == connection.origin:
                waiter.future.set_result(connection)
            else:
                self._waiting.appendleft(waiter)
                connection.close()
        elif self.closed:
            connection.close()
        else:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._limits.idle_seconds, self._sweep)

    def discard(self, connection: HttpConnection) -> None:
        """Free the slot of a lost connection. `_connect_finished` frees it if the connection was never open."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._hand_over(None)
        if self._all_closed is not None and not self._open and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _hand_over(self, connection: HttpConnection | None) -> None:
        """Pass on the connection of a caller that has left, or a free slot."""
        if connection is not None:
            if not connection.closing:
                self.release(connection)
            return
        waiter = self._next_waiter()
        if waiter is None:
            self._free_slots += 1
        else:
            waiter.future.set_result(None)

    def _next_waiter(self) -> "_PoolWaiter | None":
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.future.done():
                return waiter
        return None

    def _sweep(self) -> None:
        """Close the connections that were idle for too long. Set the timer for the next one."""
        self._sweep_timer = None
        now = self._loop.time()
        while self._idle and self._idle[0].idle_since <= now - self._limits.idle_seconds:
            self._idle.pop(0).close()
        if self._idle:
            self._sweep_timer = self._loop.call_at(self._idle[0].idle_since + self._limits.idle_seconds, self._sweep)


class _PoolWaiter(NamedTuple):
    """A caller that waits for a connection or a slot."""

    origin: HttpOrigin
    future: "asyncio.Future[HttpConnection | None]"

    def fail(self, problem: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(problem)

    @property
    def is_served(self) -> bool:
        future = self.future
        return future.done() and not future.cancelled() and future.exception() is None
