"""A broadcast group of equal subscriptions: one source, and one execution and one encoding of each event for all."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, MutableSet, Sequence
from contextlib import aclosing
from typing import Any

from graphql.execution import Executor

from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader
from datastore.change_streams.subscriptions.resume_position import ResumePosition, SubscriptionProgress
from datastore.errors import SlowSubscriber
from server.admission.deadlines import Deadlines
from server.admission.fairness import TimeSlices
from server.documents.document_cache import PreparedOperation
from server.operations.billing import Billing
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure, resync
from server.subscriptions.cost_sharing import CostSplitter
from server.subscriptions.event_execution import EventExecutor, EventResult, GroupEvent
from server.subscriptions.group_member import GroupMember, Rights, by_rights
from server.subscriptions.keyed_worker import KeyedWorkers
from server.subscriptions.replay import ReplaySet, ReplaySource
from server.subscriptions.subscriber import Listener, Subscriber

# Members per turn of the event loop. Their deliveries take a few milliseconds.
LISTENERS_PER_TURN = 250
# Concurrent executions of events for members with different rights. This many may hang without delaying the others.
MAX_EXECUTIONS = 32

_log = logging.getLogger(__name__)

DeliverResult = Callable[[EventResult, Sequence[GroupMember]], Coroutine[Any, Any, None]]
# An event, and the members with the same rights when it arrived.
_QueuedEvent = tuple[GroupEvent, list[GroupMember]]


class BroadcastGroup:
    """Subscriptions that share one source, which runs until the last member has left.

    If a result depends on the identity of the caller, the operation is added to `personal`: it is then executed once
    for all members with the same rights, by a keyed worker. Without `is_public` all members have the same rights, and
    the source may read the identity. A member whose event is not executed within `deadlines` ends with TIMEOUT; the
    others continue. `spawn` runs work that must complete although the group has ended; `forget` is called when no
    member can join any more.
    """

    def __init__(
        self,
        billing: Billing,
        source: SharedSource[Any],
        executor: Executor[Any],
        context: OperationContext,
        *,
        deadlines: Deadlines,
        slices: TimeSlices,
        is_public: bool,
        personal: MutableSet[PreparedOperation],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        forget: Callable[["BroadcastGroup"], None],
    ) -> None:
        self.limits = source.limits
        self._source = source
        self._context = context
        self._is_public = is_public
        self._personal = personal
        self._spawn = spawn
        self._forget = forget
        self._members: dict[GroupMember, None] = {}
        self._cost_splitter = CostSplitter(billing, spawn, self._members)
        # The members for which the first state has to be read.
        self._joining: list[GroupMember] = []
        self._has_begun = False
        self._reading: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(MAX_EXECUTIONS)
        self._workers = KeyedWorkers[Rights | None, _QueuedEvent](
            self.limits.upstream, MAX_EXECUTIONS, self._run_queued
        )
        self._event_executor = EventExecutor(billing, source, executor, deadlines, slices)
        self._progress = context.progress or SubscriptionProgress()
        self._is_delivering = False
        # The position up to which everything was delivered to all members before the event that is being delivered.
        self._before: ResumePosition | None = None
        self._replays = ReplaySet(self, spawn)
        self._running = asyncio.create_task(self._run())

    def join(self, subscriber: Subscriber, listener: Listener, missed: ReplaySource | None = None) -> GroupMember:
        """Add a member. It receives its `missed` events first, then all new ones."""
        member = GroupMember(self, subscriber, listener)
        self._members[member] = None
        self._cost_splitter.may_owe = True
        member.position = self._delivered_position()
        if missed is not None:
            member.begin_replay()
            self._replays.add(member, missed, now=self._is_ready)
        elif self._source.first is None:
            self._send_position(member)
        else:
            member.wait()
            self._joining.append(member)
            if self._has_begun:
                self._read_soon(member)
        return member

    def leave(self, member: GroupMember) -> None:
        """Remove a member whose subscription has ended. The last member ends the group."""
        self._members.pop(member, None)
        if not self._members:
            self._forget(self)
            for context in (self._context, *self._event_executor.open):  # the last member pays for abandoned executions
                knows_all = context.meter.is_complete
                member.subscriber.share(context.meter.take(), 1, knows_all=knows_all)
            self._running.cancel()
            self._replays.cancel()
            if self._reading is not None:
                self._reading.cancel()
        try:
            if not member.subscriber.end_if_settled():
                self._spawn(member.subscriber.end())
        except Exception:  # an observer's error must not prevent the end of other members
            _log.exception("The end of a subscription could not be reported to an observer")

    @property
    def _is_ready(self) -> bool:
        """Whether a replay may begin: the source follows its changes, and the first state, if any, was read."""
        return self._progress.started.is_set() and (self._has_begun or self._source.first is None)

    async def deliver_missed(self, members: list[GroupMember], event: GroupEvent) -> None:
        """Execute a missed event, and deliver it before the queued events."""

        async def deliver(result: EventResult, sharing: Sequence[GroupMember]) -> None:
            self._cost_splitter.charge(result.meter, sharing, result.outcome, knows_all=result.knows_all)
            key, outcome = self._source.key(result.event), result.outcome
            if outcome.is_failure:
                await _each(sharing, lambda member: member.end(outcome))
            else:
                await _each(sharing, lambda member: member.deliver_replayed(outcome, key))

        for sharing in by_rights(await self._deliver_shared(members, event, deliver)).values():
            await self._deliver_to_class(sharing, event, deliver)
        self._cost_splitter.settle_soon()

    def begin_queueing(self, members: list[GroupMember]) -> None:
        """Queue the events of the group for these members from now on."""
        for member in members:
            member.position = self._delivered_position()
            member.wait()
            member.since = self._source.since and self._source.since()

    def resync(self, members: list[GroupMember]) -> None:
        """Deliver RESYNC, with the present state if the source has a first state."""
        if self._source.first is None:
            for member in members:
                position = member.position or self._progress.latest()
                event = resync(position and position.id(self._progress.known), position.number if position else 0)
                member.go_live_with(event, None)
            return
        for member in members:
            member.wants_resync = True
            member.wait()  # the state that is read next includes the queued events
        self._joining += members
        self._read_soon(*members)

    def share(self, context: OperationContext, members: list[GroupMember]) -> None:
        """Charge the members for the reads of their common replay."""
        knows_all = context.meter.is_complete
        self._cost_splitter.charge(context.meter.take(), members, knows_all=knows_all)

    def _delivered_position(self) -> ResumePosition | None:
        """Return the position up to which everything was delivered to all members."""
        return self._before if self._is_delivering or self._workers else self._progress.latest()

    def settled_position(self) -> ResumePosition | None:
        """Return the position up to which everything was delivered; None while an event is executed or delivered."""
        return None if self._workers else self._progress.settled_position

    def _send_positions(self) -> None:
        """Send the resume id of the start to all members: the source follows its changes now."""
        self._before = self._progress.latest()
        for member in self._members:
            member.position = self._before
            if self._source.first is None and not member.is_waiting:
                self._send_position(member)
        if self._source.first is None:
            self._replays.begin()

    @staticmethod
    def _send_position(member: GroupMember) -> None:
        if member.position is not None:
            member.listener.send_position(member.position.id(""))

    # The source, and the first state

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._working:
                last = await self._deliver_events()
                self._share_source()
                if last is None:
                    await self._replays.finish()
                at_rest = [member for member in self._members if member.rights not in self._workers]
                await _each(at_rest, lambda member: member.end(last))
        except Exception as problem:
            last = failure(problem)
        await _each(list(self._members), lambda member: member.end(last))

    async def _deliver_events(self) -> Outcome | None:
        """Deliver the events until the source ends. Return the error that ended it, if any."""
        try:
            reader = SourceReader(self._begin, self._send_positions, subscriber_count=self._members.__len__)
            async with aclosing(self._source.events(reader)) as events:
                async for event in events:
                    if self._source.first is not None and not self._has_begun:
                        self._has_begun = True
                        self._read_soon(*self._joining)
                        self._replays.begin()
                    else:
                        self._check_source()
                        await self._deliver_event(GroupEvent.of(event, self._progress))
                        await asyncio.sleep(0)  # members may take each of several events before the next
            if self._reading is not None:
                await self._reading
        except asyncio.CancelledError as cancelled:
            return self._stop_reading(translate_cancellation(cancelled))
        except Exception as problem:
            return self._stop_reading(problem)
        finally:
            self._forget(self)
            self._context.close()
        return None

    def _stop_reading(self, problem: Exception) -> Outcome:
        """Cancel the reading of the first state. Return the outcome for the error of the source."""
        if self._reading is not None:
            self._reading.cancel()
        return failure(problem)

    def _check_source(self) -> None:
        """Raise `RuntimeError` if the source of a shared subscription has read the identity of a caller."""
        if self._is_public and self._context.used_identity:
            raise RuntimeError("The source of a shared subscription has read the identity of a caller.")

    async def _begin(self) -> Any:
        """Read the first state, and deliver it to the members that share it."""
        if self._source.first is None:
            return None
        while True:
            members, self._joining = self._joining, []
            members = [member for member in members if not member.is_over]
            reading_member = next(iter(members or self._members), None)
            if reading_member is None:
                await asyncio.sleep(0)  # all members have left, and this task is cancelled next
                continue
            result = await self._event_executor.execute(reading_member, None, self._delivered_position())
            _, others = result.partition(members)
            self._joining[:0] = others
            # If all members resume, none receives the first state. A failure to read it ends the member that reads.
            await self._deliver_first(result, members or ([] if not result.outcome.is_failure else [reading_member]))
            if not result.outcome.is_failure:
                return result.event

    def _read_soon(self, *members: GroupMember) -> None:
        """Read the first state for members that joined a running group."""
        for member in members:
            member.since = self._source.since and self._source.since()
        if self._joining and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read the first state, and read it again for members that join while it is read."""
        while self._joining:
            members, self._joining = self._joining, []
            try:
                await self._read_for(members)
            except Exception as problem:  # it ends the waiting members; for later ones the state is read again
                outcome = failure(problem)
                waiting = [member for member in members if member.is_waiting]
                await _each(waiting, lambda member, event=outcome: member.end(event))  # type: ignore[misc]

    async def _read_for(self, members: list[GroupMember]) -> None:
        others = await self._deliver_shared(members, None, self._deliver_first)
        async with asyncio.TaskGroup() as tasks:
            for sharing in by_rights(others).values():
                tasks.create_task(self._deliver_to_class(sharing, None, self._deliver_first))

    async def _deliver_first(self, result: EventResult, members: Sequence[GroupMember]) -> None:
        members, _ = result.partition(members)
        self._cost_splitter.charge(result.meter, members or [result.member], result.outcome, knows_all=result.knows_all)
        outcome, key = result.outcome, None if result.event is None else self._source.key(result.event)
        if outcome.is_failure:
            await _each(members, lambda member: member.end(outcome))
        else:
            await _each(members, lambda member: member.begin(result.event, outcome, key))
        self._cost_splitter.settle_soon()

    # Events

    async def _deliver_event(self, event: GroupEvent) -> None:
        self._is_delivering = True
        try:
            await self._deliver_to_all(event)
        finally:
            self._is_delivering = False
            if not self._workers:
                self._before = event.position

    async def _deliver_to_all(self, event: GroupEvent) -> None:
        self._share_source()
        classes = by_rights(await self._deliver_shared(list(self._members), event, self._deliver))
        if len(classes) == 1 and not self._workers:
            (sharing,) = classes.values()
            await self._deliver_to_class(sharing, event, self._deliver)
        else:
            for rights, sharing in classes.items():
                self._enqueue_for_class(rights, sharing, event)
            await self._workers.wait_for_capacity()
        self._cost_splitter.settle_soon()

    def _enqueue_for_class(self, rights: Rights | None, sharing: list[GroupMember], event: GroupEvent) -> None:
        """Enqueue the event for the members with these rights, so that its execution delays no other members."""
        try:
            self._workers.put(self._working, rights, (event, sharing), self._source.key(event.event), event.dropped)
        except SlowSubscriber as problem:
            for member in sharing:
                member.stop(problem)

    async def _run_queued(self, queued: _QueuedEvent, dropped: int) -> None:
        event, members = queued
        event = event._replace(dropped=dropped)
        members = [member for member in members if not member.is_over]
        if members:
            await self._deliver_to_class(members, event, self._deliver)
            self._cost_splitter.settle_soon()

    # Results, and the members that share them

    async def _deliver_shared(
        self, members: list[GroupMember], event: GroupEvent | None, deliver: DeliverResult
    ) -> list[GroupMember]:
        """Execute once and deliver to every member with the same result.

        Return the members that need their own execution.
        """
        if not members or self._operation(members) in self._personal:
            return members
        result = await self._event_executor.execute(members[0], event, self._delivered_position())
        if result.is_personal:
            self._personal.add(self._operation(members))
        sharing, others = result.partition(members)
        await deliver(result, sharing)
        return others

    async def _deliver_to_class(
        self, sharing: list[GroupMember], event: GroupEvent | None, deliver: DeliverResult
    ) -> None:
        async with self._turns:
            result = await self._event_executor.execute(sharing[0], event, self._delivered_position())
        await deliver(result, sharing)

    @staticmethod
    def _operation(members: Sequence[GroupMember]) -> PreparedOperation:
        """Return the operation. It is the same for all members."""
        return members[0].subscriber.request.operation

    async def _deliver(self, result: EventResult, members: Sequence[GroupMember]) -> None:
        self._cost_splitter.charge(result.meter, members, result.outcome, knows_all=result.knows_all)
        event, outcome = result.event, result.outcome
        size, key = len(outcome.body), self._source.key(event)
        if outcome.is_failure:
            await _each(members, lambda member: member.end(outcome))
        elif outcome.errors:
            await _each(members, lambda member: member.offer(event, outcome, key))
        else:
            for number, member in enumerate(members, 1):
                if member.is_live:
                    member.deliver(outcome, size, key)
                elif not member.is_over:
                    member.offer(event, outcome, key)
                if number % LISTENERS_PER_TURN == 0:
                    await asyncio.sleep(0)

    # Billing

    def _share_source(self) -> None:
        """Charge all members for the reads of the source."""
        meter = self._context.meter
        knows_all = meter.is_complete
        self._cost_splitter.charge(meter.take(), list(self._members), knows_all=knows_all)


async def _each(members: Sequence[GroupMember], act: Callable[[GroupMember], None]) -> None:
    """Call `act` for each member that has not ended. Let other tasks run after each `LISTENERS_PER_TURN` members."""
    for number, member in enumerate(members, 1):
        if not member.is_over:
            act(member)
        if number % LISTENERS_PER_TURN == 0:
            await asyncio.sleep(0)
