"""One socket of graphql-transport-ws: what is said on it, who says it, and how it ends.

It is called when something happens, and has tasks only for what waits: for a token's keys, and for answers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from datastore.errors import BadUserInput, Throttled
from datastore.queues import ByteBudget
from server.admission.callers import Caller, payer
from server.admission.quotas import KeyedQuota
from server.documents.request import GraphQLParams
from server.operations.outcome import encode, format_error, mask_error
from server.operations.runner import Runner
from server.security.jwt import Identify
from server.websocket.authentication import SocketAuth, renews, without_authorization
from server.websocket.messages import (
    CloseCode,
    Message,
    ProtocolError,
    places_told,
    read_message,
    requested_operation,
    restart,
)
from server.websocket.operation import OpenOperation, all_places, gone_forward
from server.websocket.timer_queue import TimerQueue
from server.websocket.transport import CLOSE_SECONDS, SocketLimits, WebSocketTransport

_ACKNOWLEDGED = encode({"type": "connection_ack"})
_PING = encode({"type": "ping"})
_PONG = encode({"type": "pong"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What is behind every socket, and those that are open."""

    runner: Runner
    identify: Identify
    limits: SocketLimits
    clock: Callable[[], float]
    places: KeyedQuota
    sockets: "set[Socket]" = field(default_factory=set)
    introductions: "TimerQueue[Socket]" = field(init=False)
    pings: "TimerQueue[Socket]" = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "introductions", TimerQueue(self.limits.init_timeout, Socket.check_introduced))
        object.__setattr__(self, "pings", TimerQueue(self.limits.ping_every, Socket.ping))


class Socket:
    """Carried by a connection (`Carried`), and the `Mouth` of its operations.

    Whoever finds that it is over calls `end`; the first reason given counts.
    """

    __slots__ = (
        "_acknowledged",
        "_address",
        "_again_ms",
        "_identifying",
        "_initialised",
        "_left",
        "_lost",
        "_operations",
        "_outbox",
        "_over",
        "_service",
        "_speaker",
        "_timer",
        "_unanswered",
        "_waiting",
        "carrier",
        "clock",
        "counted_for",
        "room",
        "runner",
        "tasks",
    )
    carrier: WebSocketTransport

    def __init__(self, service: Service, address: str, offered: str | None) -> None:
        """`offered` is the upgrade's Authorization, if it has one."""
        self.runner = service.runner
        self.clock = service.clock
        self.counted_for = payer(Caller(None, address))
        self.room = ByteBudget(service.limits.waiting_bytes)
        self.tasks: set[asyncio.Task[None]] = set()
        self._service = service
        self._speaker = SocketAuth(service.identify, offered)
        self._address = address
        self._operations: dict[str, OpenOperation] = {}
        self._outbox: deque[bytes] | None = None  # what waits for the peer to read, but for answers
        self._waiting: dict[OpenOperation, None] = {}  # and those that have some
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._again_ms: int | None = None  # when its client is to come again: told once all is answered
        self._initialised = self._acknowledged = self._identifying = False
        self._over = self._lost = self._left = False

    # Its connection

    def begin(self, carrier: WebSocketTransport) -> None:
        self.carrier = carrier
        self._service.sockets.add(self)
        self._service.introductions.add(self)

    def received(self, text: str | None) -> None:
        if self._over:
            return
        try:
            self._handle(read_message(text))
        except ProtocolError as broken:
            self.end(broken.farewell)
        except Exception as error:
            self._fail(error)

    def gone(self) -> None:
        """Nothing is said: the peer has gone, or does not read."""
        if self._over:
            return
        self._over = True
        service = self._service
        service.introductions.drop(self)
        service.pings.drop(self)
        self._end_timer()
        operations = [*self._operations.values()]
        self._operations.clear()
        self._waiting.clear()
        self._outbox = None
        for operation in operations:
            operation.stop()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            self._timer = asyncio.get_running_loop().call_later(service.limits.send_timeout, self._leave_stuck)

    def lost(self) -> None:
        self._lost = True
        self.gone()
        self._leave()

    def end(self, farewell: CloseCode) -> None:
        if not self._over:
            seconds = CLOSE_SECONDS
            if self._timer is not None:  # who does not read has no more time for having been told
                seconds = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self.gone()
            self.carrier.close(*farewell, seconds)

    @property
    def is_over(self) -> bool:
        return self._over

    def take_leave(self, again_ms: int) -> None:
        """End it once what was asked for has been answered, and subscriptions have begun: others are to serve it.

        Nothing more is heard: a client asks anew elsewhere for what it got no answer to.
        """
        if self._again_ms is None and not self._over:
            self._again_ms = again_ms
            self.carrier.hold()
            self._leave_if_answered()

    def _leave_if_answered(self) -> None:
        waits = any(not operation.is_subscription for operation in self._operations.values())
        if self._again_ms is not None and not (waits or self._identifying):
            self.leave_now(self._again_ms)

    def leave_now(self, again_ms: int) -> None:
        """End it, whatever is not answered yet. Where its subscriptions are is told."""
        if places := all_places(self._operations):
            self._say(places_told(places, again_ms))
        self.end(restart(again_ms))

    def _leave(self) -> None:
        """Give its place back, once: as long as there is a connection, or a task of it, it takes one."""
        if self._left or self.tasks:
            return
        self._end_timer()
        if not self._lost:
            return
        self._left = True
        self._service.sockets.discard(self)
        self._service.places.release(self.counted_for)

    def _leave_stuck(self) -> None:
        _log.error("%d tasks of a socket do not end: %s", len(self.tasks), self.tasks)
        self.tasks.clear()
        self._leave()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ProtocolError):
            self.end(error.farewell)
        elif error is not None:
            self._fail(error)
        if self._over:
            self._leave()
        else:
            self._leave_if_answered()

    def _fail(self, error: BaseException) -> None:
        self.end(CloseCode(4500, f"Internal server error {mask_error(error, 'a socket')['extensions']['errorId']}"))

    # What is said

    def _say(self, text: bytes) -> None:
        """Send a message that is no answer, and take none before it has gone out."""
        if self._over:
            return
        if self.carrier.writable:
            self.carrier.send(text)
            return
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append(text)
        self.carrier.hold()
        self._begin_timer()

    def wait(self, operation: OpenOperation) -> None:
        self._waiting[operation] = None
        if not operation.is_subscription:
            self.carrier.hold()
        self._begin_timer()

    def filled(self) -> None:
        self._begin_timer()

    def drained(self) -> None:
        """Send what had to wait, of all operations in turn."""
        if self._over:
            return
        self._end_timer()
        while self.carrier.writable and not self._over:
            if self._outbox:
                self.carrier.send(self._outbox.popleft())
            elif self._waiting:
                operation = next(iter(self._waiting))
                del self._waiting[operation]
                if operation.send_one():
                    self._waiting[operation] = None
            else:
                break
        if self._outbox or self._waiting:
            self._begin_timer()
        self._take_more()

    def _take_more(self) -> None:
        waits = self._identifying or self._outbox or any(not one.is_subscription for one in self._waiting)
        if not waits and not self._over and self._again_ms is None:
            self.carrier.release()

    def _begin_timer(self) -> None:
        if self._timer is None and not self._over:
            seconds = self._service.limits.send_timeout
            self._timer = asyncio.get_running_loop().call_later(seconds, self._drop)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self) -> None:
        """The peer does not read."""
        self.gone()
        self.carrier.abort()

    # Time

    def check_introduced(self) -> None:
        """The peer has to introduce itself in time."""
        if not self._initialised:
            self.end(CloseCode(4408, "Connection initialisation timeout"))

    def ping(self) -> None:
        """The peer has to answer pings, and to hold a token that is still valid."""
        if not self.may_speak():
            return
        if self._unanswered >= self._service.limits.unanswered_pings:
            self.end(CloseCode(4411, f"{self._unanswered} pings went unanswered"))
            return
        self._unanswered += 1
        self._service.pings.add(self)
        places = gone_forward(self._operations)
        self._say(places_told(places) if places else _PING)

    def may_speak(self) -> bool:
        if self.clock() < self._speaker.expires_at:
            return True
        self.end(CloseCode(4403, "Token expired"))
        return False

    @property
    def may_speak_until(self) -> float:
        return self._speaker.expires_at

    @property
    def caller(self) -> Caller:
        return Caller(self._speaker.identity, self._address)

    # What is heard

    def _handle(self, message: Message) -> None:
        match message.type:
            case "connection_init":
                self._initialise(message.payload or {})
            case "ping":
                self._pong(message.payload)
            case "pong":
                self._unanswered = 0
            case "subscribe":
                self._subscribe(message.id, requested_operation(message))
            case "complete":
                self._cancel(message.id)

    def _initialise(self, payload: Mapping[str, Any]) -> None:
        if self._initialised:
            raise ProtocolError(4429, "Too many initialisation requests")
        self._initialised = True
        self._identify(self._introduce(payload))

    def _identify(self, work: Coroutine[Any, Any, None]) -> None:
        """The messages that come meanwhile wait."""
        self._identifying = True
        self.carrier.hold()
        self.spawn(work)

    async def _introduce(self, payload: Mapping[str, Any]) -> None:
        await self._speaker.introduce(payload)
        self._take_place()
        self._acknowledged = True
        self._service.introductions.drop(self)
        self._service.pings.add(self)
        self._identified(_ACKNOWLEDGED)

    def _identified(self, text: bytes) -> None:
        self._identifying = False
        self._say(text)
        self._take_more()

    def _take_place(self) -> None:
        """From now on the socket counts for its user, and no longer for its address."""
        caller = payer(self.caller)
        try:
            self._service.places.transfer(self.counted_for, caller)
        except Throttled as refusal:
            raise ProtocolError(1013, str(refusal)) from None
        self.counted_for = caller

    def _pong(self, payload: dict[str, Any] | None) -> None:
        """Send a ping back, and take the new token that it may bring; tokens are not sent back."""
        if payload is None:
            self._say(_PONG)
        elif renews(payload):
            self._identify(self._renew(payload))
        else:
            self._say(encode({"type": "pong", "payload": payload}))

    async def _renew(self, payload: dict[str, Any]) -> None:
        await self._speaker.renew(payload)
        for operation in self._operations.values():
            operation.may_speak_until = self._speaker.expires_at
        self._identified(encode({"type": "pong", "payload": without_authorization(payload)}))

    def _subscribe(self, id: str, asked: GraphQLParams) -> None:
        if not self._acknowledged:
            raise ProtocolError(4401, "Unauthorized")
        if id in self._operations:
            raise ProtocolError(4409, f"Subscriber for {id} already exists")
        if 0 < self._service.limits.max_operations <= len(self._operations):
            message = f"At most {self._service.limits.max_operations} operations may be open on a socket."
            self._say(encode({"id": id, "type": "error", "payload": [format_error(BadUserInput(message))]}))
            return
        operation = self._operations[id] = OpenOperation(self, id)
        operation.begin(asked)

    def _cancel(self, id: str) -> None:
        operation = self._operations.get(id)
        if operation is not None:
            self.over(operation)
            operation.stop()

    def tell_place(self, operation: OpenOperation) -> None:
        self._say(places_told({operation.id: operation.place}))

    def over(self, operation: OpenOperation) -> None:
        self._operations.pop(operation.id, None)
        self._waiting.pop(operation, None)
        if self._again_ms is not None:  # its last message goes out first
            asyncio.get_running_loop().call_soon(self._leave_if_answered)
