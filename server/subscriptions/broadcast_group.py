"""A broadcast group: subscriptions to one stream of a source."""

import asyncio
import logging
from collections.abc import Callable, MutableSet
from contextlib import aclosing
from typing import Any

from datastore.change_streams.replay.signed_resume_ids import ResumeRequest, Seal
from datastore.change_streams.subscriptions.delivery import Delivery, Phase, ResumePosition, SourceStart
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.queues import QueueLimits
from server.documents.document_cache import PreparedOperation
from server.operations.billing import MISSED_EVENT_UNITS
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure, resync
from server.operations.request import Request
from server.operations.runner import Runner
from server.subscriptions.audience import AudienceSet
from server.subscriptions.cost_sharing import CostSplitter
from server.subscriptions.event_execution import EventExecutor
from server.subscriptions.fan_out import EventFanOut, for_each
from server.subscriptions.first_state import FirstStates
from server.subscriptions.group_member import GroupMember
from server.subscriptions.replay import ReplaySet
from server.subscriptions.subscriber import Listener, Spawn, Subscriber

_log = logging.getLogger(__name__)


class BroadcastGroup:
    """Subscriptions that share one stream of a source, which runs until the last member has left.

    Each event is executed once for each audience: the members with the same operation and variables. If a result
    depends on the identity of the caller, the operation is added to `personal`: its audiences then have equal rights.
    A member whose event is not executed within the deadline ends with TIMEOUT; the others continue.

    A group `is_public` if its members may have different rights. With `resume` the stream resumes for the only member
    of a group that no other may join. `context` is that of the stream; `seal` signs resume ids. `spawn` runs work that
    must complete although the group has ended; `forget` is called when no member can join any more.
    """

    def __init__(
        self,
        runner: Runner,
        source: EventSource[Any],
        context: OperationContext,
        *,
        seal: Seal,
        resume: ResumeRequest | None,
        is_public: bool,
        personal: MutableSet[PreparedOperation],
        spawn: Spawn,
        forget: Callable[["BroadcastGroup"], None],
    ) -> None:
        self.source = source
        self.limits = source.limits or QueueLimits()
        self._billing = runner.billing
        self._context = context
        self._seal = seal
        self._resume = resume
        self._is_public = is_public
        self._spawn = spawn
        self._forget = forget
        self._members: dict[GroupMember, None] = {}
        self._audiences = AudienceSet(personal)
        self._costs = CostSplitter(runner.billing, spawn, self._members)
        self._stream = source.open(SourceReader(context, resume, seal, self._read_first, self._members.__len__))
        self._executor = EventExecutor(
            runner.documents, runner.billing, source, context, runner.deadlines, runner.slices
        )
        self._fan_out = EventFanOut(
            source, self._audiences, self._executor, self._costs, runner.slices, self.limits.upstream
        )
        self._first_states = FirstStates(
            source,
            self._audiences,
            self._executor,
            self._costs,
            self._fan_out.turns,
            self._delivered_position,
            self._stream.since,
        )
        # The start of the stream; None before the source follows its changes.
        self._start: SourceStart | None = None
        # The position up to which everything was delivered to all members.
        self._position: ResumePosition | None = None
        self._is_delivering = False
        self._replays = ReplaySet(self, spawn)
        self._running = asyncio.create_task(self._run())

    # Members

    def has_audience(self, request: Request) -> bool:
        """Return whether a member has the operation and the variables of a request: they are valid then."""
        return self._audiences.has(request)

    def join(self, subscriber: Subscriber, listener: Listener, resume: ResumeRequest | None = None) -> GroupMember:
        """Add a member. If it resumes, it receives the events that it missed first, then all new ones."""
        member = GroupMember(self, subscriber, listener)
        self._members[member] = None
        self._audiences.add(member)
        self._costs.may_be_due = True
        member.position = self._delivered_position()
        if resume is not None and self._resume is None:
            member.begin_replay()
            self._replays.add(member, resume, now=self._start is not None and self._first_states.has_begun)
        elif resume is None and self.source.first is None:
            self._send_position(member)
        elif resume is None:
            self._first_states.add([member])
        return member

    def leave(self, member: GroupMember) -> None:
        """Remove a member whose subscription has ended. The last member ends the group."""
        if member in self._members:
            del self._members[member]
            self._audiences.remove(member)
        if not self._members:
            self._forget(self)
            for context in (self._context, *self._executor.open):  # the last member pays for abandoned executions
                is_complete = context.meter.is_complete
                member.subscriber.share(context.meter.take(), 1, is_complete=is_complete)
            self._running.cancel()
            self._replays.cancel()
            self._first_states.cancel()
        try:
            if not member.subscriber.end_if_settled():
                self._spawn(member.subscriber.end())
        except Exception:  # an observer's error must not prevent the end of other members
            _log.exception("The end of a subscription could not be reported to an observer")

    # Positions

    def settled_position(self) -> ResumePosition | None:
        """Return the position up to which everything was delivered; None while an event is executed or delivered."""
        if self._start is None or self._is_delivering or self._fan_out.pending or self._fan_out.marks_resync:
            return None
        return self._start.settled_position()

    def _delivered_position(self) -> ResumePosition | None:
        """Return a position up to which everything was delivered to all members."""
        return self.settled_position() or self._position

    def _begin_stream(self, start: SourceStart, delivery: Delivery[Any]) -> None:
        """Note the start of the stream, and send its resume id to all members that receive no first state."""
        self._start, self._position = start, delivery.position
        is_resumed = self._resume is not None and not start.is_too_old
        for member in list(self._members):
            member.position = delivery.position
            if self._resume is not None and start.is_too_old:
                self._resync_only_member(member, start, delivery)
            elif not (is_resumed or start.has_first or member.is_waiting):
                self._send_position(member, delivery.known)
        if self.source.first is None:
            self._replays.begin()

    def _resync_only_member(self, member: GroupMember, start: SourceStart, delivery: Delivery[Any]) -> None:
        """Deliver RESYNC, or send it with the present state if the stream begins with one."""
        if self.source.first is not None:
            member.wants_resync = True
            self._first_states.add([member])
        elif start.has_first:
            self._fan_out.marks_resync = True
        elif delivery.position is not None:
            position = delivery.position
            member.go_live_with(resync(position.id(delivery.known), position.number), None)

    @staticmethod
    def _send_position(member: GroupMember, known: str = "") -> None:
        if member.position is not None:
            member.listener.send_position(member.position.id(known))

    # Replays

    def open_replay(self, member: GroupMember, resume: ResumeRequest) -> tuple[EventStream[Any], OperationContext]:
        """Return a stream that resumes, and its context: a context of the member."""
        context = self._billing.open_context(member.subscriber.request)
        return self.source.open(SourceReader(context, resume, self._seal)), context

    async def deliver_missed(self, members: list[GroupMember], delivery: Delivery[Any]) -> None:
        """Execute a missed event, and deliver it before the queued events."""
        await self._fan_out.deliver_missed(members, delivery)

    def begin_queueing(self, members: list[GroupMember]) -> None:
        """Queue the events of the group for these members from now on."""
        for member in members:
            member.position = self._delivered_position()
            member.wait()
            member.since = self._stream.since and self._stream.since()

    def resync(self, members: list[GroupMember]) -> None:
        """Deliver RESYNC, with the present state if the source has a first state."""
        for member in members:
            if self.source.first is None:
                position = member.position
                event = resync(None, 0) if position is None else resync(position.id(""), position.number)
                member.go_live_with(event, None)
            else:
                member.wants_resync = True
        if self.source.first is not None:
            self._first_states.add(members)

    def share_replay(self, context: OperationContext, members: list[GroupMember]) -> None:
        """Charge the members for the reads of their common replay."""
        is_complete = context.meter.is_complete
        self._costs.share(context.meter.take(), members, is_complete=is_complete)

    # The stream

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                last = await self._deliver_events(tasks)
                if last is not None:
                    self._explain(last)
                self._share_source()
                if last is None:
                    await self._replays.finish()
                at_rest = [member for member in self._members if not self._fan_out.is_pending_for(member)]
                await for_each(at_rest, lambda member: member.end(last))
        except Exception as problem:
            last = failure(problem)
        await for_each(list(self._members), lambda member: member.end(last))

    async def _deliver_events(self, tasks: asyncio.TaskGroup) -> Outcome | None:
        """Deliver the events until the source ends. Return the error that ended it, if any."""
        try:
            async with aclosing(self._stream.deliveries) as deliveries:
                async for delivery in deliveries:
                    if delivery.start is not None:
                        self._begin_stream(delivery.start, delivery)
                    elif self.source.first is not None and delivery.phase in (Phase.FIRST, Phase.CAUGHT_UP):
                        self._first_states.begin()  # which has delivered the first state
                        self._replays.begin()
                    elif delivery.event is not None:
                        await self._deliver_event(tasks, delivery)
                        await asyncio.sleep(0)  # members may take each of several events before the next
            await self._first_states.finish()
        except asyncio.CancelledError as cancelled:
            problem: Exception = translate_cancellation(cancelled)
        except Exception as error:
            problem = error
        else:
            return None
        finally:
            self._forget(self)
            self._context.close()
        self._first_states.cancel()
        return failure(problem)

    async def _deliver_event(self, tasks: asyncio.TaskGroup, delivery: Delivery[Any]) -> None:
        if self._is_public and self._context.used_identity:
            raise RuntimeError("The source of a shared subscription has read the identity of a caller.")
        is_missed = delivery.phase is Phase.MISSED
        if is_missed:
            self._context.meter.charge(MISSED_EVENT_UNITS)
        self._is_delivering = True
        try:
            await self._fan_out.deliver(tasks, delivery)
        finally:
            self._is_delivering = False
            if not self._fan_out.pending:
                self._position = delivery.position
        meter = self._context.meter
        if meter.calls or meter.deferred or meter.open_calls:
            self._share_source()  # after the event, whose explanation includes the calls
        if is_missed or self.source.limits is None:  # the only member reads one event after the other
            for member in list(self._members):
                await member.listener.drained()

    async def _read_first(self) -> Any:
        return None if self.source.first is None else await self._first_states.read_for_stream(self._members)

    def _explain(self, error: Outcome) -> None:
        """Add the calls of the source to its error, if the member of this group requested an explanation."""
        member = next(iter(self._members), None)
        if member is not None:
            self._billing.explain(member.subscriber.request, error, self._context.meter)

    def _share_source(self) -> None:
        """Charge all members for the reads of the source."""
        meter = self._context.meter
        is_complete = meter.is_complete
        self._costs.share(meter.take(), list(self._members), is_complete=is_complete)
