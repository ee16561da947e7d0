"""The fan-out of events: an event is executed once for each audience of a group, and delivered to its members."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from msgspec import Struct, structs

from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import EventSource
from datastore.errors import SlowSubscriber
from datastore.primitives.keyed_workers import KeyedWorkers
from datastore.queues import OverflowPolicy, QueueLimits
from server.admission.fairness import TimeSlices
from server.operations.outcome import Outcome
from server.subscriptions.audience import AudienceSet, ResultAudience, by_audience
from server.subscriptions.cost_sharing import CostSplitter
from server.subscriptions.event_execution import EventExecutor, EventResult, StartedExecution
from server.subscriptions.group_member import HAS_ENDED, IS_LIVE, GroupMember

# Deliveries per turn of the event loop. They take a few milliseconds.
DELIVERIES_PER_TURN = 250
# Concurrent executions of events that have to wait. This many may hang without delaying the other audiences.
MAX_EXECUTIONS = 32

Deliver = Callable[[EventResult, Sequence[GroupMember]], Coroutine[Any, Any, None]]


class _QueuedDelivery(Struct, frozen=True, eq=False):
    """An event, and the members of an audience when it arrived."""

    delivery: Delivery[Any]
    members: Sequence[GroupMember]
    #: The execution for one of them, if it has started, or its result.
    started: StartedExecution | EventResult | None = None


class EventFanOut:
    """The fan-out of a group's events.

    An execution that does not wait is delivered at once. Otherwise a worker of the audience waits for it, so that it
    delays no other audience, and the next events of the audience are queued within `limits`.
    """

    #: Whether the next event is sent with RESYNC: it is the present state, since the missed events are lost.
    marks_resync: bool
    #: Limits the concurrent executions of first states and events that wait.
    turns: asyncio.Semaphore
    #: The audiences for which an event is executed or queued.
    pending: Collection[ResultAudience]

    def __init__(
        self,
        source: EventSource[Any],
        audiences: AudienceSet,
        executor: EventExecutor,
        costs: CostSplitter,
        slices: TimeSlices,
        limits: QueueLimits,
    ) -> None:
        self._audiences = audiences
        self._executor = executor
        self._costs = costs
        self._slices = slices
        self.marks_resync = False
        self.turns = asyncio.Semaphore(MAX_EXECUTIONS)
        # Only LATEST conflates events with the same key.
        self._key = source.key if limits.policy is OverflowPolicy.LATEST else None
        self._workers = KeyedWorkers[ResultAudience, _QueuedDelivery](
            limits, MAX_EXECUTIONS, self._run_queued, self._discard
        )
        self.pending = self._workers.pending

    def is_pending_for(self, member: GroupMember) -> bool:
        """Return whether an event is executed, or queued, for the audience of a member."""
        return member.audience in self.pending

    async def deliver(self, tasks: asyncio.TaskGroup, delivery: Delivery[Any]) -> None:
        """Execute an event for all audiences, and deliver it. The workers run in `tasks`."""
        pending = self.pending
        if self._audiences.has_mixed:
            self._audiences.split(pending.__contains__)
        # A member that joins in the meantime does not receive this event: its first state or its replay has it.
        audiences, count = self._audiences.snapshot(), 0
        for audience, members in audiences:
            if self._slices.is_used_up:
                await self._slices.wait_for_slice()
            is_queued = audience in pending
            rest = _QueuedDelivery(delivery, members) if is_queued else self._start_for(audience, members, delivery)
            if rest is not None:
                if isinstance(rest.started, EventResult) or (len(audiences) == 1 and not is_queued):
                    await self._execute_for(rest, self._deliver)
                else:
                    self._enqueue(tasks, audience, rest)
            count += len(members)
            if count >= DELIVERIES_PER_TURN:
                count = 0
                await asyncio.sleep(0)
        if pending:
            await self._workers.wait_for_capacity()
        if self._costs.may_be_due:
            self._costs.settle_soon()

    async def deliver_missed(self, members: Sequence[GroupMember], delivery: Delivery[Any]) -> None:
        """Execute a missed event for members, and deliver it before their queued events."""
        for sharing in by_audience(members).values():
            await self._execute_for(_QueuedDelivery(delivery, sharing), self._deliver_missed)
        self._costs.settle_soon()

    def _start_for(
        self, audience: ResultAudience, members: Sequence[GroupMember], delivery: Delivery[Any]
    ) -> _QueuedDelivery | None:
        """Execute an event for an audience, and deliver it. Return the rest of the work if that has to wait."""
        if members[0].state is HAS_ENDED:
            members = [member for member in members if not member.is_over]
            if not members:
                return None
        result = self._executor.start(members[0], delivery)
        if not isinstance(result, EventResult) or len(members) > DELIVERIES_PER_TURN:
            return _QueuedDelivery(delivery, members, result)
        others: Sequence[GroupMember] = ()
        if result.is_personal or audience.is_personal:
            members, others = self._audiences.sharing(result, members)
        self._deliver_now(result, members, self._charged(result, members))
        return _QueuedDelivery(delivery, others) if others else None

    def _enqueue(self, tasks: asyncio.TaskGroup, audience: ResultAudience, queued: _QueuedDelivery) -> None:
        delivery = queued.delivery
        try:
            self._workers.put(tasks, audience, queued, self._key and self._key(delivery.event), delivery.dropped)
        except SlowSubscriber as problem:
            for member in queued.members:
                member.stop(problem)

    async def _run_queued(self, _: ResultAudience, queued: _QueuedDelivery, dropped: int) -> None:
        if dropped != queued.delivery.dropped:
            queued = structs.replace(queued, delivery=structs.replace(queued.delivery, dropped=dropped))
        await self._execute_for(queued, self._deliver)
        self._costs.settle_soon()

    def _discard(self, queued: _QueuedDelivery) -> None:
        if isinstance(queued.started, StartedExecution):
            self._executor.abandon(queued.started)

    async def _execute_for(self, queued: _QueuedDelivery, deliver: Deliver) -> None:
        """Execute an event for members of an audience, once for all that share the result, and deliver it."""
        delivery, members, started = queued.delivery, queued.members, queued.started
        while members := [member for member in members if not member.is_over]:
            if started is None and self._slices.is_used_up:
                await self._slices.wait_for_slice()
            result = started or self._executor.start(members[0], delivery)
            started = None
            if not isinstance(result, EventResult):
                async with self.turns:
                    result = await self._executor.finish(result)
            sharing, members = self._audiences.sharing(result, members)
            await deliver(result, sharing)
        if isinstance(started, StartedExecution):
            self._executor.abandon(started)

    async def _deliver(self, result: EventResult, members: Sequence[GroupMember]) -> None:
        outcome = self._charged(result, members)
        for start in range(0, len(members), DELIVERIES_PER_TURN):
            if start:
                await asyncio.sleep(0)
            self._deliver_now(result, members[start : start + DELIVERIES_PER_TURN], outcome)

    def _charged(self, result: EventResult, members: Sequence[GroupMember]) -> Outcome:
        """Charge the members for a result. Return the outcome that they receive."""
        outcome = result.outcome
        if self.marks_resync and not outcome.is_failure:
            self.marks_resync, outcome = False, outcome.as_resync()
        self._costs.share(result.meter, members, len(outcome.body), is_complete=result.is_complete)
        return outcome

    def _deliver_now(self, result: EventResult, members: Sequence[GroupMember], outcome: Outcome) -> None:
        event, size = result.event, len(outcome.body)
        key = self._key and self._key(event)
        for member in members:
            if member.state is IS_LIVE and not outcome.errors:
                # The path of nearly every delivery, without a call for each member besides that of its listener.
                report = member.report
                report.events += 1
                report.sent_bytes += size
                try:
                    member.listener.deliver(outcome, key)
                except Exception as problem:  # a member's error must not affect the others
                    member.stop(problem)
            elif member.state is not HAS_ENDED:
                if outcome.errors and outcome.is_failure:
                    member.end(outcome)
                else:
                    member.offer(event, outcome, key)

    async def _deliver_missed(self, result: EventResult, members: Sequence[GroupMember]) -> None:
        self._costs.share(result.meter, members, len(result.outcome.body), is_complete=result.is_complete)
        key, outcome = self._key and self._key(result.event), result.outcome
        if outcome.is_failure:
            await for_each(members, lambda member: member.end(outcome))
        else:
            await for_each(members, lambda member: member.deliver_replayed(outcome, key))


async def for_each(members: Sequence[GroupMember], act: Callable[[GroupMember], None]) -> None:
    """Call `act` for each member that has not ended. Let other tasks run after each `DELIVERIES_PER_TURN` members."""
    for number, member in enumerate(members, 1):
        if not member.is_over:
            act(member)
        if number % DELIVERIES_PER_TURN == 0:
            await asyncio.sleep(0)
