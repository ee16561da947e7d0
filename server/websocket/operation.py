"""An operation on a socket. A query or mutation has a task until it ends, a subscription only until it has started."""

import asyncio
from collections.abc import Hashable
from contextlib import aclosing
from typing import TYPE_CHECKING

import orjson
from graphql.language import OperationType
from msgspec import structs

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget, QueueLimits
from server.documents.request import GraphQLParams
from server.operations.outcome import Outcome, domain_error, encode, failure
from server.operations.request import IncrementalFormat, Request, Transport
from server.request_identity import CURRENT, RequestIdentity, valid_traceparent
from server.subscriptions.subscriber import SubscriptionHandle
from server.websocket.messages import CloseCode, ProtocolError

if TYPE_CHECKING:
    from server.websocket.socket import Socket

EVENTS_PER_TURN = 16
# The limit of the resume ids in a ping; the next ping contains the others.
POSITION_CHARACTERS_PER_PING = 16_384


class OpenOperation:
    """An operation that holds its id until its last message was sent.

    It implements `Listener`. Fields used on every delivery are copied from the socket: at 1,000 subscribers delivery is
    bound by misses of the CPU's caches.
    """

    __slots__ = (
        "_clock",
        "_count",
        "_drained",
        "_last",
        "_next",
        "_over",
        "_overflowed",
        "_queue",
        "_socket",
        "_subscription",
        "_task",
        "_transport",
        "_wants_positions",
        "authenticated_until",
        "event_id",
        "id",
    )

    def __init__(self, socket: "Socket", id: str) -> None:
        self.id = id
        self._socket = socket
        self._transport = socket.transport
        self._clock = socket.clock
        self.authenticated_until = socket.authenticated_until
        self._next = b'{"id":%b,"type":"next","payload":' % orjson.dumps(id)
        self._subscription: SubscriptionHandle | None = None
        self._queue: BoundedQueue[Outcome] | None = None  # created with the first result that must wait
        self._last: bytes | None = None  # the last message of the operation, while it waits
        self._drained: asyncio.Future[None] | None = None
        self._count = 0
        self._over = False
        self._overflowed = False  # the queue for this peer was full
        self._wants_positions = False
        self.event_id: str | None = None  # the client's latest resume id, if known
        self._task: asyncio.Task[None] | None = None

    @property
    def byte_budget(self) -> ByteBudget:
        return self._socket.byte_budget

    @property
    def is_subscription(self) -> bool:
        """Whether a subscription has started."""
        return self._subscription is not None

    @property
    def resume_id(self) -> str | None:
        """The resume id; None if the client did not request resume ids."""
        return self.event_id if self._wants_positions else None

    def advance_position(self) -> bool:
        """Advance the resume id past changes that caused no event. Return whether it changed."""
        subscription, event_id = self._subscription, self.resume_id
        if subscription is None or event_id is None or self._over or self._queue is not None:
            return False
        position = subscription.settled_position()
        self.event_id = event_id if position is None else position.id_after(event_id)
        return self.event_id != event_id

    def begin(self, params: GraphQLParams) -> None:
        self._wants_positions = params.wants_positions
        self._task = self._socket.spawn(self._begin(params))

    def stop(self) -> None:
        """End the operation: the client has disconnected or completed it."""
        self._over = True
        subscription = self._subscription
        if subscription is not None:
            for outcome in self._queue.clear() if self._queue is not None else ():
                subscription.withdraw(outcome)
            subscription.stop()
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _begin(self, params: GraphQLParams) -> None:
        CURRENT.set(self._socket.identity)
        try:
            await self._run(params)
        except ProtocolError:
            raise
        except Exception as error:
            self.finish(failure(error))
        finally:
            self._task = None

    async def _run(self, params: GraphQLParams) -> None:
        runner = self._socket.runner
        if not self._socket.check_authenticated():
            return
        request = await runner.prepare(
            _with_options(params, self._socket.identity), self._socket.caller, Transport.WEBSOCKET
        )
        if not isinstance(request, Request):
            self.finish(request)
        elif request.kind is OperationType.SUBSCRIPTION:
            self._subscription = await self._socket.subscriptions.follow(request, self)
            if self.event_id is None and isinstance(params.resume_after, str):  # nothing was sent yet
                self.event_id = params.resume_after
            if self._over:
                self._subscription.stop()
        elif request.is_incremental:
            await self._deliver_in_parts(request)
        else:
            outcome = await runner.run(request)
            if outcome.is_failure:
                self.finish(outcome)
            else:
                self.deliver(outcome, None)
                self.finish(None)

    async def _deliver_in_parts(self, request: Request) -> None:
        """Send a message for each payload of an incremental response. Wait for the peer before each."""
        async with aclosing(self._socket.runner.incremental.run(request, IncrementalFormat.IDS)) as outcomes:
            async for outcome in outcomes:
                if outcome.is_failure:
                    self.finish(outcome)
                    return
                self.deliver(outcome, None)
                await self.drained()
        self.finish(None)

    # Listener

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        if self._over or (self._clock() >= self.authenticated_until and not self._socket.check_authenticated()):
            return
        transport = self._transport
        if self._queue is not None or not transport.writable:
            self._enqueue(outcome, key)
        else:
            transport.send(self._next, outcome.body, b"}")
            self.event_id = outcome.event_id

    def send_position(self, event_id: str) -> None:
        self.event_id = event_id
        if self._wants_positions and not self._over:
            self._socket.send_position(self)

    def finish(self, outcome: Outcome | None) -> None:
        if self._over or (outcome is not None and not self._socket.check_authenticated()):
            return
        slow = _slow_subscriber(outcome) if outcome is not None and self._overflowed else None
        if slow is not None:
            self._socket.end(CloseCode(4410, f"Too slow: {slow}"))
            return
        if outcome is None:
            self._last = encode({"id": self.id, "type": "complete"})
        else:
            self._last = encode({"id": self.id, "type": "error", "payload": outcome.formatted_errors})
        if self._queue or not self._transport.writable:
            self._socket.wait(self)
        else:
            self._end(self._last)

    async def drained(self) -> None:
        # A source that always has an event, and a peer that accepts it, would leave other operations no turn.
        self._count += 1
        if self._count % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)
        while not self._over and (self._queue or not self._transport.writable):
            self._drained = asyncio.get_running_loop().create_future()
            self._socket.wait(self)
            await self._drained

    # While the peer does not read

    def _enqueue(self, outcome: Outcome, key: Hashable) -> None:
        subscription = self._subscription
        if subscription is None:  # one result, and the socket reads no message until it is sent
            self._queue = BoundedQueue(QueueLimits())
            self._queue.add(outcome)
            self._socket.wait(self)
            return
        if self._queue is None:
            self._queue = BoundedQueue(subscription.limits, self._socket.byte_budget)
        try:
            dropped = self._queue.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            for unsent in (*self._queue.clear(), outcome):
                subscription.withdraw(unsent)
            self._overflowed = True
            subscription.stop(problem)
            return
        for unsent in dropped:
            subscription.withdraw(unsent)
        if self._transport.writable:  # the queue was empty, and kept only to report dropped events
            self.send_one()
        else:
            self._socket.wait(self)

    def send_one(self) -> bool:
        """Send the oldest queued result, or after all results the last message. Return whether anything is left."""
        if self._over or not self._socket.check_authenticated():
            return False
        if self._queue:
            outcome, dropped = self._queue.take()
            body = outcome.body
            if self._subscription is not None:
                body = outcome.body_with_dropped(dropped, self._subscription.limits.policy.count_field)
            self._transport.send(self._next, body, b"}")
            self.event_id = outcome.event_id
        elif self._last is not None:
            self._end(self._last)
        if self._queue:
            return True
        if self._queue is not None and self._queue.is_drained:
            self._queue = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        return self._last is not None and not self._over

    def _end(self, last: bytes) -> None:
        self._over = True
        self._socket.remove(self)
        self._transport.send(last)


def advanced_positions(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Return the resume ids that have changed, by operation id, as many as one ping takes.

    Operations whose resume id is returned move to the end, so that the others come first the next time.
    """
    resume_ids: dict[str, str] = {}
    size = 0
    for id, operation in tuple(operations.items()):
        if size >= POSITION_CHARACTERS_PER_PING:
            break
        if operation.advance_position() and operation.resume_id is not None:
            resume_ids[id] = operation.resume_id
            size += len(id) + len(operation.resume_id)
            operations[id] = operations.pop(id)
    return resume_ids


def all_positions(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Return the resume ids of all operations whose clients requested them."""
    for operation in operations.values():
        operation.advance_position()
    return {id: resume_id for id, operation in operations.items() if (resume_id := operation.resume_id) is not None}


def _with_options(params: GraphQLParams, identity: RequestIdentity) -> GraphQLParams:
    """Return the parameters with the options that HTTP has headers for, read from the extensions.

    An operation without a traceparent of its own belongs to the trace of the handshake.
    """
    extensions = params.extensions or {}
    given = extensions.get("traceparent")
    own = valid_traceparent(given.encode(errors="replace")) if isinstance(given, str) else None
    traceparent = own or identity.traceparent
    return structs.replace(
        params,
        explain=extensions.get("explain") is True,
        traceparent=None if traceparent is None else traceparent.decode(),
        request_id=identity.id,
    )


def _slow_subscriber(outcome: Outcome) -> SlowSubscriber | None:
    """Return the outcome's `SlowSubscriber`, or None."""
    for error in outcome.errors:
        slow = domain_error(error)
        if isinstance(slow, SlowSubscriber):
            return slow
    return None
