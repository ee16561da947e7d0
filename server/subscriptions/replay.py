"""The replay of missed events for members that resume, until they have caught up with their group."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from graphql.execution import Executor

from datastore.change_streams.replay.signed_resume_ids import ResumeRequest
from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from server.operations.billing import MISSED_EVENT_UNITS
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.subscriptions.event_execution import GroupEvent
from server.subscriptions.group_member import GroupMember

# The seconds for which a replay of several members waits for each slow one. The buffers of the process and of the
# system hold some events for each client, so that a client that reads at all is seldom waited for.
MAX_SECONDS_PER_MEMBER = 5.0
# The seconds for which such a replay waits altogether: several slow members could delay the others for minutes.
MAX_SECONDS_TOGETHER = 10.0
# The number of events after which the members are charged for the replay.
EVENTS_PER_SHARE = 20


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The source of the events that a client missed. The group executes them."""

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

    async def deliver_missed(self, members: list[GroupMember], event: GroupEvent) -> None:
        """Execute a missed event, and deliver it before the queued events."""

    def begin_queueing(self, members: list[GroupMember]) -> None:
        """Queue the events of the group for these members from now on."""

    def resync(self, members: list[GroupMember]) -> None:
        """Deliver RESYNC: the missed events are no longer available."""

    def share(self, context: OperationContext, members: list[GroupMember]) -> None:
        """Charge the members for the reads of their common replay."""


class ReplayGroup:
    """Members that resume from the same event and joined before the replay began. They share one source."""

    def __init__(self, group: ReplayTarget, missed: ReplaySource) -> None:
        self.resume = missed.resume
        self.members: list[GroupMember] = []
        self._is_open = True
        self._group = group
        self._source = missed.source
        self._context = missed.context
        self._progress = missed.progress

    @property
    def is_open(self) -> bool:
        """Whether another member can still join this replay."""
        return self._is_open and not self._progress.is_live.is_set()

    async def run(self) -> None:
        """Replay all missed events and those that arrive in the meantime, then go live."""
        try:
            await self._replay()
        except StopAsyncIteration:
            self._end(None)
        except asyncio.CancelledError as cancelled:
            self._end(failure(translate_cancellation(cancelled)))
        except Exception as problem:
            self._end(failure(problem))
        finally:
            self._is_open = False
            self._group.share(self._context, self.members)
            self._context.close()

    def _begin_queueing(self) -> None:
        """Queue the events of the group for the members: the replay covers every event up to now."""
        self._group.begin_queueing(self._present_members())

    def _present_members(self) -> list[GroupMember]:
        return [member for member in self.members if not member.is_over]

    def _end(self, outcome: Outcome | None) -> None:
        for member in self._present_members():
            member.end(outcome)

    async def _replay(self) -> None:
        progress, delivered, backpressure, count = self._progress, 0, None, 0
        async with aclosing(self._source.events(SourceReader(on_live=self._begin_queueing))) as events:
            next_event = asyncio.ensure_future(anext(events))
            is_live = asyncio.ensure_future(progress.is_live.wait())
            try:
                while self._present_members():
                    if next_event.done():
                        self._is_open = False
                        position = progress.position
                        assert position is not None  # the source has begun, since it has emitted an event
                        event = GroupEvent.of(next_event.result(), progress)
                        if progress.is_too_old:
                            break
                        count += 1
                        self._charge_missed_event(count)
                        await self._group.deliver_missed(self._present_members(), event)
                        backpressure = backpressure or Backpressure(self.members)
                        await backpressure.wait()
                        delivered = position.number
                        next_event = asyncio.ensure_future(anext(events))
                    elif is_live.done() and (progress.is_too_old or self._has_caught_up()):
                        break
                    pending = {next_event} if is_live.done() else {next_event, is_live}
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_all(is_live, next_event)
        self._is_open = False
        if progress.is_too_old:
            self._group.resync(self._present_members())
        else:
            for member in self._present_members():
                member.go_live_after(max(delivered, progress.live_at), self._source.seen)

    def _charge_missed_event(self, count: int) -> None:
        """Charge a missed event. The charge is shared after each `EVENTS_PER_SHARE` events."""
        self._context.meter.charge(MISSED_EVENT_UNITS)
        if count % EVENTS_PER_SHARE == 0:
            self._group.share(self._context, self.members)

    def _has_caught_up(self) -> bool:
        """Whether the replay has delivered everything that the group had delivered when it went live."""
        seen, left = self._source.seen, self._source.left
        return all(member.since is None or member.since.is_reached(seen, left) for member in self._present_members())


class ReplaySet:
    """The replays of a group."""

    def __init__(self, group: ReplayTarget, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._group = group
        self._spawn = spawn
        # By resume request, the replay that began last: new members may still join it.
        self._latest: dict[ResumeRequest | None, ReplayGroup] = {}
        # The replays that begin when the group has started.
        self._waiting: list[ReplayGroup] = []
        self._tasks: dict[ReplayGroup, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._tasks)

    def add(self, member: GroupMember, missed: ReplaySource, *, now: bool) -> None:
        """Add a member to the open replay from the same event, or to a new one."""
        replay = self._latest.get(missed.resume)
        if replay is None or not replay.is_open:
            replay = self._latest[missed.resume] = ReplayGroup(self._group, missed)
            self._waiting.append(replay)
        else:
            missed.context.close()
        replay.members.append(member)
        if now:
            self.begin()

    def begin(self) -> None:
        """Start the pending replays: the group has started."""
        waiting, self._waiting = self._waiting, []
        for replay in waiting:
            task = self._tasks[replay] = self._spawn(replay.run())
            task.add_done_callback(partial(self._forget, replay))

    def _forget(self, replay: ReplayGroup, _: asyncio.Task[None]) -> None:
        del self._tasks[replay]
        if self._latest[replay.resume] is replay:
            del self._latest[replay.resume]

    async def finish(self) -> None:
        """Wait until all replays have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()


class Backpressure:
    """The backpressure of slow members on their replay, limited for each member and for all together.

    Beyond the limit the replay does not wait for a member, and the overflow policy (`whenSlow`) of the member applies.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self._left = dict.fromkeys(members, MAX_SECONDS_PER_MEMBER)
        self._left_for_all = MAX_SECONDS_TOGETHER

    async def wait(self) -> None:
        """Wait until the members that may still delay the replay can receive more; a single member always may."""
        members = [member for member in self._left if not member.is_over]
        if len(members) == 1:
            await members[0].listener.drained()
            return
        draining: dict[asyncio.Future[None], GroupMember] = {
            asyncio.ensure_future(member.listener.drained()): member for member in members
        }
        try:
            if draining:
                await asyncio.wait(draining, return_when=asyncio.FIRST_COMPLETED)
            while self._left_for_all > 0 and (
                late := {
                    task: member for task, member in draining.items() if not task.done() and self._left[member] > 0
                }
            ):
                await self._wait_for(late)
        finally:
            await cancel_all(*draining)

    async def _wait_for(self, late: dict[asyncio.Future[None], GroupMember]) -> None:
        """Wait until a member can receive more or has used up its time, and count the time."""
        clock = asyncio.get_running_loop().time
        began, least = clock(), min(self._left_for_all, *(self._left[member] for member in late.values()))
        await asyncio.wait(late, timeout=least, return_when=asyncio.FIRST_COMPLETED)
        waited = clock() - began
        self._left_for_all -= waited
        for member in late.values():
            self._left[member] -= waited


async def cancel_all(*futures: asyncio.Future[Any]) -> None:
    """Cancel the pending futures and wait for them. Mark the exceptions of the others as retrieved."""
    if not futures:
        return
    for future in futures:
        future.cancel()
    await asyncio.wait(futures)
    for future in futures:
        if not future.cancelled():
            future.exception()
