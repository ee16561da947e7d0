"""The execution of an event for a member of a group, and the members that share its result."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphql.execution import Executor, execute_subscription_event

from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.change_streams.subscriptions.resume_position import ResumePosition, SubscriptionProgress
from datastore.session.metering import Meter
from server.admission.deadlines import Deadlines
from server.admission.fairness import TimeSlices
from server.operations.billing import Billing
from server.operations.context import OperationContext
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure, outcome_of
from server.subscriptions.group_member import GroupMember
from server.subscriptions.unshared import too_late


class GroupEvent(NamedTuple):
    """An event with its resume position."""

    event: Any
    position: ResumePosition | None
    #: The state of a client after the event: see `SubscriptionProgress.known`.
    known: str
    #: The number of earlier events that were dropped: newer events have replaced them.
    dropped: int = 0

    @classmethod
    def of(cls, event: Any, progress: SubscriptionProgress) -> "GroupEvent":
        """Return the event that a source has just emitted, with the position of its progress."""
        return cls(event, progress.position, progress.known, progress.take_dropped())


@dataclass(frozen=True, slots=True)
class EventResult:
    """The result of an event that was executed for one member."""

    event: Any
    outcome: Outcome
    member: GroupMember
    #: Whether the result depends on the identity of the member.
    is_personal: bool
    #: The calls that the execution made.
    meter: Meter
    #: Whether the cost of all calls is known.
    knows_all: bool

    def partition(self, members: Sequence[GroupMember]) -> tuple[list[GroupMember], list[GroupMember]]:
        """Return the members that share this result, and the others."""
        rights = self.member.rights
        if not self.is_personal:
            return [*members], []
        sharing = [member for member in members if member.rights == rights]
        return sharing, [] if len(sharing) == len(members) else [
            member for member in members if member.rights != rights
        ]


class EventExecutor:
    """An executor of the events of a source, each in a context of a member."""

    #: The contexts of the executions in progress.
    open: set[OperationContext]

    def __init__(
        self,
        billing: Billing,
        source: SharedSource[Any],
        executor: Executor[Any],
        deadlines: Deadlines,
        slices: TimeSlices,
    ) -> None:
        self._billing = billing
        self._slices = slices
        self._source = source
        self._executor = executor
        self._deadlines = deadlines
        self.open = set()

    async def execute(
        self, member: GroupMember, group_event: GroupEvent | None, settled_position: ResumePosition | None
    ) -> EventResult:
        """Execute an event for a member, or read and execute the first state if `group_event` is None.

        `settled_position` is the position up to which everything was delivered before the first state is read.
        """
        if self._slices.is_used_up:
            await self._slices.wait_for_slice()
        context = self._billing.open_context(member.subscriber.request)
        self.open.add(context)
        source = self._source
        event, position, known, dropped = group_event or GroupEvent(None, settled_position, "")
        try:
            with self._deadlines.deadline():
                if group_event is None and source.first is not None:
                    event = await source.first(context)
                    context.advance_watermark()
                    known = source.known(event)
                elif source.check is not None:
                    await source.check(context, event)
                outcome = await self._executed(event, context)
                if position is not None and not outcome.is_failure:
                    outcome.set_event_id(position.id(known), position.number)
                    outcome.set_dropped(dropped)
        except TimeoutError:
            outcome = failure(too_late(self._deadlines))
        except asyncio.CancelledError as cancelled:
            outcome = failure(translate_cancellation(cancelled))
        except Exception as problem:
            outcome = failure(problem)
        finally:
            self.open.discard(context)
            knows_all = context.meter.is_complete
            context.close()
        return EventResult(event, outcome, member, context.used_identity, context.meter.take(), knows_all)

    async def _executed(self, event: Any, context: OperationContext) -> Outcome:
        with self._slices.measure():
            executor = self._executor.build_per_event_executor(event)
            executor.context_value = context
            result: Any = execute_subscription_event(executor)
        return outcome_of(await result if executor.is_awaitable(result) else result)
