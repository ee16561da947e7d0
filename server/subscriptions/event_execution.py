"""The execution of an event for a member of a group, whose result its audience shares."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from graphql import ExecutionResult
from msgspec import Struct

from datastore.change_streams.subscriptions.delivery import Delivery, Phase, ResumePosition
from datastore.change_streams.subscriptions.event_source import EventSource
from datastore.errors import Timeout
from datastore.session.metering import Meter
from server.admission.deadlines import Deadlines, DeadlineScope
from server.admission.fairness import TimeSlices
from server.documents.document_cache import Documents
from server.operations.billing import Billing
from server.operations.context import OperationContext
from server.operations.execution import execute_operation
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure, outcome_of
from server.subscriptions.group_member import GroupMember


class EventResult(Struct, frozen=True):
    """The result of an event that was executed for one member."""

    event: Any
    outcome: Outcome
    member: GroupMember
    #: Whether the result depends on the identity of the member.
    is_personal: bool
    #: The calls that the execution made.
    meter: Meter
    #: Whether the cost of all calls is known.
    is_complete: bool


class StartedExecution(Struct, frozen=True, eq=False):
    """The execution of an event that has to wait. Pass it to `EventExecutor.finish`, or close it."""

    member: GroupMember
    delivery: Delivery[Any]
    context: OperationContext
    #: The result; None if the execution begins with the source's `check`.
    result: Awaitable[ExecutionResult] | None

    def close(self) -> None:
        """Abandon the execution."""
        self.context.close()
        close = getattr(self.result, "close", None)
        if close is not None:
            close()


class EventExecutor:
    """An executor of the events of a source, each in a context of a member.

    `source_context` is the context of the stream. An explained result reports its calls as well.
    """

    #: The contexts of the executions in progress.
    open: set[OperationContext]

    def __init__(
        self,
        documents: Documents,
        billing: Billing,
        source: EventSource[Any],
        source_context: OperationContext,
        deadlines: Deadlines,
        slices: TimeSlices,
    ) -> None:
        self._documents = documents
        self._billing = billing
        self._slices = slices
        self._source = source
        self._source_context = source_context
        self._deadlines = deadlines
        self.open = set()
        # The latest delivery, and its resume id: several audiences receive the same.
        self._latest: Delivery[Any] | None = None
        self._latest_id = ""

    def start(self, member: GroupMember, delivery: Delivery[Any]) -> EventResult | StartedExecution:
        """Execute an event for a member. Return its result, or the execution if it has to wait."""
        request = member.subscriber.request
        context = self._billing.open_context(request)
        if self._source.check is not None:
            self.open.add(context)
            return StartedExecution(member, delivery, context, None)
        try:
            with self._slices:
                result = execute_operation(self._documents, request, context, delivery.event)
        except asyncio.CancelledError as cancelled:
            return self._result(member, delivery, context, failure(translate_cancellation(cancelled)))
        except Exception as problem:
            return self._result(member, delivery, context, failure(problem))
        if isinstance(result, ExecutionResult):
            outcome = outcome_of(result) if result.errors else Outcome(result.data)
            return self._result(member, delivery, context, outcome)
        self.open.add(context)
        return StartedExecution(member, delivery, context, result)

    async def finish(self, started: StartedExecution) -> EventResult:
        """Wait for the result of an execution, until the deadline."""
        member, delivery, context = started.member, started.delivery, started.context
        outcome = await self._until_deadline(context, self._rest_of(started))
        return self._result(member, delivery, context, outcome)

    async def _rest_of(self, started: StartedExecution) -> Outcome:
        if started.result is not None:
            return outcome_of(await started.result)
        assert self._source.check is not None, "Only a check comes before the execution."
        await self._source.check(started.context, started.delivery.event)
        return await self._execute(started.member, started.delivery, started.context)

    async def _until_deadline(self, context: OperationContext, execution: Awaitable[Outcome]) -> Outcome:
        """Return the outcome of an execution in progress, or that of its error."""
        try:
            with DeadlineScope(self._deadlines):
                return await execution
        except TimeoutError:
            seconds = self._deadlines.seconds
            return failure(Timeout(f"An event was not executed within {seconds:g} seconds: subscribe again."))
        except asyncio.CancelledError as cancelled:
            return failure(translate_cancellation(cancelled))
        except Exception as problem:
            return failure(problem)
        finally:
            self.open.discard(context)

    def abandon(self, started: StartedExecution) -> None:
        """Abandon an execution: no member waits for its result."""
        self.open.discard(started.context)
        started.close()

    async def read_first(self, member: GroupMember, position: ResumePosition | None) -> EventResult:
        """Read and execute the first state for a member. At `position` everything before the read was delivered."""
        if self._slices.is_used_up:
            await self._slices.wait_for_slice()
        context = self._billing.open_context(member.subscriber.request)
        self.open.add(context)
        delivery = Delivery[Any](Phase.FIRST, None, position)

        async def read() -> Outcome:
            nonlocal delivery
            assert self._source.first is not None, "The source has a first state."
            event = await self._source.first(context)
            context.advance_watermark()
            delivery = Delivery(Phase.FIRST, event, position, self._source.known(event))
            return await self._execute(member, delivery, context)

        outcome = await self._until_deadline(context, read())
        return self._result(member, delivery, context, outcome)

    async def _execute(self, member: GroupMember, delivery: Delivery[Any], context: OperationContext) -> Outcome:
        with self._slices:
            result = execute_operation(self._documents, member.subscriber.request, context, delivery.event)
        return outcome_of(result if isinstance(result, ExecutionResult) else await result)

    def _result(
        self, member: GroupMember, delivery: Delivery[Any], context: OperationContext, outcome: Outcome
    ) -> EventResult:
        position = delivery.position
        if position is not None and not (outcome.errors and outcome.is_failure):
            if self._latest is not delivery:
                self._latest, self._latest_id = delivery, position.id(delivery.known)
            outcome.set_event_id(self._latest_id, position.number)
            if delivery.dropped:
                outcome.set_dropped(delivery.dropped)
        meter = context.meter
        is_complete = meter.is_complete
        context.close()
        request = member.subscriber.request
        if request.params.explain:
            meter.merge(self._source_context.meter.take())
            self._billing.explain(request, outcome, meter)
        return EventResult(delivery.event, outcome, member, context.used_identity, meter, is_complete)
