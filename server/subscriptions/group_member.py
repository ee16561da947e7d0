"""A member of a broadcast group, from its joining to its end."""

from collections.abc import Hashable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from datastore.change_streams.subscriptions.delivery import ResumePosition
from datastore.change_streams.subscriptions.event_source import JoinFilter
from datastore.errors import DomainError
from datastore.model.identity import Identity, Role
from datastore.queues import BoundedQueue, QueueLimits
from server.operations.outcome import Outcome, failure
from server.subscriptions.subscriber import Listener, Subscriber

if TYPE_CHECKING:
    from server.subscriptions.audience import ResultAudience
    from server.subscriptions.broadcast_group import BroadcastGroup


class Rights(NamedTuple):
    """The part of an identity that resolvers read. Members with equal rights share results."""

    user_id: str
    role: Role
    email: str | None


def rights_of(identity: Identity | None) -> Rights | None:
    """Return the rights of an identity; None without a token."""
    return None if identity is None else Rights(identity.user_id, identity.role, identity.email)


class MemberState(Enum):
    """The states of a member, in the order of its life."""

    #: The member ignores the events of the group, because its replay will deliver them.
    REPLAYING = auto()
    #: The events of the group are queued until the member has received its first state, or the end of its replay.
    QUEUEING = auto()
    #: The member receives the events that its first state, or its replay, does not include.
    CATCHING_UP = auto()
    #: The member receives every event directly.
    LIVE = auto()
    ENDED = auto()


# The class looks up a member in 0.15 µs, which each delivery would pay for.
IS_LIVE, HAS_ENDED = MemberState.LIVE, MemberState.ENDED


class _QueuedResult(NamedTuple):
    event: Any
    outcome: Outcome
    key: Hashable


class GroupMember:
    """A subscriber in a group (a `SubscriptionHandle`)."""

    __slots__ = (
        "_after",
        "_group",
        "_queue",
        "audience",
        "listener",
        "position",
        "report",
        "rights",
        "since",
        "state",
        "subscriber",
        "wants_resync",
    )
    #: The members with which this one shares results. The group sets it.
    audience: "ResultAudience"

    def __init__(self, group: "BroadcastGroup", subscriber: Subscriber, listener: Listener) -> None:
        self.subscriber = subscriber
        self.report = subscriber.report
        self.listener = listener
        self.rights = rights_of(subscriber.request.caller.identity)
        self.state = IS_LIVE
        #: The filter of events that the first state or the replay includes; None once all later events are new.
        self.since: JoinFilter | None = None
        #: The position of the group when the member joined.
        self.position: ResumePosition | None = None
        #: Whether the missed events are no longer available, so that the first state is sent with RESYNC.
        self.wants_resync = False
        # The number of the last change that the replay delivered; 0 without a replay.
        self._after = 0
        self._group = group
        self._queue: BoundedQueue[_QueuedResult] | None = None

    @property
    def limits(self) -> QueueLimits:
        return self._group.limits

    @property
    def is_over(self) -> bool:
        return self.state is HAS_ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether events are queued for this member, or will be after its replay."""
        return self.state in (MemberState.REPLAYING, MemberState.QUEUEING)

    def begin_replay(self) -> None:
        """Begin a replay: ignore the events of the group until `wait` is called."""
        self.state = MemberState.REPLAYING

    def wait(self) -> None:
        """Queue events from now on, and drop the events that were queued before."""
        self._drop_queue()
        self.state = MemberState.QUEUEING
        self._queue = BoundedQueue(self.limits.upstream, self.listener.byte_budget)

    def _drop_queue(self) -> None:
        """Drop the queue, and release its bytes."""
        if self._queue is not None:
            self._queue.clear()
            self._queue = None

    def begin(self, event: Any, first: Outcome, key: Hashable) -> None:
        """Deliver the first state, then the queued events."""
        if self.since is not None:
            self.since.begin(event)
        self.go_live_with(first.as_resync() if self.wants_resync else first, key)

    def deliver_replayed(self, outcome: Outcome, key: Hashable) -> None:
        """Deliver a missed event. In the meantime the events of the group are queued, or are part of the replay."""
        self._deliver(outcome, key)

    def go_live_after(self, after: int, seen: Mapping[str, int]) -> None:
        """Go live after a replay up to the number `after` of a change and up to the versions `seen`."""
        if self.since is not None:
            self.since.resume_from(seen)
        self._after = after
        self.go_live_with(None, None)

    def go_live_with(self, outcome: Outcome | None, key: Hashable) -> None:
        """Go live: deliver `outcome`, if any, then the queued events."""
        queue, self._queue = self._queue, None
        self.state = MemberState.CATCHING_UP
        if outcome is not None:
            self._deliver(outcome, key)
        while queue:
            (event, outcome, key), dropped = queue.take()
            if not self.is_over:
                self._offer(event, outcome.with_dropped(dropped), key)
        self._update_state()

    def offer(self, event: Any, outcome: Outcome, key: Hashable) -> None:
        """Deliver or queue an event of the group, unless the member already has it."""
        if self._queue is not None:
            try:
                result = _QueuedResult(event, outcome, key)
                self._queue.add(result, key, size=len(outcome.body), dropped=outcome.dropped)
            except Exception as problem:
                self.stop(problem)
        elif self.state in (IS_LIVE, MemberState.CATCHING_UP):
            self._offer(event, outcome, key)
            self._update_state()

    def _offer(self, event: Any, outcome: Outcome, key: Hashable) -> None:
        if (self.since is None or self.since.accepts(event)) and not 0 < outcome.number <= self._after:
            self._deliver(outcome, key)
        if outcome.number > self._after:
            self._after = 0
        if self.since is not None and self.since.is_settled:
            self.since = None

    def _update_state(self) -> None:
        if self.state is MemberState.CATCHING_UP and self.since is None and self._after == 0:
            self.state = IS_LIVE

    def _deliver(self, outcome: Outcome, key: Hashable) -> None:
        self.subscriber.note(outcome)
        try:
            self.listener.deliver(outcome, key)
        except Exception as problem:  # a member's error must not affect the others
            self.stop(problem)

    def settled_position(self) -> ResumePosition | None:
        """Return the position of the group; None while events are queued, or while a replay is ahead of the group.

        A replay can be ahead if the client has received events from another process before.
        """
        position = None if self.is_over or self.is_waiting else self._group.settled_position()
        return None if position is None or position.number < self._after else position

    def withdraw(self, outcome: Outcome) -> None:
        self.report.events -= 1
        self.report.sent_bytes -= len(outcome.body)

    def stop(self, problem: Exception | None = None) -> None:
        if self.is_over:
            return
        if problem is None:
            self._leave()
            self._group.leave(self)
        else:
            self.end(failure(problem))

    def refuse(self, error: DomainError) -> None:
        """End the member because its budget is exhausted."""
        if not self.is_over:
            self._finish(self.subscriber.refused(error))

    def end(self, outcome: Outcome | None) -> None:
        """End the member, with an error unless `outcome` is None."""
        if not self.is_over:
            if outcome is not None:
                self.subscriber.note(outcome)
            self._finish(outcome)

    def _finish(self, outcome: Outcome | None) -> None:
        self._leave()
        try:
            self.listener.finish(outcome)  # results that the listener withdraws now are not counted
        finally:
            self._group.leave(self)

    def _leave(self) -> None:
        self.state = HAS_ENDED
        self._drop_queue()
        self.subscriber.leave()
