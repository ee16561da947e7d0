"""The start of subscriptions, and the delivery of their events.

Equal subscriptions share one source and one execution of each event (`broadcast_group`). Others are executed alone.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from contextlib import aclosing
from secrets import token_bytes
from typing import Any, NamedTuple
from weakref import WeakSet

import orjson
from graphql import ExecutionResult
from graphql.execution import Executor, create_source_event_stream

from datastore.change_streams.replay.signed_resume_ids import ResumeIds, ResumeRequest
from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.errors import DomainError
from datastore.queues import QueueLimits
from server.admission.budgets import OverBudget
from server.admission.callers import payer
from server.admission.quotas import KeyedQuota
from server.documents.document_cache import PreparedOperation
from server.operations.billing import refusal
from server.operations.context import OperationContext
from server.operations.execution import executor_of, selection_outcome
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.operations.request import Request, Transport
from server.operations.runner import Runner
from server.subscriptions.broadcast_group import BroadcastGroup
from server.subscriptions.group_member import Rights, rights_of
from server.subscriptions.pull_queue import pulled
from server.subscriptions.replay import ReplaySource
from server.subscriptions.result_stream import RequestedResults, ResultStream
from server.subscriptions.resume_bindings import binding_of, resume_of
from server.subscriptions.subscriber import Listener, Subscriber, SubscriptionHandle
from server.subscriptions.unshared import (
    ENDED,
    DrivenSubscription,
    UnsharedSubscription,
    outcomes_of,
)

# The key of equal subscriptions: the operation, and its variables as JSON.
_GroupKey = tuple[PreparedOperation, bytes]


class _Shared(NamedTuple):
    """A group to join, and the source of the events that the client missed."""

    group: BroadcastGroup
    missed: ReplaySource | None = None


class SubscriptionManager:
    """The subscriptions of a process, within a `quota` and the load limit of the `runner`.

    Without `resume_ids` a subscription can be resumed in this process only. For a consumer that requests each result,
    at most `max_queued_bytes` are queued; 0 means no limit.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        quota: KeyedQuota | None = None,
        resume_ids: ResumeIds | None = None,
        max_queued_bytes: int = 0,
    ) -> None:
        self._documents = runner.documents
        self._billing = runner.billing
        self._load = runner.load
        self._deadlines = runner.deadlines
        self._slices = runner.slices
        self._quota = quota or KeyedQuota("subscriptions", 0, 0)
        self._ids = resume_ids or ResumeIds(token_bytes())
        self._max_queued_bytes = max_queued_bytes
        # The groups of any caller, and those of the callers with the same rights.
        self._groups: dict[_GroupKey, BroadcastGroup] = {}
        self._own_groups: dict[tuple[_GroupKey, Rights | None], BroadcastGroup] = {}
        self._personal: WeakSet[PreparedOperation] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Wait until the ended subscriptions are settled and reported."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def follow(self, request: Request, listener: Listener) -> SubscriptionHandle:
        """Deliver the results to `listener` until the subscription ends or is stopped.

        The subscription runs when this returns. Before that, only an error is delivered.
        """
        subscriber = Subscriber(self._billing, self._quota, request)
        opened = await self._open(subscriber)
        if isinstance(opened, _Shared):
            return opened.group.join(subscriber, listener, opened.missed)
        if isinstance(opened, UnsharedSubscription):
            return self._start_driving(listener, subscriber, opened)
        await subscriber.end()
        if opened.is_failure:
            listener.finish(opened)
        else:
            listener.deliver(opened, None)
            listener.finish(None)
        return ENDED

    def stream(self, request: Request) -> ResultStream:
        """Return the results for a consumer that requests one after the other. The subscription begins with the first.

        The caller closes the stream, which releases the source.
        """
        return ResultStream(lambda: self._requested_results(request))

    async def _requested_results(self, request: Request) -> RequestedResults:
        subscriber = Subscriber(self._billing, self._quota, request)
        opened = await self._open(subscriber)
        if isinstance(opened, Outcome):
            return RequestedResults(_only(subscriber, opened))
        resumes_after = subscriber.resumes_after
        if isinstance(opened, _Shared):
            group, missed = opened
            return pulled(
                lambda listener: group.join(subscriber, listener, missed), resumes_after, self._max_queued_bytes
            )
        unshared = opened
        if unshared.limits is not None:
            return pulled(
                lambda listener: self._start_driving(listener, subscriber, unshared),
                resumes_after,
                self._max_queued_bytes,
            )
        results = self._execute_on_request(subscriber, unshared)
        return RequestedResults(results, lambda: unshared.progress.settled_position, resumes_after)

    async def _open(self, subscriber: Subscriber) -> _Shared | UnsharedSubscription | Outcome:
        """Open a subscription. Return it, the group to join, or the only outcome. End the subscriber if cancelled."""
        request = subscriber.request
        context: OperationContext | None = None
        missed: ReplaySource | None = None
        try:
            resume = resume_of(request, self._ids)
            subscriber.take_quota()
            async with self._load.slot(payer(request.caller)):
                await subscriber.admit()
                key = _group_key(request)
                group = self._group_of(request, key)
                if group is not None and resume is None:
                    return _Shared(group)
                context = self._open_context(request, resume)
                result = await self._source(request, context)
                _check_known(result, context)
                if resume is not None and (missed := _missed(result, context, key)) is not None:
                    context = self._open_context(request, None)
                    result = await self._source(request, context)
            if isinstance(result, tuple):
                executor, source = result
                if isinstance(source, SharedSource) and key is not None:
                    return _Shared(self._existing_or_new_group(subscriber, key, executor, source, context), missed)
                return UnsharedSubscription(context, executor, source, _wants_resume_ids(request))
            outcome = selection_outcome(result)
            outcome.allowance = subscriber.allowance
        except DomainError as error:
            outcome = refusal(error)
        except Exception as error:
            outcome = failure(error)
        except BaseException:
            self._close_contexts(subscriber, context, missed)
            await subscriber.end()
            raise
        if context is not None:
            self._billing.explain(request, outcome, context.meter)
        self._close_contexts(subscriber, context, missed)
        subscriber.note(outcome)
        return outcome

    def _close_contexts(
        self, subscriber: Subscriber, context: OperationContext | None, missed: ReplaySource | None = None
    ) -> None:
        for opened in (context, None if missed is None else missed.context):
            if opened is not None:
                opened.close()
                subscriber.measure(opened.meter)

    async def _source(
        self, request: Request, context: OperationContext
    ) -> tuple[Executor[Any], AsyncIterable[Any]] | ExecutionResult:
        """Return the executor of the events and their source, or the errors."""
        executor = executor_of(request).build(
            self._documents.schema,
            request.operation.document.node,
            context_value=context,
            raw_variable_values=request.params.variables,
            operation_name=request.operation.name,
            hide_suggestions=self._documents.hides_suggestions,
        )
        if isinstance(executor, list):
            return ExecutionResult(None, errors=executor)
        try:
            source: Any = create_source_event_stream(executor)
            source = await source if executor.is_awaitable(source) else source
        except asyncio.CancelledError as cancelled:
            raise translate_cancellation(cancelled) from None
        return source if isinstance(source, ExecutionResult) else (executor, source)

    def _open_context(self, request: Request, resume: ResumeRequest | None) -> OperationContext:
        context = self._billing.open_context(request)
        context.progress = SubscriptionProgress(resume, self._ids.sealer(binding_of(request)))
        return context

    # Shared subscriptions

    def _existing_or_new_group(
        self,
        subscriber: Subscriber,
        key: _GroupKey,
        executor: Executor[Any],
        source: SharedSource[Any],
        context: OperationContext,
    ) -> BroadcastGroup:
        group = self._group_of(subscriber.request, key)
        if group is None:
            return self._new_group(subscriber.request, key, executor, source, context)
        self._close_contexts(subscriber, context)  # an equal subscription has begun while the source was created
        return group

    def _group_of(self, request: Request, key: _GroupKey | None) -> BroadcastGroup | None:
        if key is None:
            return None
        group = None if request.operation in self._personal else self._groups.get(key)
        return group or self._own_groups.get((key, rights_of(request.caller.identity)))

    def _new_group(
        self,
        request: Request,
        key: _GroupKey,
        executor: Executor[Any],
        source: SharedSource[Any],
        context: OperationContext,
    ) -> BroadcastGroup:
        is_public = not context.used_identity and request.operation not in self._personal
        own_key = key, rights_of(request.caller.identity)

        def forget(group: BroadcastGroup) -> None:
            if self._groups.get(key) is group:
                del self._groups[key]
            if self._own_groups.get(own_key) is group:
                del self._own_groups[own_key]

        group = BroadcastGroup(
            self._billing,
            source,
            executor,
            context,
            deadlines=self._deadlines,
            slices=self._slices,
            is_public=is_public,
            personal=self._personal,
            spawn=self._spawn,
            forget=forget,
        )
        if is_public:
            self._groups[key] = group
        else:
            self._own_groups[own_key] = group
        return group

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Unshared subscriptions

    async def _execute_on_request(
        self, subscriber: Subscriber, unshared: UnsharedSubscription
    ) -> AsyncGenerator[Outcome, None]:
        """Yield the results. Each is executed when it is requested, and settled when the next one is requested."""
        billing, context, request = self._billing, unshared.context, subscriber.request
        try:
            async with aclosing(outcomes_of(unshared, self._deadlines, self._slices)) as outcomes:
                async for outcome in outcomes:
                    if outcome.is_position_only:
                        yield outcome
                        continue
                    billing.explain(request, outcome, context.meter)
                    subscriber.note(outcome)
                    yield outcome
                    subscriber.count_execution(outcome)
                    subscriber.measure(context.meter)
                    await subscriber.settle()
        except OverBudget as refusal:
            yield subscriber.refused(refusal)
        except (Exception, asyncio.CancelledError) as error:
            outcome = failure(translate_cancellation(error) if isinstance(error, asyncio.CancelledError) else error)
            billing.explain(request, outcome, context.meter)
            subscriber.note(outcome)
            yield outcome
        finally:
            self._close_contexts(subscriber, context)
            await subscriber.end()

    def _start_driving(
        self, listener: Listener, subscriber: Subscriber, unshared: UnsharedSubscription
    ) -> DrivenSubscription:
        """Start the task that requests the results for the listener. Return the handle of the subscription."""
        driven = DrivenSubscription(listener, unshared.limits or QueueLimits(), subscriber.report, unshared.progress)
        driven.task = asyncio.create_task(self._drive(driven, subscriber, unshared))
        return driven

    async def _drive(self, driven: DrivenSubscription, subscriber: Subscriber, unshared: UnsharedSubscription) -> None:
        """Request one result after the other; without a queue, wait until the listener has sent the last one."""
        driven.has_begun = True
        last: Outcome | None = None
        try:
            if not driven.is_over:
                async with aclosing(self._execute_on_request(subscriber, unshared)) as outcomes:
                    async for outcome in outcomes:
                        if outcome.is_failure:
                            last = outcome
                            break
                        if outcome.is_position_only and outcome.event_id is not None:
                            driven.listener.send_position(outcome.event_id)
                            continue
                        driven.listener.deliver(outcome, outcome.key)
                        if driven.is_over:
                            if driven.problem is not None:
                                subscriber.note(failure(driven.problem))
                            break
                        # A replay is as fast as its listener. Live events are queued while the listener does not read.
                        if unshared.limits is None or not unshared.progress.is_live.is_set():
                            await driven.listener.drained()
                        else:  # let a consumer take the event before the next one
                            await asyncio.sleep(0)
        except Exception as error:
            last = failure(error)
        finally:
            unshared.context.close()
            await subscriber.end()
        if not driven.is_over:
            driven.is_over = True
            driven.listener.finish(last)


async def _only(subscriber: Subscriber, outcome: Outcome) -> AsyncGenerator[Outcome, None]:
    """Yield the only outcome of a subscription that did not start."""
    await subscriber.end()
    yield outcome


def _missed(
    result: tuple[Executor[Any], AsyncIterable[Any]] | ExecutionResult, context: OperationContext, key: _GroupKey | None
) -> ReplaySource | None:
    """Return the source of the missed events of a subscription that is shared afterwards."""
    if isinstance(result, tuple) and isinstance(result[1], SharedSource) and key is not None:
        return ReplaySource(result[1], result[0], context)
    return None


def _check_known(result: object, context: OperationContext) -> None:
    """Raise `BadUserInput` for a resume id that this subscription never issued."""
    if isinstance(result, tuple) and context.progress is not None:
        context.progress.check_known()


def _wants_resume_ids(request: Request) -> bool:
    params = request.params
    return params.wants_positions or params.resume_after is not None or request.transport is Transport.EVENTS


def _group_key(request: Request) -> _GroupKey | None:
    """Return the key under which equal subscriptions are shared; None for an explained one, which is never shared."""
    if request.params.explain:
        return None
    try:
        return request.operation, orjson.dumps(request.params.variables or None, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # JSON libraries differ in the numbers that they accept
        return None
