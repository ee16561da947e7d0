"""The execution of a subscription that is not shared, and its resume position between events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Hashable
from contextlib import aclosing
from typing import Any, NamedTuple

from graphql.execution import Executor, execute_subscription_event

from datastore.change_streams.subscriptions.event_source import SharedSource, UnsharedSource
from datastore.change_streams.subscriptions.resume_position import ResumePosition, SubscriptionProgress
from datastore.errors import Timeout
from datastore.queues import QueueLimits
from server.admission.deadlines import Deadlines
from server.admission.fairness import TimeSlices
from server.operations.billing import MISSED_EVENT_UNITS
from server.operations.context import OperationContext
from server.operations.outcome import Outcome, failure, outcome_of, position_only, resync
from server.operations.report import Report
from server.subscriptions.subscriber import Listener


class UnsharedSubscription(NamedTuple):
    """A subscription that was opened for one subscriber."""

    context: OperationContext
    executor: Executor[Any]
    source: AsyncIterable[Any]
    #: Whether the client receives a resume id before the first event.
    sends_start_position: bool = False

    @property
    def limits(self) -> QueueLimits | None:
        """The queue limits. None for a source without limits: its next event is executed once the last one was sent."""
        return self.source.limits if isinstance(self.source, SharedSource | UnsharedSource) else None

    def key(self, event: Any) -> Hashable:
        return self.source.key(event) if isinstance(self.source, SharedSource | UnsharedSource) else None

    @property
    def progress(self) -> SubscriptionProgress:
        assert self.context.progress is not None
        return self.context.progress


async def outcomes_of(
    subscription: UnsharedSubscription, deadlines: Deadlines, slices: TimeSlices
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcome of each event. Reset the context when an event arrives: it has the time of the event."""
    progress = subscription.progress
    source_events = _with_start_position if subscription.sends_start_position else _plain
    async with aclosing(source_events(subscription)) as events:
        async for event in events:
            if isinstance(event, Outcome):
                yield event
                continue
            position, known, dropped = progress.position, progress.known, progress.take_dropped()
            if slices.is_used_up:
                await slices.wait_for_slice()
            subscription.context.reset()
            if progress.is_resumed and not progress.is_live.is_set():
                subscription.context.meter.charge(MISSED_EVENT_UNITS)
            try:
                with deadlines.deadline():
                    with slices.measure():
                        result: Any = execute_subscription_event(subscription.executor.build_per_event_executor(event))
                    result = await result if subscription.executor.is_awaitable(result) else result
            except TimeoutError:
                raise too_late(deadlines) from None
            outcome = outcome_of(result)
            if position is not None and not outcome.is_failure:
                outcome.set_event_id(position.id(known), position.number)
                outcome.set_dropped(dropped)
            outcome.key = subscription.key(event)
            if progress.is_too_old and progress.sends_first_event:
                outcome.add_extension("resync", True)
                progress.is_too_old = False
                progress.mark_resync_sent()
            yield outcome


def too_late(deadlines: Deadlines) -> Timeout:
    """Return the error for a subscription whose event was not executed in time."""
    return Timeout(f"An event was not executed within {deadlines.seconds:g} seconds: subscribe again.")


async def _plain(subscription: UnsharedSubscription) -> AsyncGenerator[Any, None]:
    events = aiter(subscription.source)
    try:
        async for event in events:
            yield event
    finally:
        await _close(events)


async def _with_start_position(subscription: UnsharedSubscription) -> AsyncGenerator[Any, None]:
    """Yield the events, preceded by an outcome with the resume id of the start, or with RESYNC."""
    events, progress = aiter(subscription.source), subscription.progress
    first, started = asyncio.ensure_future(anext(events)), asyncio.ensure_future(progress.started.wait())
    try:
        await asyncio.wait((first, started), return_when=asyncio.FIRST_COMPLETED)
        position, start_id = progress.position, progress.id
        if progress.started.is_set() and not progress.sends_first_event and position is not None and start_id:
            if progress.is_too_old:
                yield resync(start_id, position.number)
                progress.mark_resync_sent()
            elif progress.resume is None:
                yield position_only(start_id)
        try:
            yield await first
        except StopAsyncIteration:
            return
        async for event in events:
            yield event
    finally:
        for future in (first, started):
            future.cancel()
        await asyncio.wait((first, started))
        if not first.cancelled():
            first.exception()  # mark it as retrieved
        await _close(events)


async def _close(events: AsyncIterator[Any]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


class EndedSubscription:
    """The handle of a subscription that ended at its start."""

    limits = QueueLimits()

    def stop(self, problem: Exception | None = None) -> None: ...
    def settled_position(self) -> ResumePosition | None: ...
    def withdraw(self, outcome: Outcome) -> None: ...


ENDED = EndedSubscription()


class DrivenSubscription:
    """The handle of an unshared subscription. A task requests the results for the listener."""

    #: The task, created after this handle.
    task: asyncio.Task[None] | None
    #: The error with which the subscription was stopped.
    problem: Exception | None

    def __init__(self, listener: Listener, limits: QueueLimits, report: Report, progress: SubscriptionProgress) -> None:
        self.listener = listener
        self.limits = limits
        self.problem = None
        self._report = report
        self._progress = progress
        self.is_over = self.has_begun = False
        self.task = None

    def stop(self, problem: Exception | None = None) -> None:
        if self.is_over:
            return
        self.is_over, self.problem = True, problem
        # A task that has not begun ends when it begins; the task itself stops after the delivery that was refused.
        if self.task is not None and self.has_begun and self.task is not asyncio.current_task():
            self.task.cancel()
        if problem is not None:
            self.listener.finish(failure(problem))

    def settled_position(self) -> ResumePosition | None:
        return None if self.is_over else self._progress.settled_position

    def withdraw(self, outcome: Outcome) -> None:
        self._report.events -= 1
        self._report.sent_bytes -= len(outcome.body)
