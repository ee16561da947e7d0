"""An operation on a socket: it has a task only while it is begun or, being no subscription, executed."""

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
# A ping tells places of so many characters, and the next one the others.
PLACES_PER_PING = 16_384


class SocketPort(Protocol):
    """The socket that an operation is spoken on."""

    runner: Runner
    carrier: WebSocketTransport
    room: ByteBudget
    clock: Callable[[], float]

    @property
    def caller(self) -> Caller: ...
    @property
    def may_speak_until(self) -> float:
        """When the peer's token expires: kept by each operation, too, and set anew with a new one."""

    def may_speak(self) -> bool:
        """False when the peer's token has expired; that has ended the socket."""

    def wait(self, operation: "OpenOperation") -> None:
        """Call `send_one` when the peer has read enough."""

    def over(self, operation: "OpenOperation") -> None:
        """Its id is free again."""

    def tell_place(self, operation: "OpenOperation") -> None:
        """Say after which event it can go on."""

    def end(self, farewell: CloseCode) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class OpenOperation:
    """Holds its id until its last message has gone out: the peer cannot know earlier that it is over.

    To a subscription it is the `Listener`. What a delivery needs is kept here, although the mouth has it: with a
    thousand of them most of its time goes to fetching what has left the processor's cache.
    """

    __slots__ = (
        "_carrier",
        "_clock",
        "_count",
        "_drained",
        "_following",
        "_is_slow",
        "_last",
        "_mouth",
        "_next",
        "_over",
        "_task",
        "_waiting",
        "_wants_places",
        "event_id",
        "id",
        "may_speak_until",
    )

    def __init__(self, mouth: SocketPort, id: str) -> None:
        self.id = id
        self._mouth = mouth
        self._carrier = mouth.carrier
        self._clock = mouth.clock
        self.may_speak_until = mouth.may_speak_until
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
        return self._mouth.room

    @property
    def is_subscription(self) -> bool:
        """Whether it has begun as one."""
        return self._following is not None

    @property
    def place(self) -> str | None:
        """After which event its client can go on elsewhere; None where it did not ask to be told."""
        return self.event_id if self._wants_places else None

    def go_forward(self) -> bool:
        """Whether its place is another than its client was told last: nothing came of what happened since."""
        following, event_id = self._following, self.place
        if following is None or event_id is None or self._over or self._waiting is not None:
            return False
        mark = following.standing()
        self.event_id = event_id if mark is None else mark.id_after(event_id)
        return self.event_id != event_id

    def begin(self, asked: GraphQLParams) -> None:
        self._wants_places = asked.wants_positions
        self._task = self._mouth.spawn(self._begin(asked))

    def stop(self) -> None:
        """Nobody listens any more."""
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
        runner = self._mouth.runner
        if not self._mouth.may_speak():
            return
        request = await runner.prepare(_with_wishes(asked), self._mouth.caller, Transport.WEBSOCKET)
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
        if self._over or (self._clock() >= self.may_speak_until and not self._mouth.may_speak()):
            return
        carrier = self._carrier
        if self._waiting is not None or not carrier.writable:
            self._keep(outcome, key)
        else:
            carrier.send(self._next, outcome.body, b"}")
            self.event_id = outcome.event_id

    def stands(self, event_id: str) -> None:
        self.event_id = event_id
        if self._wants_places and not self._over:
            self._mouth.tell_place(self)

    def finish(self, outcome: Outcome | None) -> None:
        if self._over or (outcome is not None and not self._mouth.may_speak()):
            return
        slow = _slowness(outcome) if outcome is not None and self._is_slow else None
        if slow is not None:
            self._mouth.end(CloseCode(4410, f"Too slow: {slow}"))
            return
        if outcome is None:
            self._last = encode({"id": self.id, "type": "complete"})
        else:
            self._last = encode({"id": self.id, "type": "error", "payload": outcome.formatted_errors})
        if self._waiting or not self._carrier.writable:
            self._mouth.wait(self)
        else:
            self._end(self._last)

    async def drained(self) -> None:
        # A source that always has an event ready, and a peer that takes it, would leave nobody else a turn.
        self._count += 1
        if self._count % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)
        while not self._over and (self._waiting or not self._carrier.writable):
            self._drained = asyncio.get_running_loop().create_future()
            self._mouth.wait(self)
            await self._drained

    # While the peer does not read

    def _keep(self, outcome: Outcome, key: Hashable) -> None:
        following = self._following
        if following is None:  # it has one answer, and nothing is heard until that has gone out
            self._waiting = BoundedQueue(QueueLimits())
            self._waiting.add(outcome)
            self._mouth.wait(self)
            return
        if self._waiting is None:
            self._waiting = BoundedQueue(following.keeping, self._mouth.room)
        try:
            left_out = self._waiting.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            for one in (*self._waiting.clear(), outcome):
                following.withdraw(one)
            self._is_slow = True
            following.stop(problem)
            return
        for one in left_out:
            following.withdraw(one)
        if self._carrier.writable:  # something was dropped before, and nothing waits
            self.send_one()
        else:
            self._mouth.wait(self)

    def send_one(self) -> bool:
        """Send what has waited for longest, and tell whether there is more."""
        if self._over or not self._mouth.may_speak():
            return False
        if self._waiting:
            outcome, left_out = self._waiting.take()
            body = outcome.body
            if self._following is not None:
                body = outcome.body_with_dropped(left_out, self._following.keeping.policy.count_field)
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
        self._mouth.over(self)
        self._carrier.send(last)


def gone_forward(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Where they are now whose place is another than their client was told, by their ids, as many as a ping takes.

    Those whose place is told have their turn after all others the next time.
    """
    places: dict[str, str] = {}
    size = 0
    for id, operation in tuple(operations.items()):
        if size >= PLACES_PER_PING:
            break
        if operation.go_forward() and operation.place is not None:
            places[id] = operation.place
            size += len(id) + len(operation.place)
            operations[id] = operations.pop(id)
    return places


def all_places(operations: dict[str, OpenOperation]) -> dict[str, str]:
    """Where all are whose client wants to know."""
    for operation in operations.values():
        operation.go_forward()
    return {id: place for id, one in operations.items() if (place := one.place) is not None}


def _with_wishes(asked: GraphQLParams) -> GraphQLParams:
    """What HTTP has headers for comes in the extensions here."""
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
