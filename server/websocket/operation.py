"""An operation on a socket. It has a task only while it starts or, unless it is a subscription, executes."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import replace
from typing import Any, Protocol

import orjson
from graphql.language import OperationType

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget, QueueLimits
from server.admission.callers import Caller
from server.documents.request import GraphQLParams
from server.operations.outcome import Outcome, domain_error, encode, failure
from server.operations.request import Request, Transport
from server.operations.runner import Runner
from server.subscriptions.subscriber import SubscriptionHandle
from server.websocket.messages import CloseCode, ProtocolError
from server.websocket.transport import WebSocketTransport

EVENTS_PER_TURN = 16
# The characters of resume tokens per ping; the next ping carries the others.
PLACES_PER_PING = 16_384


class SocketPort(Protocol):
    """The part of a socket that an operation uses."""

    runner: Runner
    carrier: WebSocketTransport
    room: ByteBudget
    clock: Callable[[], float]

    @property
    def caller(self) -> Caller: ...
    @property
    def authenticated_until(self) -> float:
        """When the token of the peer expires. Operations keep a copy, which the socket updates."""

    def check_authenticated(self) -> bool:
        """Return whether the token is valid. If it has expired, end the socket."""

    def wait(self, operation: "OpenOperation") -> None:
        """Call `send_one` when the transport is writable."""

    def over(self, operation: "OpenOperation") -> None:
        """Release the id of an operation."""

    def send_position(self, operation: "OpenOperation") -> None:
        """Send the resume id of an operation."""

    def end(self, close_code: CloseCode) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class OpenOperation:
    """An operation that holds its id until its last message was sent.

    It implements `Listener`. Fields used on every delivery are copied from the socket: at 1,000 subscribers delivery is
    bound by cache misses.
    """

    __slots__ = (
        "_carrier",
        "_clock",
        "_count",
        "_drained",
        "_following",
        "_is_slow",
        "_last",
        "_next",
        "_over",
        "_socket",
        "_task",
        "_waiting",
        "_wants_places",
        "authenticated_until",
        "event_id",
        "id",
    )

    def __init__(self, socket: SocketPort, id: str) -> None:
        self.id = id
        self._socket = socket
        self._carrier = socket.carrier
        self._clock = socket.clock
        self.authenticated_until = socket.authenticated_until
        self._next = b'{"id":%b,"type":"next","payload":' % orjson.dumps(id)
        self._following: SubscriptionHandle | None = None
        self._waiting: BoundedQueue[Outcome] | None = None  # made when something has to wait
        self._last: bytes | None = None  # the message that ends it, while it waits
        self._drained: asyncio.Future[None] | None = None
        self._count = 0
        self._over = False
        self._is_slow = False  # more waited for it than may: the peer is to blame
        self._wants_places = False
        self.event_id: str | None = None  # up to where all has been sent, as far as it is known
        self._task: asyncio.Task[None] | None = None

    @property
    def room(self) -> ByteBudget:
        return self._socket.room

    @property
    def is_subscription(self) -> bool:
        """Whether a subscription has started."""
        return self._following is not None

    @property
    def place(self) -> str | None:
        """The resume id; None if the client did not request resume ids."""
        return self.event_id if self._wants_places else None

    def advance_position(self) -> bool:
        """Advance the resume id past changes without events. Return whether it changed."""
        following, event_id = self._following, self.place
        if following is None or event_id is None or self._over or self._waiting is not None:
            return False
        mark = following.settled_position()
        self.event_id = event_id if mark is None else mark.id_after(event_id)
        return self.event_id != event_id

    def begin(self, asked: GraphQLParams) -> None:
        self._wants_places = asked.wants_positions
        self._task = self._socket.spawn(self._begin(asked))

    def stop(self) -> None:
        """End the operation: the client has left or completed it."""
        self._over = True
        following = self._following
        if following is not None:
            for outcome in self._waiting.clear() if self._waiting is not None else ():
                following.withdraw(outcome)
            following.stop()
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _begin(self, asked: GraphQLParams) -> None:
        try:
            await self._run(asked)
        except ProtocolError:
            raise
        except Exception as error:
            self.finish(failure(error))
        finally:
            self._task = None

    async def _run(self, asked: GraphQLParams) -> None:
        runner = self._socket.runner
        if not self._socket.check_authenticated():
            return
        request = await runner.prepare(_with_wishes(asked), self._socket.caller, Transport.WEBSOCKET)
        if not isinstance(request, Request):
            self.finish(request)
        elif request.kind is OperationType.SUBSCRIPTION:
            self._following = await runner.follow(request, self)
            if self.event_id is None and isinstance(asked.resume_after, str):  # as its client knows
                self.event_id = asked.resume_after
            if self._over:
                self._following.stop()
        else:
            outcome = await runner.run(request)
            if outcome.is_failure:
                self.finish(outcome)
            else:
                self.deliver(outcome, None)
                self.finish(None)

    # What a subscription tells

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        if self._over or (self._clock() >= self.authenticated_until and not self._socket.check_authenticated()):
            return
        carrier = self._carrier
        if self._waiting is not None or not carrier.writable:
            self._keep(outcome, key)
        else:
            carrier.send(self._next, outcome.body, b"}")
            self.event_id = outcome.event_id

    def send_position(self, event_id: str) -> None:
        self.event_id = event_id
        if self._wants_places and not self._over:
            self._socket.send_position(self)

    def finish(self, outcome: Outcome | None) -> None:
        if self._over or (outcome is not None and not self._socket.check_authenticated()):
            return
        slow = _slowness(outcome) if outcome is not None and self._is_slow else None
        if slow is not None:
            self._socket.end(CloseCode(4410, f"Too slow: {slow}"))
            return
        if outcome is None:
            self._last = encode({"id": self.id, "type": "complete"})
        else:
            self._last = encode({"id": self.id, "type": "error", "payload": outcome.formatted_errors})
        if self._waiting or not self._carrier.writable:
            self._socket.wait(self)
        else:
            self._end(self._last)

    async def drained(self) -> None:
        # A source that always has an event, and a peer that accepts it, would leave other operations no turn.
        self._count += 1
        if self._count % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)
        while not self._over and (self._waiting or not self._carrier.writable):
            self._drained = asyncio.get_running_loop().create_future()
            self._socket.wait(self)
            await self._drained

    # While the peer does not read

    def _keep(self, outcome: Outcome, key: Hashable) -> None:
        following = self._following
        if following is None:  # it has one answer, and nothing is heard until that has gone out
            self._waiting = BoundedQueue(QueueLimits())
            self._waiting.add(outcome)
            self._socket.wait(self)
            return
        if self._waiting is None:
            self._waiting = BoundedQueue(following.keeping, self._socket.room)
        try:
            dropped = self._waiting.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            for one in (*self._waiting.clear(), outcome):
                following.withdraw(one)
            self._is_slow = True
            following.stop(problem)
            return
        for one in dropped:
            following.withdraw(one)
        if self._carrier.writable:  # something was dropped before, and nothing waits
            self.send_one()
        else:
            self._socket.wait(self)

    def send_one(self) -> bool:
        """Send the oldest queued result. Return whether there are more."""
        if self._over or not self._socket.check_authenticated():
            return False
        if self._waiting:
            outcome, dropped = self._waiting.take()
            body = outcome.body
            if self._following is not None:
                body = outcome.body_with_dropped(dropped, self._following.keeping.policy.count_field)
            self._carrier.send(self._next, body, b"}")
            self.event_id = outcome.event_id
        elif self._last is not None:
            self._end(self._last)
        if self._waiting:
            return True
        if self._waiting is not None and self._waiting.is_drained:
            self._waiting = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        return self._last is not None and not self._over

    def _end(self, last: bytes) -> None:
        self._over = True
        self._socket.over(self)
        self._carrier.send(last)


def advanced_positions(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Return the resume ids that have changed, by operation id, as many as one ping takes.

    Operations whose resume id is returned move to the end, so that the others come first the next time.
    """
    places: dict[str, str] = {}
    size = 0
    for id, operation in tuple(operations.items()):
        if size >= PLACES_PER_PING:
            break
        if operation.advance_position() and operation.place is not None:
            places[id] = operation.place
            size += len(id) + len(operation.place)
            operations[id] = operations.pop(id)
    return places


def all_positions(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Return the resume ids of all operations whose clients requested them."""
    for operation in operations.values():
        operation.advance_position()
    return {id: place for id, one in operations.items() if (place := one.place) is not None}


def _with_wishes(asked: GraphQLParams) -> GraphQLParams:
    """Read from the extensions the options that HTTP has headers for."""
    if not asked.extensions:
        return asked
    traceparent = asked.extensions.get("traceparent")
    return replace(
        asked,
        explain=asked.extensions.get("explain") is True,
        traceparent=traceparent if isinstance(traceparent, str) else None,
    )


def _slowness(outcome: Outcome) -> SlowSubscriber | None:
    for error in outcome.errors:
        slow = domain_error(error)
        if isinstance(slow, SlowSubscriber):
            return slow
    return None
