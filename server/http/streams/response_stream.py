"""Streamed responses: the results of an operation, sent one by one until the operation or the client ends."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from starlette.types import Receive, Send

from datastore.errors import Unauthenticated
from server.admission.callers import Caller
from server.operations.outcome import Outcome, failure
from server.operations.request import Transport
from server.shutdown import Delays, end_gradually
from server.subscriptions.result_stream import ResultStream

RESULTS_PER_TURN = 16
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"vary", b"accept"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers results
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The times of streams, in seconds."""

    #: Between two heartbeats of a stream without results.
    heartbeat: float = 12.0
    #: Until the end of a stream whose client does not read. The gateway's own server aborts the connection earlier.
    send_timeout: float = 10.0
    #: Until a client reconnects.
    retry: float = 3.0


class StreamFormat(Protocol):
    """The bytes of a stream. Between any two calls the client can process what it has received."""

    transport: Transport
    #: The media type of the response, with its parameters.
    content_type: bytes
    heartbeat: bytes
    #: The end of an operation.
    complete: bytes

    def begin(self, retry_seconds: float) -> bytes:
        """Return the first bytes. A client whose stream is cut subscribes again after `retry_seconds`."""

    def result(self, outcome: Outcome, id: str | None, *, will_retry: bool) -> bytes:
        """Return a result. `id` is for the client's next request. `will_retry` marks a temporary failure."""

    def position(self, id: str) -> bytes:
        """Return a resume id without a result."""

    def end(self, retry_ms: int | None, *, is_cut: bool) -> bytes:
        """Return the last bytes.

        After a cut, or a failure that may be temporary, the client subscribes again after `retry_ms`.
        """


class BegunOutcomes:
    """Outcomes of which the first is already known. The others follow it."""

    def __init__(self, first: Outcome, others: AsyncGenerator[Outcome, None]) -> None:
        self._first: Outcome | None = first
        self._others = others

    def __aiter__(self) -> "BegunOutcomes":
        return self

    async def __anext__(self) -> Outcome:
        first, self._first = self._first, None
        return await anext(self._others) if first is None else first

    async def aclose(self) -> None:
        await self._others.aclose()


# The outcomes of an operation. Those of a subscription have a resume position.
Outcomes = AsyncGenerator[Outcome, None] | ResultStream | BegunOutcomes


class ResponseStreams:
    """The open streams of the process."""

    def __init__(self, limits: StreamLimits = StreamLimits(), clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._open: dict[_Stream, asyncio.Task[Any] | None] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self,
        outcomes: Outcomes,
        format: StreamFormat,
        caller: Caller,
        receive: Receive,
        send: Send,
        *,
        is_subscription: bool = True,
    ) -> bool:
        """Send the outcomes, and close them. Return False if the client did not read."""
        stream = _Stream(
            outcomes, format, caller, self._limits, self._clock, receive, send, is_subscription=is_subscription
        )
        self._open[stream] = asyncio.current_task()
        try:
            await stream.run()
        except _NotReading:
            return False
        finally:
            del self._open[stream]
            await outcomes.aclose()  # the stream may have ended before it began to send
        return True

    async def drain(self, delays: Delays, seconds: float) -> None:
        """End the subscriptions without `complete`, each with its own delay for the client to reconnect.

        Wait at most `seconds` for the streams to end, queries and mutations included, then cancel them.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        served = [task for task in self._open.values() if task is not None]
        subscriptions = [stream for stream in self._open if stream.is_subscription]
        await end_gradually(subscriptions, lambda stream: stream.end_with_retry(delays.next_ms()))
        if served:
            _, late = await asyncio.wait(served, timeout=max(0.0, deadline - clock()))
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """End all streams without `complete`, so that their clients reconnect, and wait until they have ended."""
        for stream in self._open:
            stream.end()
        served = [task for task in self._open.values() if task is not None]
        if served:
            await asyncio.wait(served)


class _NotReading(Exception):
    """The client did not read within `StreamLimits.send_timeout`."""


class _Stream:
    """One stream, with two tasks: one sends the results, the other sends heartbeats and notices a disconnect."""

    def __init__(
        self,
        outcomes: Outcomes,
        format: StreamFormat,
        caller: Caller,
        limits: StreamLimits,
        clock: Callable[[], float],
        receive: Receive,
        send: Send,
        *,
        is_subscription: bool,
    ) -> None:
        self.is_subscription = is_subscription
        self._outcomes = outcomes
        self._format = format
        self._expires_at = caller.identity.expires_at if caller.identity else None
        self._limits = limits
        self._clock = clock
        self._receive = receive
        self._send = send
        self._results = outcomes if isinstance(outcomes, ResultStream) else None
        self._writing = asyncio.Lock()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = 0  # results
        self._resume_id: str | None = None  # the last one that was sent
        self._retry_ms: int | None = None

    def end_with_retry(self, retry_ms: int) -> None:
        """End the stream. The client reconnects after `retry_ms`."""
        self._retry_ms = retry_ms
        self.end()

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def run(self) -> None:
        """Serve the stream to its end. Raises `_NotReading`."""
        sending, watching = asyncio.create_task(self._send_results()), asyncio.create_task(self._watch())
        try:
            await asyncio.wait((sending, watching, self._over), return_when=asyncio.FIRST_COMPLETED)
            position = self._advanced_position()
        finally:
            await self._stop(sending, watching)
        for task in (sending, watching):
            if not task.cancelled():
                task.result()
        expired = not watching.cancelled() and watching.result()
        if expired:
            await self._send_expiry()
            position = b""
        # A stream that has ended by itself at the same time is complete.
        is_cut = self._over.done() and sending.cancelled() and not expired
        end = self._format.end(self._retry_ms, is_cut=is_cut)
        await self._write(position + end, more=False)

    async def _stop(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=self._limits.send_timeout)
        if stuck:
            _log.error("%d tasks of a stream do not end: %s", len(stuck), stuck)

    async def _send_results(self) -> None:
        """Send the results of the operation until it ends."""
        # The response begins at once: the first event of a subscription may come hours later.
        headers = [(b"content-type", self._format.content_type), *_HEADERS]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(self._format.begin(self._limits.retry))
        try:
            async with aclosing(self._outcomes):
                async for outcome in self._outcomes:
                    if self._has_expired():
                        await self._send_expiry()
                        return
                    await self._next(outcome)
                    if outcome.is_failure:
                        await self._end_after(outcome)
                        return
        except _NotReading:
            raise
        except Exception as error:
            await self._next(failure(error))
        await self._write(self._format.complete)

    async def _end_after(self, last: Outcome) -> None:
        """Send `complete`, unless the subscription may succeed later: then its client reconnects with its last id."""
        if not self._is_retryable(last):
            await self._write(self._format.complete)
            return
        seconds = last.formatted_errors[0]["extensions"].get("retryAfter")
        if seconds is not None:
            self._retry_ms = ceil(seconds * 1000)

    def _is_retryable(self, outcome: Outcome) -> bool:
        """Return whether the outcome is a failure of a subscription that may succeed later."""
        retryable = all(error["extensions"].get("retryable") for error in outcome.formatted_errors)
        return outcome.is_failure and retryable and self.is_subscription

    async def _watch(self) -> bool:
        """Send heartbeats. Return False when the client disconnects, True when its token expires."""
        while True:
            try:
                async with asyncio.timeout(self._limits.heartbeat):
                    if (await self._receive())["type"] == "http.disconnect":
                        return False
            except TimeoutError:
                if self._has_expired():
                    return True
                await self._write(self._advanced_position() or self._format.heartbeat)

    def _advanced_position(self) -> bytes:
        """Return the new resume id if changes without events have advanced it, and `b""` otherwise."""
        position = None if self._results is None else self._results.settled_position()
        last_id = self._resumes_after if self._resume_id is None else self._resume_id
        if position is None or last_id is None or (advanced := position.id_after(last_id)) == last_id:
            return b""
        self._resume_id = advanced
        return self._format.position(advanced)

    @property
    def _resumes_after(self) -> str | None:
        return None if self._results is None else self._results.resumes_after

    def _has_expired(self) -> bool:
        return self._expires_at is not None and self._clock() >= self._expires_at

    async def _send_expiry(self) -> None:
        await self._next(failure(Unauthenticated("The token has expired.")))
        await self._write(self._format.complete)

    async def _next(self, outcome: Outcome) -> None:
        self._sent += 1
        # A source that always has an event, and a client that accepts it, would leave other tasks no turn.
        if self._sent % RESULTS_PER_TURN == 0:
            await asyncio.sleep(0)
        if outcome.is_position_only:
            self._resume_id = outcome.event_id or ""
            await self._write(self._format.position(self._resume_id))
            return
        self._resume_id = outcome.event_id or self._resume_id
        # In a stream with resume ids, a result without one has no id, so that the client keeps the previous id.
        will_retry = self._is_retryable(outcome)
        counts = self._resume_id is None and self._resumes_after is None and not will_retry
        id = str(self._sent) if counts else outcome.event_id
        await self._write(self._format.result(outcome, id, will_retry=will_retry))

    async def _write(self, text: bytes, *, more: bool = True) -> None:
        """Send bytes. Wait while the client does not read, so that no further event is requested.

        Raises `_NotReading`.
        """
        async with self._writing:
            try:
                async with asyncio.timeout(self._limits.send_timeout):
                    await self._send({"type": "http.response.body", "body": text, "more_body": more})
            except TimeoutError:
                raise _NotReading from None
