"""One connection of graphql-transport-ws: reading, writing, keeping time, and a task for each operation."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import orjson
from graphql.language import OperationType
from starlette.datastructures import Headers
from starlette.types import Receive, Send

from datastore.errors import BadUserInput, SlowSubscriber, Throttled
from edge.answers import Outcome, domain_error, encode, failure, masked, told_error
from edge.capacity.addresses import payer
from edge.capacity.places import Places
from edge.execution import Runner
from edge.operations import Caller, Operation, Transport
from edge.requests import Identify, Request
from edge.websocket.messages import GOING_AWAY, Broken, Farewell, Message, read_message, requested_operation
from edge.websocket.speaker import Speaker, without_authorization

# RFC 6455, 5.5: a close frame holds 125 bytes, two of them the code.
MAX_REASON_BYTES = 123
EVENTS_PER_TURN = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Seconds, and counts."""

    init_timeout: float = 5.0
    ping_every: float = 12.0
    unanswered_pings: int = 2
    send_timeout: float = 10.0
    max_operations: int = 100


LIMITS = SocketLimits()


@dataclass(frozen=True, slots=True)
class Service:
    """What is behind every socket."""

    runner: Runner
    identify: Identify
    limits: SocketLimits
    clock: Callable[[], float]
    places: Places


# Nothing is said: the peer has gone, or does not read. The protocol reserves 1006 for that.
_GONE = Farewell(1006)


class Socket:
    """One connection: a reader, a keeper of time, and a task for each operation.

    Whoever finds that it is over calls `end`; `run` then stops everything and says goodbye.
    """

    def __init__(self, service: Service, headers: Headers, address: str, receive: Receive, send: Send) -> None:
        self._runner = service.runner
        self._limits = service.limits
        self._places = service.places
        self._speaker = Speaker(service.identify, service.clock)
        self._address = address
        self.counted_for = payer(Caller(None, address))
        self._headers = headers
        self._receive = receive
        self._send = send
        self._writing = asyncio.Lock()
        self._over: asyncio.Future[Farewell] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, asyncio.Task[None]] = {}
        self._initialised = False
        self._acknowledged = False
        self._unanswered = 0

    def end(self, farewell: Farewell) -> None:
        """Let the socket end. The first reason given counts."""
        if not self._over.done():
            self._over.set_result(farewell)

    async def run(self) -> None:
        if not self._over.done():
            self._spawn(self._read())
            self._spawn(self._keep_time())
        farewell = GOING_AWAY
        try:
            farewell = await self._over
        finally:
            self.end(farewell)
            await self._stop()
            await self._say(farewell)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Broken):
            self.end(error.farewell)
        elif error is not None:
            error_id = masked(error, "a socket")["extensions"]["errorId"]
            self.end(Farewell(4500, f"Internal server error {error_id}"))

    async def _stop(self) -> None:
        self._operations.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=self._limits.send_timeout) if tasks else ((), ())
        if stuck:
            _log.error("%d tasks of a socket do not end: %s", len(stuck), stuck)

    async def _say(self, farewell: Farewell) -> None:
        if farewell is _GONE:
            return
        reason = farewell.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        await self._deliver({"type": "websocket.close", "code": farewell.code, "reason": reason})

    async def _deliver(self, message: dict[str, Any]) -> None:
        """Hand a message to the server. It blocks while the peer does not read; then the peer is dropped."""
        try:
            async with asyncio.timeout(self._limits.send_timeout):
                await self._send(message)
        except (TimeoutError, OSError, RuntimeError):
            self.end(_GONE)

    async def _write(self, message: dict[str, Any]) -> None:
        text = encode(message).decode()
        async with self._writing:
            if not self._over.done():
                await self._deliver({"type": "websocket.send", "text": text})

    async def _answer(self, id: str, message: dict[str, Any], *, last: bool = False) -> None:
        """Send a message of the operation that this task works on, unless nobody waits for it any more.

        Until its last message goes out it holds its id: the peer cannot know earlier that it is over, and those that
        wait for a slow peer count among the open ones.
        """
        text = encode({"id": id, **message}).decode()
        async with self._writing:
            if not self._is_wanted(id):
                return
            if last:
                del self._operations[id]
            await self._deliver({"type": "websocket.send", "text": text})

    async def _keep_time(self) -> None:
        """The peer has to introduce itself in time, to answer pings, and to hold a token that is still valid."""
        await asyncio.sleep(self._limits.init_timeout)
        if not self._initialised:
            raise Broken(4408, "Connection initialisation timeout")
        while True:
            await asyncio.sleep(self._limits.ping_every)
            self._speaker.check()
            if self._unanswered >= self._limits.unanswered_pings:
                raise Broken(4411, f"{self._unanswered} pings went unanswered")
            self._unanswered += 1
            await self._write({"type": "ping"})

    async def _read(self) -> None:
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self.end(_GONE)
                return
            await self._handle(read_message(event.get("text")))

    async def _handle(self, message: Message) -> None:
        match message.type:
            case "connection_init":
                await self._initialise(message.payload or {})
            case "ping":
                await self._pong(message.payload)
            case "pong":
                self._unanswered = 0
            case "subscribe":
                await self._subscribe(message.id, requested_operation(message))
            case "complete":
                self._cancel(message.id)

    async def _initialise(self, payload: Mapping[str, Any]) -> None:
        if self._initialised:
            raise Broken(4429, "Too many initialisation requests")
        self._initialised = True
        await self._speaker.introduce(payload, self._headers)
        self._take_place()
        self._acknowledged = True
        await self._write({"type": "connection_ack"})

    def _take_place(self) -> None:
        """From now on the socket counts for its user, and no longer for its address."""
        caller = payer(Caller(self._speaker.identity, self._address))
        try:
            self._places.move(self.counted_for, caller)
        except Throttled as refusal:
            raise Broken(1013, str(refusal)) from None
        self.counted_for = caller

    async def _pong(self, payload: dict[str, Any] | None) -> None:
        """Send a ping back, and take the new token that it may bring; tokens are not sent back."""
        await self._speaker.renew(payload or {})
        echoed = {} if payload is None else {"payload": without_authorization(payload)}
        await self._write({"type": "pong", **echoed})

    async def _subscribe(self, id: str, operation: Operation) -> None:
        if not self._acknowledged:
            raise Broken(4401, "Unauthorized")
        if id in self._operations:
            raise Broken(4409, f"Subscriber for {id} already exists")
        if 0 < self._limits.max_operations <= len(self._operations):
            refusal = BadUserInput(f"At most {self._limits.max_operations} operations may be open on a socket.")
            await self._write({"id": id, "type": "error", "payload": [told_error(refusal)]})
            return
        self._operations[id] = self._spawn(self._operate(id, operation))

    def _cancel(self, id: str) -> None:
        task = self._operations.pop(id, None)
        if task is not None:
            task.cancel()

    async def _operate(self, id: str, operation: Operation) -> None:
        try:
            last = await self._run(id, operation)
        except Broken:
            raise
        except Exception as error:
            last = {"type": "error", "payload": failure(error).described}
        await self._answer(id, last, last=True)

    def _is_wanted(self, id: str) -> bool:
        """False when nobody listens any more, and the event source has not let itself be cancelled (yet)."""
        return not self._over.done() and self._operations.get(id) is asyncio.current_task()

    async def _run(self, id: str, operation: Operation) -> dict[str, Any]:
        """Send the results, and return the message that ends the operation."""
        self._speaker.check()
        caller = Caller(self._speaker.identity, self._address)
        request = await self._runner.prepare(_with_wishes(operation), caller, Transport.WEBSOCKET)
        if not isinstance(request, Request):
            return {"type": "error", "payload": request.described}
        if request.kind is OperationType.SUBSCRIPTION:
            return await self._stream(id, self._runner.stream(request))
        return await self._next(id, await self._runner.run(request)) or {"type": "complete"}

    async def _stream(self, id: str, outcomes: AsyncGenerator[Outcome, None]) -> dict[str, Any]:
        sent = 0
        async with aclosing(outcomes):
            async for outcome in outcomes:
                # A source that always has an event ready, and a peer that takes it, would leave nobody else a turn.
                sent += 1
                if sent % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if not self._is_wanted(id):
                    break
                self._speaker.check()
                last = await self._next(id, outcome)
                if last is not None:
                    return last
        return {"type": "complete"}

    async def _next(self, id: str, outcome: Outcome) -> dict[str, Any] | None:
        """Send an answer. Errors about the operation as a whole are returned instead, as the message that ends it."""
        _check_pace(outcome)
        if outcome.is_failure:
            return {"type": "error", "payload": outcome.described}
        await self._answer(id, {"type": "next", "payload": orjson.Fragment(outcome.body)})
        return None


def _with_wishes(operation: Operation) -> Operation:
    """What HTTP has headers for comes in the extensions here."""
    extensions = operation.extensions or {}
    traceparent = extensions.get("traceparent")
    return replace(
        operation,
        explain=extensions.get("explain") is True,
        traceparent=traceparent if isinstance(traceparent, str) else None,
    )


def _check_pace(outcome: Outcome) -> None:
    for error in outcome.errors:
        slow = domain_error(error)
        if isinstance(slow, SlowSubscriber):
            raise Broken(4410, f"Too slow: {slow}")
