"""Server-sent events: the answers of an operation as a stream, in graphql-sse's distinct connections mode.

https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from math import ceil
from typing import Any

from starlette.types import Receive, Send

from datastore.errors import Unauthenticated
from server.admission.callers import Caller
from server.http.media_types import EVENTS
from server.operations.outcome import Outcome, failure
from server.shutdown import Delays, one_after_another
from server.subscriptions.subscriber import PullPosition

EVENTS_PER_TURN = 16
HEADERS = [
    (b"content-type", f"{EVENTS}; charset=utf-8".encode()),
    (b"cache-control", b"no-store"),
    (b"vary", b"accept"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back until there are many
]
# By its id a browser tells that it has seen the end: an EventSource connects again whatever was said.
END_ID = "end"
# Without data a browser would not tell its page of the event.
_COMPLETE = f"id: {END_ID}\nevent: complete\ndata:\n\n".encode()
_HEARTBEAT = b":\n\n"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Seconds: between signs of life, until a client that does not read is given up, until one connects again.

    How `gateway.py` serves, a client that does not read has lost its connection before it is given up.
    """

    heartbeat: float = 12.0
    send_timeout: float = 10.0
    retry: float = 3.0


class EventStreams:
    """The streams that are open, until each ends by itself or all are closed."""

    def __init__(self, limits: StreamLimits = StreamLimits(), clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._open: dict[_Stream, asyncio.Task[Any] | None] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self,
        outcomes: AsyncGenerator[Outcome, None],
        caller: Caller,
        receive: Receive,
        send: Send,
        pull_position: PullPosition | None = None,
        *,
        ends_soon: bool = False,
    ) -> bool:
        """Answer with the outcomes, which are closed when this returns: False when the client does not read.

        `pull_position` tell where the outcomes are while there are none. What `ends_soon` is no subscription.
        """
        stream = _Stream(outcomes, caller, self._limits, self._clock, receive, send, pull_position or PullPosition())
        stream.ends_soon = ends_soon
        self._open[stream] = asyncio.current_task()
        try:
            await stream.run()
        except _NotReading:
            return False
        finally:
            del self._open[stream]
        return True

    async def drain(self, delays: Delays, seconds: float) -> None:
        """End all without `complete`, each with a moment to come again; answers are waited for. In so many seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        served = [task for task in self._open.values() if task is not None]
        lasting = [stream for stream in self._open if not stream.ends_soon]
        await one_after_another(lasting, lambda stream: stream.close_when_answered(delays.next_ms()))
        if served:
            _, late = await asyncio.wait(served, timeout=max(0.0, deadline - clock()))
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """End all streams without `complete`, so that clients come again, and wait until they have ended."""
        for stream in self._open:
            stream.end()
        served = [task for task in self._open.values() if task is not None]
        if served:
            await asyncio.wait(served)


class _NotReading(Exception):
    """The client does not take what is sent."""


class _Stream:
    """One stream: a task that tells the outcomes, and one that gives signs of life and notices when nobody is left."""

    def __init__(
        self,
        outcomes: AsyncGenerator[Outcome, None],
        caller: Caller,
        limits: StreamLimits,
        clock: Callable[[], float],
        receive: Receive,
        send: Send,
        pull_position: PullPosition,
    ) -> None:
        self._outcomes = outcomes
        self._expires_at = caller.identity.expires_at if caller.identity else None
        self._limits = limits
        self._clock = clock
        self._receive = receive
        self._send = send
        self._whereabouts = pull_position
        self._writing = asyncio.Lock()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told = 0
        self._place: str | None = None  # the last that was told, where ids are places
        self._retry_ms: int | None = None
        self.ends_soon = False

    def close_when_answered(self, retry_ms: int) -> None:
        """The client is to come again after so long."""
        self._retry_ms = retry_ms
        self.end()

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def run(self) -> None:
        """Raises `_NotReading`."""
        telling, attending = asyncio.create_task(self._tell()), asyncio.create_task(self._attend())
        try:
            await asyncio.wait((telling, attending, self._over), return_when=asyncio.FIRST_COMPLETED)
            place = self._gone_forward()
        finally:
            await self._stop(telling, attending)
        for task in (telling, attending):
            if not task.cancelled():
                task.result()
        if not attending.cancelled() and attending.result():
            await self._tell_expiry()
            place = b""
        # It counts for the next connection alone: each begins with what is usual.
        retry = b"" if self._retry_ms is None else b"retry: %d\n\n" % self._retry_ms
        await self._write(place + retry, more=False)

    async def _stop(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=self._limits.send_timeout)
        if stuck:
            _log.error("%d tasks of a stream do not end: %s", len(stuck), stuck)

    async def _tell(self) -> None:
        """Send what comes of the operation, to its end."""
        # The answer begins at once: a subscription may have nothing to tell for hours.
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._write(f"retry: {self._limits.retry * 1000:.0f}\n\n".encode())
        try:
            async with aclosing(self._outcomes):
                async for outcome in self._outcomes:
                    if self._has_expired():
                        await self._tell_expiry()
                        return
                    await self._next(outcome)
                    if outcome.is_failure:
                        await self._end_after(outcome)
                        return
        except _NotReading:
            raise
        except Exception as error:
            await self._next(failure(error))
        await self._write(_COMPLETE)

    async def _end_after(self, last: Outcome) -> None:
        """A subscription that may succeed later does not complete, and keeps its last id: its client comes again."""
        if not self._comes_again(last):
            await self._write(_COMPLETE)
            return
        seconds = last.formatted_errors[0]["extensions"].get("retryAfter")
        if seconds is not None:
            self._retry_ms = ceil(seconds * 1000)

    def _comes_again(self, last: Outcome) -> bool:
        retryable = all(error["extensions"].get("retryable") for error in last.formatted_errors)
        return last.is_failure and retryable and not self.ends_soon

    async def _attend(self) -> bool:
        """Returns when the client has gone (False), or when its token has expired."""
        while True:
            try:
                async with asyncio.timeout(self._limits.heartbeat):
                    if (await self._receive())["type"] == "http.disconnect":
                        return False
            except TimeoutError:
                if self._has_expired():
                    return True
                await self._write(self._gone_forward() or _HEARTBEAT)

    def _gone_forward(self) -> bytes:
        """The last id, where it is another than the client was told: nothing came of what happened since."""
        mark = self._whereabouts.settled_position()
        place = self._whereabouts.after if self._place is None else self._place
        if mark is None or place is None or (moved := mark.id_after(place)) == place:
            return b""
        self._place = moved
        return _last_id(moved)

    def _has_expired(self) -> bool:
        return self._expires_at is not None and self._clock() >= self._expires_at

    async def _tell_expiry(self) -> None:
        await self._next(failure(Unauthenticated("The token has expired.")))
        await self._write(_COMPLETE)

    async def _next(self, outcome: Outcome) -> None:
        self._told += 1
        # A source that always has an event ready, and a client that takes it, would leave nobody else a turn.
        if self._told % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)
        if outcome.is_position_only:
            self._place = outcome.event_id or ""
            await self._write(_last_id(self._place))
            return
        self._place = outcome.event_id or self._place
        # Where ids are places, what has none leaves the one before it.
        counts = self._place is None and self._whereabouts.after is None and not self._comes_again(outcome)
        id = str(self._told) if counts else outcome.event_id
        line = b"" if id is None else _id(id)
        # JSON has no line breaks but those that it escapes.
        await self._write(b"%bevent: next\ndata: %b\n\n" % (line, outcome.body))

    async def _write(self, text: bytes, *, more: bool = True) -> None:
        """It blocks while the client does not read: no event is made before the one before it has been taken."""
        async with self._writing:
            try:
                async with asyncio.timeout(self._limits.send_timeout):
                    await self._send({"type": "http.response.body", "body": text, "more_body": more})
            except TimeoutError:
                raise _NotReading from None


def _last_id(id: str) -> bytes:
    """Without data it is no event to a client, but it is the last id."""
    return _id(id) + b"\n"


def _id(id: str) -> bytes:
    """Its line, which ends only where it is to end."""
    assert id.isprintable(), id
    return b"id: %b\n" % id.encode()


async def send_end(send: Send) -> None:
    """The answer to a browser that comes again after the end: it stays away."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"cache-control", b"no-store")]})
    await send({"type": "http.response.body", "body": b""})
