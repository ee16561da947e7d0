"""Equal subscriptions: one source, one execution and one encoding of each event, delivered to all members."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, MutableSet, Sequence
from contextlib import aclosing
from typing import Any

from graphql.execution import Executor

from datastore.change_streams.subscriptions.event_source import SharedSource
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

# Deliveries to so many take some milliseconds: then others have a turn.
LISTENERS_PER_TURN = 250
# Executions of events for different callers, at once. So many may hang without holding up the others.
EXECUTED_AT_ONCE = 32

_log = logging.getLogger(__name__)

Tell = Callable[[EventResult, Sequence[GroupMember]], Coroutine[Any, Any, None]]
# An event, and those with the same rights who were there when it came.
_Due = tuple[GroupEvent, list[GroupMember]]


class BroadcastGroup:
    """Subscriptions that share one source, which runs until the last member has left.

    If a result depends on the identity of the caller, the operation is `personal`: it is executed once for the members
    of each set of rights, by a keyed worker. Without `is_anyones` all members belong to one caller, and the source may
    read the identity. A member whose event is not executed within `deadlines` ends with TIMEOUT; the others continue.
    `spawn` runs work that must complete although the group has ended; `forget` is called when no member can join any
    more.
    """

    def __init__(
        self,
        accounts: Billing,
        source: SharedSource[Any],
        executor: Executor[Any],
        context: OperationContext,
        *,
        deadlines: Deadlines,
        slices: TimeSlices,
        is_anyones: bool,
        personal: MutableSet[PreparedOperation],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        forget: Callable[["BroadcastGroup"], None],
    ) -> None:
        self.keeping = source.keeping
        self._source = source
        self._context = context
        self._is_anyones = is_anyones
        self._personal = personal
        self._spawn = spawn
        self._forget = forget
        self._members: dict[GroupMember, None] = {}
        self._cost_splitter = CostSplitter(accounts, spawn, self._members)
        # Those who are to be told how things stand, once nothing can be missed any more.
        self._joining: list[GroupMember] = []
        self._has_begun = False
        self._reading: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(EXECUTED_AT_ONCE)
        self._lanes = KeyedWorkers[Rights | None, _Due](self.keeping.upstream, EXECUTED_AT_ONCE, self._run_queued)
        self._event_executor = EventExecutor(accounts, source, executor, deadlines, slices)
        self._progress = context.progress or SubscriptionProgress()
        self._progress.on_started = self._send_positions
        self._is_delivering = False
        self._before: ResumePosition | None = None  # up to where all were told, while some are told more
        self._replays = ReplaySet(self, spawn)
        context.subscriber_count = self._members.__len__
        self._running = asyncio.create_task(self._run())

    def join(self, subscriber: Subscriber, listener: Listener, missed: ReplaySource | None = None) -> GroupMember:
        """Add a member. It receives its `missed` events first, then all new ones."""
        member = GroupMember(self, subscriber, listener)
        self._members[member] = None
        self._cost_splitter.may_owe = True
        member.mark = self._standing()
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
            for context in (self._context, *self._event_executor.open):  # what is under way is given up
                knows_all = context.meter.is_complete
                member.subscriber.share(context.meter.take(), 1, knows_all=knows_all)
            self._running.cancel()
            self._replays.cancel()
            if self._reading is not None:
                self._reading.cancel()
        try:
            if not member.subscriber.end_if_settled():
                self._spawn(member.subscriber.end())
        except Exception:  # of an observer: the others' end is not to be held up
            _log.exception("The end of a subscription could not be told of")

    @property
    def _is_ready(self) -> bool:
        return self._progress.begun.is_set() and (self._has_begun or self._source.first is None)

    async def deliver_missed(self, members: list[GroupMember], told: GroupEvent) -> None:
        async def tell(made: EventResult, alike: Sequence[GroupMember]) -> None:
            self._cost_splitter.charge(made.taken, alike, made.outcome, knows_all=made.knows_all)
            key, outcome = self._source.key(made.event), made.outcome
            if outcome.is_failure:
                await _each(alike, lambda member: member.end(outcome))
            else:
                await _each(alike, lambda member: member.deliver_replayed(outcome, key))

        for alike in by_rights(await self._deliver_shared(members, told, tell)).values():
            await self._deliver_to_class(alike, told, tell)
        self._cost_splitter.settle_soon()

    def keep(self, members: list[GroupMember]) -> None:
        for member in members:
            member.mark = self._standing()
            member.wait()
            member.since = self._source.since and self._source.since()

    def resync(self, members: list[GroupMember]) -> None:
        if self._source.first is None:
            for member in members:
                mark = member.mark or self._progress.latest()
                told = resync(mark and mark.id(self._progress.known), mark.number if mark else 0)
                member.go_live_with(told, None)
            return
        for member in members:
            member.wants_resync = True
            member.wait()  # what has waited is in what is read from now on
        self._joining += members
        self._read_soon(*members)

    def share(self, context: OperationContext, members: list[GroupMember]) -> None:
        knows_all = context.meter.is_complete
        self._cost_splitter.charge(context.meter.take(), members, knows_all=knows_all)

    def _standing(self) -> ResumePosition | None:
        """Return the position up to which everything was delivered to all members."""
        return self._before if self._is_delivering or self._lanes else self._progress.latest()

    def standing(self) -> ResumePosition | None:
        """Return the position up to which everything was delivered; None while an event is executed."""
        return None if self._lanes else self._progress.standing

    def _send_positions(self) -> None:
        """Send the resume id of the start: the source follows changes now."""
        self._before = self._progress.latest()
        for member in self._members:
            member.mark = self._before
            if self._source.first is None and not member.is_waiting:
                self._send_position(member)
        if self._source.first is None:
            self._replays.begin()

    @staticmethod
    def _send_position(member: GroupMember) -> None:
        if member.mark is not None:
            member.listener.stands(member.mark.id(""))

    # The source, and what is told at first.

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._working:
                last = await self._tell_all()
                self._share_source()
                if last is None:
                    await self._replays.finish()
                at_rest = [member for member in self._members if member.rights not in self._lanes]
                await _each(at_rest, lambda member: member.end(last))
        except Exception as problem:
            last = failure(problem)
        await _each(list(self._members), lambda member: member.end(last))

    async def _tell_all(self) -> Outcome | None:
        """Deliver the events until the source ends. Return the error that ended it, if any."""
        try:
            async with aclosing(self._source.events(self._begin)) as events:
                async for event in events:
                    if self._source.first is not None and not self._has_begun:
                        self._has_begun = True
                        self._read_soon(*self._joining)
                        self._replays.begin()
                    else:
                        self._check_source()
                        await self._tell(GroupEvent.of(event, self._progress))
                        await asyncio.sleep(0)  # of many at once each can be taken before the next
            if self._reading is not None:
                await self._reading
        except asyncio.CancelledError as cancelled:
            return self._broken(translate_cancellation(cancelled))
        except Exception as problem:
            return self._broken(problem)
        finally:
            self._forget(self)
            self._context.close()
        return None

    def _broken(self, problem: Exception) -> Outcome:
        if self._reading is not None:
            self._reading.cancel()
        return failure(problem)

    def _check_source(self) -> None:
        """Raise `RuntimeError` if the source of a shared subscription has read the identity of a caller."""
        if self._is_anyones and self._context.used_identity:
            raise RuntimeError("The source of a subscription that is shared has asked who asks.")

    async def _begin(self) -> Any:
        """Read the first state, and deliver it to the members that share it."""
        if self._source.first is None:
            return None
        while True:
            members, self._joining = self._joining, []
            members = [member for member in members if not member.is_over]
            anyone = next(iter(members or self._members), None)
            if anyone is None:
                await asyncio.sleep(0)  # they have left, and this is to be cancelled
                continue
            made = await self._event_executor.made(anyone, None, self._standing())
            _, others = made.of(members)
            self._joining[:0] = others
            # Where all go on, nobody is told how things stand; but without it nothing can go on.
            await self._deliver_first(made, members or ([] if not made.outcome.is_failure else [anyone]))
            if not made.outcome.is_failure:
                return made.event

    def _read_soon(self, *members: GroupMember) -> None:
        """Read the first state for members that joined a running group."""
        for member in members:
            member.since = self._source.since and self._source.since()
        if self._joining and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read the first state, again for members that join while it is read."""
        while self._joining:
            members, self._joining = self._joining, []
            try:
                await self._read_for(members)
            except Exception as problem:  # those who come later have it read anew
                outcome = failure(problem)
                untold = [member for member in members if member.is_waiting]
                await _each(untold, lambda member, told=outcome: member.end(told))  # type: ignore[misc]

    async def _read_for(self, members: list[GroupMember]) -> None:
        others = await self._deliver_shared(members, None, self._deliver_first)
        async with asyncio.TaskGroup() as tasks:
            for alike in by_rights(others).values():
                tasks.create_task(self._deliver_to_class(alike, None, self._deliver_first))

    async def _deliver_first(self, made: EventResult, members: Sequence[GroupMember]) -> None:
        members, _ = made.of(members)
        self._cost_splitter.charge(made.taken, members or [made.member], made.outcome, knows_all=made.knows_all)
        outcome, key = made.outcome, None if made.event is None else self._source.key(made.event)
        if outcome.is_failure:
            await _each(members, lambda member: member.end(outcome))
        else:
            await _each(members, lambda member: member.begin(made.event, outcome, key))
        self._cost_splitter.settle_soon()

    # Its events.

    async def _tell(self, event: GroupEvent) -> None:
        self._is_delivering = True
        try:
            await self._deliver_to_all(event)
        finally:
            self._is_delivering = False
            if not self._lanes:
                self._before = event.mark

    async def _deliver_to_all(self, event: GroupEvent) -> None:
        self._share_source()
        classes = by_rights(await self._deliver_shared(list(self._members), event, self._deliver))
        if len(classes) == 1 and not self._lanes:
            (alike,) = classes.values()
            await self._deliver_to_class(alike, event, self._deliver)
        else:
            for rights, alike in classes.items():
                self._enqueue_for_class(rights, alike, event)
            await self._lanes.room()
        self._cost_splitter.settle_soon()

    def _enqueue_for_class(self, rights: Rights | None, alike: list[GroupMember], event: GroupEvent) -> None:
        """Enqueue the event for the members with these rights. They delay no other members."""
        try:
            self._lanes.put(self._working, rights, (event, alike), self._source.key(event.event), event.left_out)
        except SlowSubscriber as problem:
            for member in alike:
                member.stop(problem)

    async def _run_queued(self, due: _Due, left_out: int) -> None:
        event, members = due
        event = event._replace(left_out=left_out)
        members = [member for member in members if not member.is_over]
        if members:
            await self._deliver_to_class(members, event, self._deliver)
            self._cost_splitter.settle_soon()

    # To whom what.

    async def _deliver_shared(
        self, members: list[GroupMember], event: GroupEvent | None, tell: Tell
    ) -> list[GroupMember]:
        """Execute once and deliver to every member with the same result.

        Return the members that need their own execution.
        """
        if not members or self._operation(members) in self._personal:
            return members
        made = await self._event_executor.made(members[0], event, self._standing())
        if made.is_personal:
            self._personal.add(self._operation(members))
        alike, others = made.of(members)
        await tell(made, alike)
        return others

    async def _deliver_to_class(self, alike: list[GroupMember], event: GroupEvent | None, tell: Tell) -> None:
        async with self._turns:
            made = await self._event_executor.made(alike[0], event, self._standing())
        await tell(made, alike)

    @staticmethod
    def _operation(members: Sequence[GroupMember]) -> PreparedOperation:
        """Return the operation, which is the same for all members."""
        return members[0].subscriber.request.operation

    async def _deliver(self, made: EventResult, members: Sequence[GroupMember]) -> None:
        self._cost_splitter.charge(made.taken, members, made.outcome, knows_all=made.knows_all)
        event, outcome, size, key = made.event, made.outcome, len(made.outcome.body), self._source.key(made.event)
        if outcome.is_failure:
            await _each(members, lambda member: member.end(outcome))
        elif outcome.errors:
            await _each(members, lambda member: member.offer(event, outcome, key))
        else:
            for number, member in enumerate(members, 1):
                if member.is_plain:
                    member.tell(outcome, size, key)
                elif not member.is_over:
                    member.offer(event, outcome, key)
                if number % LISTENERS_PER_TURN == 0:
                    await asyncio.sleep(0)

    # What it costs.

    def _share_source(self) -> None:
        """Charge all members for the reads of the source."""
        meter = self._context.meter
        knows_all = meter.is_complete
        self._cost_splitter.charge(meter.take(), list(self._members), knows_all=knows_all)


async def _each(members: Sequence[GroupMember], act: Callable[[GroupMember], None]) -> None:
    """Call `act` for each member that has not ended, and let other tasks run in between."""
    for number, member in enumerate(members, 1):
        if not member.is_over:
            act(member)
        if number % LISTENERS_PER_TURN == 0:
            await asyncio.sleep(0)
