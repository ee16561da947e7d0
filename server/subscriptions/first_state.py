"""The first states of members that join a group: each reads the present state, and shares it with its audience."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from datastore.change_streams.subscriptions.delivery import ResumePosition
from datastore.change_streams.subscriptions.event_source import EventSource, JoinFilter
from server.operations.outcome import failure
from server.subscriptions.audience import AudienceSet, by_audience
from server.subscriptions.cost_sharing import CostSplitter
from server.subscriptions.event_execution import EventExecutor, EventResult
from server.subscriptions.fan_out import for_each
from server.subscriptions.group_member import GroupMember


class FirstStates:
    """The reader of the first states of a group.

    The stream of the source awaits the first read. Members that join later wait for a read of their own. `position`
    returns the position up to which everything was delivered; `since` creates the filter of a member that joins.
    """

    def __init__(
        self,
        source: EventSource[Any],
        audiences: AudienceSet,
        executor: EventExecutor,
        costs: CostSplitter,
        turns: asyncio.Semaphore,
        position: Callable[[], ResumePosition | None],
        since: Callable[[], JoinFilter] | None,
    ) -> None:
        self._source = source
        self._audiences = audiences
        self._executor = executor
        self._costs = costs
        self._turns = turns
        self._position = position
        self._since = since
        # The members for which the first state has to be read.
        self._joining: list[GroupMember] = []
        self._has_begun = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the stream emits events now: the first state, if any, was read."""
        return self._has_begun or self._source.first is None

    def add(self, members: Sequence[GroupMember]) -> None:
        """Queue the events for members, and read their first state once the stream emits events."""
        for member in members:
            member.wait()  # the state that is read includes the events that were queued before
        self._joining += members
        if self._has_begun:
            self._read_soon(members)

    def begin(self) -> None:
        """Note that the stream emits events now. Read the first state for the members that joined meanwhile."""
        if not self._has_begun:
            self._has_begun = True
            self._read_soon(self._joining)

    async def read_for_stream(self, members: Collection[GroupMember]) -> Any:
        """Read the first state, and deliver it to the members that share it. Return it for the stream.

        `members` are all members of the group. If all of them resume, none receives the first state.
        """
        while True:
            joining, self._joining = self._joining, []
            joining = [member for member in joining if not member.is_over]
            reading_member = next(iter(joining or members), None)
            if reading_member is None:
                await asyncio.sleep(0)  # all members have left, and this task is cancelled next
                continue
            result = await self._executor.read_first(reading_member, self._position())
            same = [member for member in joining if member.audience is reading_member.audience]
            sharing, _ = self._audiences.sharing(result, same)
            delivered = {*sharing}
            self._joining[:0] = [member for member in joining if member not in delivered]
            # A failure to read the state ends the member that reads.
            await self._deliver(result, sharing or ([reading_member] if result.outcome.is_failure else []))
            if not result.outcome.is_failure:
                return result.event

    async def finish(self) -> None:
        """Wait for the reading in progress."""
        if self._reading is not None:
            await self._reading

    def cancel(self) -> None:
        """Cancel the reading in progress."""
        if self._reading is not None:
            self._reading.cancel()

    def _read_soon(self, members: Sequence[GroupMember]) -> None:
        for member in members:
            member.since = None if self._since is None else self._since()
        if self._joining and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read the first state, and read it again for members that join while it is read."""
        while self._joining:
            members, self._joining = self._joining, []
            try:
                async with asyncio.TaskGroup() as tasks:
                    for sharing in by_audience(members).values():
                        tasks.create_task(self._read_for(sharing))
            except Exception as problem:  # it ends the waiting members; for later ones the state is read again
                outcome = failure(problem)
                waiting = [member for member in members if member.is_waiting]
                await for_each(waiting, lambda member, event=outcome: member.end(event))  # type: ignore[misc]

    async def _read_for(self, members: Sequence[GroupMember]) -> None:
        """Read the first state for members of an audience, once for all that share the result."""
        members = [member for member in members if not member.is_over]
        while members:
            async with self._turns:
                result = await self._executor.read_first(members[0], self._position())
            sharing, members = self._audiences.sharing(result, members)
            await self._deliver(result, sharing)

    async def _deliver(self, result: EventResult, members: Sequence[GroupMember]) -> None:
        size = len(result.outcome.body)
        self._costs.share(result.meter, members or [result.member], size, is_complete=result.is_complete)
        outcome = result.outcome
        if outcome.is_failure:
            await for_each(members, lambda member: member.end(outcome))
        else:
            key = self._source.key(result.event)
            await for_each(members, lambda member: member.begin(result.event, outcome, key))
        self._costs.settle_soon()
