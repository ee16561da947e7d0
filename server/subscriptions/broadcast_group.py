"""Equal subscriptions: one source, one execution and one encoding of each event, delivered to all who listen."""

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
    """Subscriptions with one source, which runs until nobody is left.

    What the operation answers may turn out to depend on who asks. Then it is `personal`, and executed for each caller:
    those with the same rights have a lane, in which events wait by the policy while one is executed for them.
    Without `is_anyones` all members are one caller's, and the source may know who he is. For whom an event is not made
    within `deadlines` it is over with TIMEOUT, and the others go on. `spawn` runs what goes on to
    its end although the group may be over, and `forget` is told when nobody can join any more.
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
        self._owing = CostSplitter(accounts, spawn, self._members)
        # Those who are to be told how things stand, once nothing can be missed any more.
        self._joining: list[GroupMember] = []
        self._has_begun = False
        self._reading: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(EXECUTED_AT_ONCE)
        self._lanes = KeyedWorkers[Rights | None, _Due](self.keeping.upstream, EXECUTED_AT_ONCE, self._tell_due)
        self._maker = EventExecutor(accounts, source, executor, deadlines, slices)
        self._progress = context.progress or SubscriptionProgress()
        self._progress.when_begun = self._tell_places
        self._telling = False
        self._before: ResumePosition | None = None  # up to where all were told, while some are told more
        self._returning = ReplaySet(self, spawn)
        context.subscriber_count = self._members.__len__
        self._running = asyncio.create_task(self._run())

    def join(self, subscriber: Subscriber, listener: Listener, missed: ReplaySource | None = None) -> GroupMember:
        """One more, who is told what comes from now on, and before that what they `missed`."""
        member = GroupMember(self, subscriber, listener)
        self._members[member] = None
        self._owing.may_owe = True
        member.mark = self._standing()
        if missed is not None:
            member.stay_away()
            self._returning.add(member, missed, now=self._is_ready)
        elif self._source.first is None:
            self._tell_place(member)
        else:
            member.wait()
            self._joining.append(member)
            if self._has_begun:
                self._read_soon(member)
        return member

    def leave(self, member: GroupMember) -> None:
        """It is over for one of them. The last one ends it."""
        self._members.pop(member, None)
        if not self._members:
            self._forget(self)
            for context in (self._context, *self._maker.open):  # what is under way is given up
                knows_all = context.meter.is_complete
                member.subscriber.share(context.meter.take(), 1, knows_all=knows_all)
            self._running.cancel()
            self._returning.cancel()
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

    async def tell_missed(self, members: list[GroupMember], told: GroupEvent) -> None:
        async def tell(made: EventResult, alike: Sequence[GroupMember]) -> None:
            self._owing.charge(made.taken, alike, made.outcome, knows_all=made.knows_all)
            key, outcome = self._source.key(made.event), made.outcome
            if outcome.is_failure:
                await _each(alike, lambda member: member.end(outcome))
            else:
                await _each(alike, lambda member: member.catch_up(outcome, key))

        for alike in by_rights(await self._tell_alike(members, told, tell)).values():
            await self._tell_those(alike, told, tell)
        self._owing.settle_soon()

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
                member.go_on_with(told, None)
            return
        for member in members:
            member.wants_resync = True
            member.wait()  # what has waited is in what is read from now on
        self._joining += members
        self._read_soon(*members)

    def share(self, context: OperationContext, members: list[GroupMember]) -> None:
        knows_all = context.meter.is_complete
        self._owing.charge(context.meter.take(), members, knows_all=knows_all)

    def _standing(self) -> ResumePosition | None:
        """Up to where all that is told has been told to those who are here."""
        return self._before if self._telling or self._lanes else self._progress.latest()

    def standing(self) -> ResumePosition | None:
        """Up to where all has been told that comes of it; None while something is being made of more."""
        return None if self._lanes else self._progress.standing

    def _tell_places(self) -> None:
        """It has begun."""
        self._before = self._progress.latest()
        for member in self._members:
            member.mark = self._before
            if self._source.first is None and not member.is_waiting:
                self._tell_place(member)
        if self._source.first is None:
            self._returning.begin()

    @staticmethod
    def _tell_place(member: GroupMember) -> None:
        if member.mark is not None:
            member.listener.stands(member.mark.id(""))

    # The source, and what is told at first.

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._working:
                last = await self._tell_all()
                self._share_source()
                if last is None:
                    await self._returning.finish()
                at_rest = [member for member in self._members if member.rights not in self._lanes]
                await _each(at_rest, lambda member: member.end(last))
        except Exception as problem:
            last = failure(problem)
        await _each(list(self._members), lambda member: member.end(last))

    async def _tell_all(self) -> Outcome | None:
        """Tell its events until there are no more; the error that ended it, if one did."""
        try:
            async with aclosing(self._source.events(self._begin)) as events:
                async for event in events:
                    if self._source.first is not None and not self._has_begun:
                        self._has_begun = True
                        self._read_soon(*self._joining)
                        self._returning.begin()
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
        """What is made for one caller is nobody else's. A resolver that asks too late breaks what it has promised."""
        if self._is_anyones and self._context.used_identity:
            raise RuntimeError("The source of a subscription that is shared has asked who asks.")

    async def _begin(self) -> Any:
        """How things stand, as it is told to those who are here already, or to those of them who may know."""
        if self._source.first is None:
            return None
        while True:
            members, self._joining = self._joining, []
            members = [member for member in members if not member.is_over]
            anyone = next(iter(members or self._members), None)
            if anyone is None:
                await asyncio.sleep(0)  # they have left, and this is to be cancelled
                continue
            made = await self._maker.made(anyone, None, self._standing())
            _, others = made.of(members)
            self._joining[:0] = others
            # Where all go on, nobody is told how things stand; but without it nothing can go on.
            await self._tell_first(made, members or ([] if not made.outcome.is_failure else [anyone]))
            if not made.outcome.is_failure:
                return made.event

    def _read_soon(self, *members: GroupMember) -> None:
        """Have those told how things stand who have joined what has begun."""
        for member in members:
            member.since = self._source.since and self._source.since()
        if self._joining and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """All who come while it is read for others are told the next that is read."""
        while self._joining:
            members, self._joining = self._joining, []
            try:
                await self._read_for(members)
            except Exception as problem:  # those who come later have it read anew
                outcome = failure(problem)
                untold = [member for member in members if member.is_waiting]
                await _each(untold, lambda member, told=outcome: member.end(told))  # type: ignore[misc]

    async def _read_for(self, members: list[GroupMember]) -> None:
        others = await self._tell_alike(members, None, self._tell_first)
        async with asyncio.TaskGroup() as tasks:
            for alike in by_rights(others).values():
                tasks.create_task(self._tell_those(alike, None, self._tell_first))

    async def _tell_first(self, made: EventResult, members: Sequence[GroupMember]) -> None:
        members, _ = made.of(members)
        self._owing.charge(made.taken, members or [made.member], made.outcome, knows_all=made.knows_all)
        outcome, key = made.outcome, None if made.event is None else self._source.key(made.event)
        if outcome.is_failure:
            await _each(members, lambda member: member.end(outcome))
        else:
            await _each(members, lambda member: member.begin(made.event, outcome, key))
        self._owing.settle_soon()

    # Its events.

    async def _tell(self, event: GroupEvent) -> None:
        self._telling = True
        try:
            await self._tell_to_all(event)
        finally:
            self._telling = False
            if not self._lanes:
                self._before = event.mark

    async def _tell_to_all(self, event: GroupEvent) -> None:
        self._share_source()
        classes = by_rights(await self._tell_alike(list(self._members), event, self._deliver))
        if len(classes) == 1 and not self._lanes:
            (alike,) = classes.values()
            await self._tell_those(alike, event, self._deliver)
        else:
            for rights, alike in classes.items():
                self._tell_beside(rights, alike, event)
            await self._lanes.room()
        self._owing.settle_soon()

    def _tell_beside(self, rights: Rights | None, alike: list[GroupMember], event: GroupEvent) -> None:
        """Have those with these rights told, beside others, who do not wait for them."""
        try:
            self._lanes.put(self._working, rights, (event, alike), self._source.key(event.event), event.left_out)
        except SlowSubscriber as problem:
            for member in alike:
                member.stop(problem)

    async def _tell_due(self, due: _Due, left_out: int) -> None:
        event, members = due
        event = event._replace(left_out=left_out)
        members = [member for member in members if not member.is_over]
        if members:
            await self._tell_those(members, event, self._deliver)
            self._owing.settle_soon()

    # To whom what.

    async def _tell_alike(self, members: list[GroupMember], event: GroupEvent | None, tell: Tell) -> list[GroupMember]:
        """Tell all what is made for one, as far as it is the same for them; the others, for whom it is to be made."""
        if not members or self._operation(members) in self._personal:
            return members
        made = await self._maker.made(members[0], event, self._standing())
        if made.is_personal:
            self._personal.add(self._operation(members))
        alike, others = made.of(members)
        await tell(made, alike)
        return others

    async def _tell_those(self, alike: list[GroupMember], event: GroupEvent | None, tell: Tell) -> None:
        async with self._turns:
            made = await self._maker.made(alike[0], event, self._standing())
        await tell(made, alike)

    @staticmethod
    def _operation(members: Sequence[GroupMember]) -> PreparedOperation:
        """The same for all."""
        return members[0].subscriber.request.operation

    async def _deliver(self, made: EventResult, members: Sequence[GroupMember]) -> None:
        self._owing.charge(made.taken, members, made.outcome, knows_all=made.knows_all)
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
        """What the source has read is shared by all."""
        meter = self._context.meter
        knows_all = meter.is_complete
        self._owing.charge(meter.take(), list(self._members), knows_all=knows_all)


async def _each(members: Sequence[GroupMember], act: Callable[[GroupMember], None]) -> None:
    """For those who are still there; others have a turn in between."""
    for number, member in enumerate(members, 1):
        if not member.is_over:
            act(member)
        if number % LISTENERS_PER_TURN == 0:
            await asyncio.sleep(0)
