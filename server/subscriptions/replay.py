"""The replay of missed events for members that resume, until they have caught up with their group."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from graphql.execution import Executor

from datastore.change_streams.replay.signed_resume_ids import ResumeRequest
from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from server.operations.billing import MISSED_EVENT_UNITS
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.subscriptions.event_execution import GroupEvent
from server.subscriptions.group_member import GroupMember

# The process and the system keep some for each reader: who reads at all is seldom waited for.
MOST_BEHIND_SECONDS = 5.0
# Of all of them together: one after another could hold up the others for minutes.
MOST_WAITED_SECONDS = 10.0
# What so many events cost is shared at once by those who are told them.
EVENTS_PER_SHARE = 20


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The missed events of a client: a source whose events the group executes."""

    source: SharedSource[Any]
    executor: Executor[Any]
    context: OperationContext

    @property
    def progress(self) -> SubscriptionProgress:
        assert self.context.progress is not None
        return self.context.progress

    @property
    def resume(self) -> ResumeRequest | None:
        return self.progress.resume


class ReplayTarget(Protocol):
    """The part of a group that a replay uses."""

    async def deliver_missed(self, members: list[GroupMember], told: GroupEvent) -> None:
        """Execute a missed event, and deliver it before the queued events."""

    def keep(self, members: list[GroupMember]) -> None:
        """Queue the events of the group for these members from now on."""

    def resync(self, members: list[GroupMember]) -> None:
        """Deliver RESYNC: the missed events are no longer available."""

    def share(self, context: OperationContext, members: list[GroupMember]) -> None:
        """Charge the members for the reads of their common replay."""


class ReplayGroup:
    """Members that resume from the same event and joined before the replay began. They share one source."""

    def __init__(self, home: ReplayTarget, missed: ReplaySource) -> None:
        self.resume = missed.resume
        self.members: list[GroupMember] = []
        self._is_open = True
        self._home = home
        self._source = missed.source
        self._context = missed.context
        self._progress = missed.progress
        self._progress.on_live = self._have_kept

    @property
    def is_open(self) -> bool:
        """Whether another member can still join this replay."""
        return self._is_open and not self._progress.is_live.is_set()

    async def run(self) -> None:
        """Replay all missed events and those that arrive meanwhile, then go live."""
        try:
            await self._tell_all()
        except StopAsyncIteration:
            self._end(None)
        except asyncio.CancelledError as cancelled:
            self._end(failure(translate_cancellation(cancelled)))
        except Exception as problem:
            self._end(failure(problem))
        finally:
            self._is_open = False
            self._home.share(self._context, self.members)
            self._context.close()

    def _have_kept(self) -> None:
        """The replay covers every event up to here: from now on queue the events of the group for the members."""
        self._home.keep(self._here())

    def _here(self) -> list[GroupMember]:
        return [member for member in self.members if not member.is_over]

    def _end(self, outcome: Outcome | None) -> None:
        for member in self._here():
            member.end(outcome)

    async def _tell_all(self) -> None:
        progress, told, pace, count = self._progress, 0, None, 0
        async with aclosing(self._source.events(_nothing)) as events:
            coming = asyncio.ensure_future(anext(events))
            here = asyncio.ensure_future(progress.is_live.wait())
            try:
                while self._here():
                    if coming.done():
                        self._is_open = False
                        mark = progress.mark
                        assert mark is not None  # it has begun, for there is an event
                        event = GroupEvent.of(coming.result(), progress)
                        if progress.is_too_old:
                            break
                        count += 1
                        self._charge_missed_event(count)
                        await self._home.deliver_missed(self._here(), event)
                        pace = pace or Backpressure(self.members)
                        await pace.kept()
                        told = mark.number
                        coming = asyncio.ensure_future(anext(events))
                    elif here.done() and (progress.is_too_old or self._is_reached()):
                        break
                    waiting = {coming} if here.done() else {coming, here}
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await given_up(here, coming)
        self._is_open = False
        if progress.is_too_old:
            self._home.resync(self._here())
        else:
            for member in self._here():
                member.go_live_after(max(told, progress.live_at), self._source.seen)

    def _charge_missed_event(self, count: int) -> None:
        """Charge a missed event. The charge is shared after each `EVENTS_PER_SHARE` events."""
        self._context.meter.charge(MISSED_EVENT_UNITS)
        if count % EVENTS_PER_SHARE == 0:
            self._home.share(self._context, self.members)

    def _is_reached(self) -> bool:
        seen, left = self._source.seen, self._source.left
        return all(member.since is None or member.since.is_reached(seen, left) for member in self._here())


class ReplaySet:
    """All replays of a group."""

    def __init__(self, home: ReplayTarget, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._home = home
        self._spawn = spawn
        self._latest: dict[ResumeRequest | None, ReplayGroup] = {}
        self._waiting: list[ReplayGroup] = []
        self._tasks: dict[ReplayGroup, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._tasks)

    def add(self, member: GroupMember, missed: ReplaySource, *, now: bool) -> None:
        """Add a member to the open replay from the same event, or to a new one."""
        alike = self._latest.get(missed.resume)
        if alike is None or not alike.is_open:
            alike = self._latest[missed.resume] = ReplayGroup(self._home, missed)
            self._waiting.append(alike)
        else:
            missed.context.close()
        alike.members.append(member)
        if now:
            self.begin()

    def begin(self) -> None:
        """Start the pending replays: the group has started."""
        waiting, self._waiting = self._waiting, []
        for resuming in waiting:
            task = self._tasks[resuming] = self._spawn(resuming.run())
            task.add_done_callback(partial(self._over, resuming))

    def _over(self, resuming: ReplayGroup, _: asyncio.Task[None]) -> None:
        del self._tasks[resuming]
        if self._latest[resuming.resume] is resuming:
            del self._latest[resuming.resume]

    async def finish(self) -> None:
        """Wait until all of them have received what they missed."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()


async def _nothing() -> None:
    """Read no first event: the client has it."""


class Backpressure:
    """The waiting for the members of a replay that read slowly, limited for each member and for all together.

    Afterwards the replay waits no longer, and the overflow policy (`whenSlow`) of the member applies.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self._left = dict.fromkeys(members, MOST_BEHIND_SECONDS)
        self._left_for_all = MOST_WAITED_SECONDS

    async def kept(self) -> None:
        """Wait until the members that may still delay the replay can receive more; a single member always may."""
        here = [member for member in self._left if not member.is_over]
        if len(here) == 1:
            await here[0].listener.drained()
            return
        draining: dict[asyncio.Future[None], GroupMember] = {
            asyncio.ensure_future(member.listener.drained()): member for member in here
        }
        try:
            if draining:
                await asyncio.wait(draining, return_when=asyncio.FIRST_COMPLETED)
            while self._left_for_all > 0 and (
                late := {
                    task: member for task, member in draining.items() if not task.done() and self._left[member] > 0
                }
            ):
                await self._waited(late)
        finally:
            await given_up(*draining)

    async def _waited(self, late: dict[asyncio.Future[None], GroupMember]) -> None:
        """Wait until a member is drained, or has used up its time."""
        clock = asyncio.get_running_loop().time
        began, least = clock(), min(self._left_for_all, *(self._left[member] for member in late.values()))
        await asyncio.wait(late, timeout=least, return_when=asyncio.FIRST_COMPLETED)
        waited = clock() - began
        self._left_for_all -= waited
        for member in late.values():
            self._left[member] -= waited


async def given_up(*futures: asyncio.Future[Any]) -> None:
    """Cancel the pending futures, and retrieve the result of each."""
    if not futures:
        return
    for future in futures:
        future.cancel()
    await asyncio.wait(futures)
    for future in futures:
        if not future.cancelled():
            future.exception()
