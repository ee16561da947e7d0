"""The replay of missed events for members that resume, until they have caught up with their group."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from datastore.change_streams.replay.signed_resume_ids import ResumeRequest
from datastore.change_streams.subscriptions.delivery import Phase
from datastore.change_streams.subscriptions.event_source import EventStream
from server.operations.billing import MISSED_EVENT_UNITS
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.subscriptions.group_member import GroupMember
from server.subscriptions.subscriber import Spawn

if TYPE_CHECKING:
    from server.subscriptions.broadcast_group import BroadcastGroup

# The seconds for which a replay of several members waits for each slow one. The buffers of the process and of the
# system hold some events for each client, so that a client that reads at all is seldom waited for.
MAX_SECONDS_PER_MEMBER = 5.0
# The seconds for which such a replay waits altogether: several slow members could delay the others for minutes.
MAX_SECONDS_TOGETHER = 10.0
# The number of events after which the members are charged for the replay.
EVENTS_PER_SHARE = 20


class ReplayGroup:
    """Members that resume from the same event and joined before the replay began. They share one stream."""

    def __init__(self, group: "BroadcastGroup", resume: ResumeRequest) -> None:
        self.resume = resume
        self.members: list[GroupMember] = []
        #: Whether another member can still join this replay: it has emitted no event.
        self.is_open = True
        self._group = group

    async def run(self) -> None:
        """Replay all missed events and those that arrive in the meantime, then go live."""
        context: OperationContext | None = None
        try:
            stream, context = self._group.open_replay(self.members[0], self.resume)
            await self._replay(stream, context)
        except asyncio.CancelledError as cancelled:
            self._end(failure(translate_cancellation(cancelled)))
        except Exception as problem:
            self._end(failure(problem))
        finally:
            self.is_open = False
            if context is not None:
                self._group.share_replay(context, self.members)
                context.close()

    def _present_members(self) -> list[GroupMember]:
        return [member for member in self.members if not member.is_over]

    def _end(self, outcome: Outcome | None) -> None:
        for member in self._present_members():
            member.end(outcome)

    async def _replay(self, stream: EventStream[Any], context: OperationContext) -> None:
        group, delivered, backpressure, count, has_caught_up = self._group, 0, None, 0, False
        async with aclosing(stream.deliveries) as deliveries:
            async for delivery in deliveries:
                if not self._present_members():
                    return
                if delivery.start is not None and delivery.start.is_too_old:
                    self.is_open = False
                    group.begin_queueing(self._present_members())
                    group.resync(self._present_members())
                    return
                if delivery.event is not None:
                    self.is_open = False
                    count += 1
                    context.meter.charge(MISSED_EVENT_UNITS)
                    if count % EVENTS_PER_SHARE == 0:
                        group.share_replay(context, self.members)
                    await group.deliver_missed(self._present_members(), delivery)
                    backpressure = backpressure or Backpressure(self.members)
                    await backpressure.wait()
                if delivery.position is not None:
                    delivered = delivery.position.number
                if delivery.phase is Phase.CAUGHT_UP:
                    self.is_open, has_caught_up = False, True
                    # The replay covers every event up to now.
                    group.begin_queueing(self._present_members())
                if has_caught_up and self._has_reached_group(stream):
                    for member in self._present_members():
                        member.go_live_after(delivered, stream.seen)
                    return
        self._end(None)

    def _has_reached_group(self, stream: EventStream[Any]) -> bool:
        """Whether the replay has delivered everything that the group had delivered at the end of the missed events."""
        return all(
            member.since is None or member.since.is_reached(stream.seen, stream.left)
            for member in self._present_members()
        )


class ReplaySet:
    """The replays of a group."""

    def __init__(self, group: "BroadcastGroup", spawn: Spawn) -> None:
        self._group = group
        self._spawn = spawn
        # By resume request, the replay that began last: new members may still join it.
        self._latest: dict[ResumeRequest, ReplayGroup] = {}
        # The replays that begin when the group has started.
        self._waiting: list[ReplayGroup] = []
        self._tasks: dict[ReplayGroup, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._tasks)

    def add(self, member: GroupMember, resume: ResumeRequest, *, now: bool) -> None:
        """Add a member to the open replay from the same event, or to a new one."""
        replay = self._latest.get(resume)
        if replay is None or not replay.is_open:
            replay = self._latest[resume] = ReplayGroup(self._group, resume)
            self._waiting.append(replay)
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
        if self._latest.get(replay.resume) is replay:
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
