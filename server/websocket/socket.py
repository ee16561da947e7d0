"""One socket of graphql-transport-ws: its messages, its authentication and its end.

A socket is driven by callbacks. It has tasks only for the verification of a token and for running operations.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from datastore.errors import BadUserInput, Throttled
from datastore.queues import ByteBudget
from server.admission.callers import Caller, payer
from server.documents.request import GraphQLParams
from server.operations.outcome import encode, format_error, mask_error
from server.request_identity import RequestIdentity
from server.websocket.authentication import SocketAuth, renews, without_authorization
from server.websocket.messages import (
    CloseCode,
    Message,
    ProtocolError,
    positions_message,
    read_message,
    requested_operation,
    restart,
)
from server.websocket.operation import OpenOperation, advanced_positions, all_positions
from server.websocket.transport import CLOSE_SECONDS, WebSocketTransport

if TYPE_CHECKING:
    from server.websocket.endpoint import GraphQLWebSocket

_ACKNOWLEDGED = encode({"type": "connection_ack"})
_PING = encode({"type": "ping"})
_PONG = encode({"type": "pong"})

_log = logging.getLogger(__name__)


class Socket:
    """A socket of an endpoint. The methods that its transport calls neither raise nor wait.

    `end` may be called several times: the first close code is sent.
    """

    __slots__ = (
        *("_acknowledged", "_address", "_auth", "_authenticating", "_endpoint", "_initialised", "_lost"),
        *("_operations", "_outbox", "_reconnect_ms", "_released", "_timer", "_unanswered"),
        "_waiting_operations",
        *("byte_budget", "carrier", "clock", "identity", "is_over", "quota_key", "runner", "subscriptions"),
        *("tasks", "transport"),
    )
    transport: WebSocketTransport

    def __init__(
        self, endpoint: "GraphQLWebSocket", address: str, authorization: str | None, identity: RequestIdentity
    ) -> None:
        """`authorization` is the Authorization header of the upgrade, if there is one, and `identity` its identity."""
        self.identity = identity
        self.runner = endpoint.runner
        self.subscriptions = endpoint.subscriptions
        self.clock = endpoint.clock
        self.quota_key = payer(Caller(None, address))
        self.byte_budget = ByteBudget(endpoint.limits.waiting_bytes)
        self.tasks: set[asyncio.Task[None]] = set()
        #: The task that carries the messages, if the connection needs one.
        self.carrier: asyncio.Task[None] | None = None
        self._endpoint = endpoint
        self._auth = SocketAuth(endpoint.identify, authorization)
        self._address = address
        self._operations: dict[str, OpenOperation] = {}
        self._outbox: deque[bytes] | None = None  # messages that wait for the peer to read, except results
        self._waiting_operations: dict[OpenOperation, None] = {}  # operations that wait until they can send
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._reconnect_ms: int | None = None  # the delay to send with the close code once all is answered
        self._initialised = self._acknowledged = self._authenticating = False
        self.is_over = self._lost = self._released = False

    # Connection

    def begin(self, transport: WebSocketTransport) -> None:
        """Handle the start: the connection was accepted."""
        self.transport = transport
        self._endpoint.sockets.add(self)
        self._endpoint.init_timeouts.add(self)

    def received(self, text: str | None) -> None:
        """Handle a message; None is a binary message."""
        if self.is_over:
            return
        try:
            self._handle(read_message(text))
        except ProtocolError as broken:
            self.end(broken.close_code)
        except Exception as error:
            self._fail(error)

    def closing(self) -> None:
        """Stop all operations: the peer has disconnected, or does not read. May be called several times, or never."""
        if self.is_over:
            return
        self.is_over = True
        endpoint = self._endpoint
        endpoint.init_timeouts.drop(self)
        endpoint.pings.drop(self)
        self._end_timer()
        operations = [*self._operations.values()]
        self._operations.clear()
        self._waiting_operations.clear()
        self._outbox = None
        for operation in operations:
            operation.stop()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            self._timer = asyncio.get_running_loop().call_later(endpoint.limits.send_timeout, self._give_up_tasks)

    def lost(self) -> None:
        """Handle the end of the connection, which holds no resources any more."""
        self._lost = self.identity.is_over = True
        self.closing()
        self._release_if_ended()

    def end(self, close_code: CloseCode) -> None:
        if not self.is_over:
            seconds = CLOSE_SECONDS
            if self._timer is not None:  # a close frame gives a peer that does not read no more time
                seconds = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self.closing()
            self.transport.close(*close_code, seconds)

    def close_when_answered(self, reconnect_ms: int) -> None:
        """End the socket once its requests are answered and its subscriptions have started.

        Later messages are not read. The client reconnects elsewhere, and repeats the requests without a response.
        """
        if self._reconnect_ms is None and not self.is_over:
            self._reconnect_ms = reconnect_ms
            self.transport.hold()
            self._close_if_answered()

    def _close_if_answered(self) -> None:
        waits = any(not operation.is_subscription for operation in self._operations.values())
        if self._reconnect_ms is not None and not (waits or self._authenticating):
            self.close_now(self._reconnect_ms)

    def close_now(self, reconnect_ms: int) -> None:
        """End the socket at once, after sending the resume ids of its subscriptions."""
        if resume_ids := all_positions(self._operations):
            self._send(positions_message(resume_ids, reconnect_ms))
        self.end(restart(reconnect_ms))

    def _release_if_ended(self) -> None:
        """Release the quota, once the connection and all tasks have ended."""
        if self._released or self.tasks:
            return
        self._end_timer()
        if not self._lost:
            return
        self._released = True
        self._endpoint.sockets.discard(self)
        self._endpoint.quota.release(self.quota_key)

    def _give_up_tasks(self) -> None:
        _log.error("%d tasks of a socket did not end after their cancellation: %s", len(self.tasks), self.tasks)
        self.tasks.clear()
        self._release_if_ended()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ProtocolError):
            self.end(error.close_code)
        elif error is not None:
            self._fail(error)
        if self.is_over:
            self._release_if_ended()
        else:
            self._close_if_answered()

    def _fail(self, error: BaseException) -> None:
        self.end(CloseCode(4500, f"Internal server error {mask_error(error, 'a socket')['extensions']['errorId']}"))

    # Output

    def _send(self, text: bytes) -> None:
        """Send a message that is no result, and read no more messages until it was sent."""
        if self.is_over:
            return
        if self.transport.writable:
            self.transport.send(text)
            return
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append(text)
        self.transport.hold()
        self._begin_timer()

    def wait(self, operation: OpenOperation) -> None:
        """Call `send_one` when the transport is writable. Until then, read no message unless it is a subscription."""
        self._waiting_operations[operation] = None
        if not operation.is_subscription:
            self.transport.hold()
        self._begin_timer()

    def filled(self) -> None:
        """Handle a full write buffer. Not every transport reports it: `writable` is authoritative."""
        self._begin_timer()

    def drained(self) -> None:
        """Send the queued messages, then those of the operations in turn."""
        if self.is_over:
            return
        self._end_timer()
        while self.transport.writable and not self.is_over:
            if self._outbox:
                self.transport.send(self._outbox.popleft())
            elif self._waiting_operations:
                operation = next(iter(self._waiting_operations))
                del self._waiting_operations[operation]
                if operation.send_one():
                    self._waiting_operations[operation] = None
            else:
                break
        if self._outbox or self._waiting_operations:
            self._begin_timer()
        self._resume_messages()

    def _resume_messages(self) -> None:
        waits = (
            self._authenticating
            or self._outbox
            or any(not operation.is_subscription for operation in self._waiting_operations)
        )
        if not waits and not self.is_over and self._reconnect_ms is None:
            self.transport.release()

    def _begin_timer(self) -> None:
        if self._timer is None and not self.is_over:
            seconds = self._endpoint.limits.send_timeout
            self._timer = asyncio.get_running_loop().call_later(seconds, self._drop)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self) -> None:
        """Abort the connection: the peer does not read."""
        self.closing()
        self.transport.abort()

    # Timeouts

    def check_initialised(self) -> None:
        """End the socket if the peer has not sent connection_init in time."""
        if not self._initialised:
            self.end(CloseCode(4408, "Connection initialisation timeout"))

    def ping(self) -> None:
        """Send a ping. End the socket if earlier pings were not answered, or the token has expired."""
        if not self.check_authenticated():
            return
        if self._unanswered >= self._endpoint.limits.unanswered_pings:
            self.end(CloseCode(4411, f"{self._unanswered} pings went unanswered"))
            return
        self._unanswered += 1
        self._endpoint.pings.add(self)
        resume_ids = advanced_positions(self._operations)
        self._send(positions_message(resume_ids) if resume_ids else _PING)

    def check_authenticated(self) -> bool:
        """Return whether the token is valid. If it has expired, end the socket."""
        if self.clock() < self._auth.expires_at:
            return True
        self.end(CloseCode(4403, "Token expired"))
        return False

    @property
    def authenticated_until(self) -> float:
        """The time at which the token of the peer expires. Operations have a copy, which the socket updates."""
        return self._auth.expires_at

    @property
    def caller(self) -> Caller:
        return Caller(self._auth.identity, self._address)

    # Messages

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
        self._start_authentication(self._authenticate(payload))

    def _start_authentication(self, work: Coroutine[Any, Any, None]) -> None:
        """Start to verify a token. Messages are held meanwhile."""
        self._authenticating = True
        self.transport.hold()
        self.spawn(work)

    async def _authenticate(self, payload: Mapping[str, Any]) -> None:
        await self._auth.authenticate(payload)
        self._transfer_quota()
        self._acknowledged = True
        self._endpoint.init_timeouts.drop(self)
        self._endpoint.pings.add(self)
        self._finish_authentication(_ACKNOWLEDGED)

    def _finish_authentication(self, text: bytes) -> None:
        self._authenticating = False
        self._send(text)
        self._resume_messages()

    def _transfer_quota(self) -> None:
        """Move the quota of the socket from the address to the user."""
        caller = payer(self.caller)
        try:
            self._endpoint.quota.transfer(self.quota_key, caller)
        except Throttled as refusal:
            raise ProtocolError(1013, str(refusal)) from None
        self.quota_key = caller

    def _pong(self, payload: dict[str, Any] | None) -> None:
        """Answer a ping, and renew the token that it may contain. Tokens are not sent back."""
        if payload is None:
            self._send(_PONG)
        elif renews(payload):
            self._start_authentication(self._renew(payload))
        else:
            self._send(encode({"type": "pong", "payload": payload}))

    async def _renew(self, payload: dict[str, Any]) -> None:
        await self._auth.renew(payload)
        for operation in self._operations.values():
            operation.authenticated_until = self._auth.expires_at
        self._finish_authentication(encode({"type": "pong", "payload": without_authorization(payload)}))

    def _subscribe(self, id: str, params: GraphQLParams) -> None:
        if not self._acknowledged:
            raise ProtocolError(4401, "Unauthorized")
        if id in self._operations:
            raise ProtocolError(4409, f"Subscriber for {id} already exists")
        if 0 < self._endpoint.limits.max_operations <= len(self._operations):
            message = f"At most {self._endpoint.limits.max_operations} operations may be open on a socket."
            self._send(encode({"id": id, "type": "error", "payload": [format_error(BadUserInput(message))]}))
            return
        operation = self._operations[id] = OpenOperation(self, id)
        operation.begin(params)

    def _cancel(self, id: str) -> None:
        operation = self._operations.get(id)
        if operation is not None:
            self.remove(operation)
            operation.stop()

    def send_position(self, operation: OpenOperation) -> None:
        self._send(positions_message({operation.id: operation.resume_id}))

    def remove(self, operation: OpenOperation) -> None:
        """Remove an operation that has ended, and release its id."""
        self._operations.pop(operation.id, None)
        self._waiting_operations.pop(operation, None)
        if self._reconnect_ms is not None:  # after the last message of the operation
            asyncio.get_running_loop().call_soon(self._close_if_answered)
