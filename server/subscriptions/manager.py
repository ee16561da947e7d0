"""The start of subscriptions, and the delivery of their events.

Equal subscriptions share one source and one execution of each event (`broadcast_group`). Others are executed alone.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from contextlib import aclosing
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
from server.admission.deadlines import Deadlines
from server.admission.fairness import TimeSlices
from server.admission.load_shedding import LoadShedder
from server.admission.quotas import KeyedQuota
from server.documents.document_cache import Documents, PreparedOperation
from server.operations.billing import Billing, refusal
from server.operations.context import OperationContext
from server.operations.execution import executor_of, selection_outcome
from server.operations.foreign_cancellation import translate_cancellation
from server.operations.outcome import Outcome, failure
from server.operations.request import Request, Transport
from server.subscriptions.broadcast_group import BroadcastGroup
from server.subscriptions.group_member import Rights, rights_of
from server.subscriptions.pull_queue import pulled
from server.subscriptions.replay import ReplaySource
from server.subscriptions.resume_bindings import binding_of, resume_of
from server.subscriptions.subscriber import Listener, PullPosition, Subscriber, SubscriptionHandle
from server.subscriptions.unshared import (
    ENDED,
    DrivenSubscription,
    UnsharedSubscription,
    outcomes_of,
)

_Asked = tuple[PreparedOperation, bytes]


class _Shared(NamedTuple):
    """A group to join, and the source of the events missed."""

    group: BroadcastGroup
    missed: ReplaySource | None = None


class SubscriptionManager:
    """The subscriptions of a process, within its quotas and its load limit.

    For a consumer that requests each result at most `most_bytes` are queued; 0 means no limit.
    """

    def __init__(
        self,
        documents: Documents,
        accounts: Billing,
        load: LoadShedder,
        places: KeyedQuota,
        deadlines: Deadlines,
        slices: TimeSlices,
        ids: ResumeIds,
        most_bytes: int = 0,
    ) -> None:
        self._documents = documents
        self._ids = ids
        self._accounts = accounts
        self._load = load
        self._places = places
        self._deadlines = deadlines
        self._slices = slices
        self._most_bytes = most_bytes
        # Groups of whoever asks, or else of those with the same rights.
        self._groups: dict[_Asked, BroadcastGroup] = {}
        self._own_groups: dict[tuple[_Asked, Rights | None], BroadcastGroup] = {}
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
        subscriber = Subscriber(self._accounts, self._places, request)
        begun = await self._begun(subscriber)
        if isinstance(begun, _Shared):
            return begun.group.join(subscriber, listener, begun.missed)
        if isinstance(begun, UnsharedSubscription):
            return self._driven(listener, subscriber, begun)
        await subscriber.end()
        if begun.is_failure:
            listener.finish(begun)
        else:
            listener.deliver(begun, None)
            listener.finish(None)
        return ENDED

    async def stream(self, request: Request, pull_position: PullPosition) -> AsyncGenerator[Outcome, None]:
        """Yield the results as they are requested. The caller closes the generator, which releases the source."""
        subscriber = Subscriber(self._accounts, self._places, request)
        begun = await self._begun(subscriber)
        if isinstance(begun, Outcome):
            await subscriber.end()
            yield begun
            return
        pull_position.after = subscriber.resumes_after
        if isinstance(begun, _Shared):
            group, missed = begun
            outcomes = pulled(
                lambda listener: group.join(subscriber, listener, missed), pull_position, self._most_bytes
            )
        elif begun.keeping is not None:
            own = begun
            outcomes = pulled(lambda listener: self._driven(listener, subscriber, own), pull_position, self._most_bytes)
        else:
            own = begun
            pull_position.how = lambda: own.progress.settled_position
            outcomes = self._executed(subscriber, begun)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome

    async def _begun(self, subscriber: Subscriber) -> _Shared | UnsharedSubscription | Outcome:
        """Open a subscription. Return the group to join, or the only outcome. Ends the subscriber if cancelled."""
        request = subscriber.request
        context: OperationContext | None = None
        missed: ReplaySource | None = None
        try:
            resume = resume_of(request, self._ids)
            subscriber.take_place()
            async with self._load.slot(payer(request.caller)):
                await subscriber.admit()
                asked = _asked(request)
                group = self._group_of(request, asked)
                if group is not None and resume is None:
                    return _Shared(group)
                context = self._opened(request, resume)
                begun = await self._source(request, context)
                _check_known(begun, context)
                if resume is not None and (missed := _missed(begun, context, asked)) is not None:
                    context = self._opened(request, None)
                    begun = await self._source(request, context)
            if isinstance(begun, tuple):
                executor, source = begun
                if isinstance(source, SharedSource) and asked is not None:
                    return _Shared(self._existing_or_new_group(subscriber, asked, executor, source, context), missed)
                return UnsharedSubscription(context, executor, source, _wants_places(request))
            outcome = selection_outcome(begun)
            outcome.allowance = subscriber.allowance
        except DomainError as error:
            outcome = refusal(error)
        except Exception as error:
            outcome = failure(error)
        except BaseException:
            self._close_context(subscriber, context, missed)
            await subscriber.end()
            raise
        if context is not None:
            self._accounts.explain(request, outcome, context.meter)
        self._close_context(subscriber, context, missed)
        subscriber.note(outcome)
        return outcome

    def _close_context(
        self, subscriber: Subscriber, context: OperationContext | None, missed: ReplaySource | None = None
    ) -> None:
        for one in (context, None if missed is None else missed.context):
            if one is not None:
                one.close()
                subscriber.measure(one.meter)

    async def _source(
        self, request: Request, context: OperationContext
    ) -> tuple[Executor[Any], AsyncIterable[Any]] | ExecutionResult:
        """Return the executor of the events and their source; or the errors."""
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

    def _opened(self, request: Request, resume: ResumeRequest | None) -> OperationContext:
        context = self._accounts.open_context(request)
        context.progress = SubscriptionProgress(resume, self._ids.sealer(binding_of(request)))
        return context

    # Those that are equal.

    def _existing_or_new_group(
        self,
        subscriber: Subscriber,
        asked: _Asked,
        executor: Executor[Any],
        source: SharedSource[Any],
        context: OperationContext,
    ) -> BroadcastGroup:
        group = self._group_of(subscriber.request, asked)
        if group is None:
            return self._new_group(subscriber.request, asked, executor, source, context)
        self._close_context(subscriber, context)  # another was first
        return group

    def _group_of(self, request: Request, asked: _Asked | None) -> BroadcastGroup | None:
        if asked is None:
            return None
        group = None if request.operation in self._personal else self._groups.get(asked)
        return group or self._own_groups.get((asked, rights_of(request.caller.identity)))

    def _new_group(
        self,
        request: Request,
        asked: _Asked,
        executor: Executor[Any],
        source: SharedSource[Any],
        context: OperationContext,
    ) -> BroadcastGroup:
        is_public = not context.used_identity and request.operation not in self._personal
        key = asked, rights_of(request.caller.identity)

        def forget(group: BroadcastGroup) -> None:
            if self._groups.get(asked) is group:
                del self._groups[asked]
            if self._own_groups.get(key) is group:
                del self._own_groups[key]

        group = BroadcastGroup(
            self._accounts,
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
            self._groups[asked] = group
        else:
            self._own_groups[key] = group
        return group

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Those that nobody shares.

    async def _executed(self, subscriber: Subscriber, own: UnsharedSubscription) -> AsyncGenerator[Outcome, None]:
        """Yield the results, each executed when it is requested, and settled after it was sent."""
        accounts, context, request = self._accounts, own.context, subscriber.request
        try:
            async with aclosing(outcomes_of(own, self._deadlines, self._slices)) as outcomes:
                async for outcome in outcomes:
                    if outcome.is_position_only:
                        yield outcome
                        continue
                    accounts.explain(request, outcome, context.meter)
                    subscriber.note(outcome)
                    yield outcome
                    subscriber.made(outcome)
                    subscriber.measure(context.meter)
                    await subscriber.settle()
        except OverBudget as refusal:
            yield subscriber.refused(refusal)
        except (Exception, asyncio.CancelledError) as error:
            outcome = failure(translate_cancellation(error) if isinstance(error, asyncio.CancelledError) else error)
            accounts.explain(request, outcome, context.meter)
            subscriber.note(outcome)
            yield outcome
        finally:
            self._close_context(subscriber, context)
            await subscriber.end()

    def _driven(self, listener: Listener, subscriber: Subscriber, own: UnsharedSubscription) -> "DrivenSubscription":
        driven = DrivenSubscription(listener, own.keeping or QueueLimits(), subscriber.report, own.progress)
        driven.task = asyncio.create_task(self._drive(driven, subscriber, own))
        return driven

    async def _drive(self, driven: "DrivenSubscription", subscriber: Subscriber, own: UnsharedSubscription) -> None:
        """Request one result after the other; without a queue, wait until the listener has sent the last one."""
        driven.has_begun = True
        last: Outcome | None = None
        try:
            if not driven.is_over:
                async with aclosing(self._executed(subscriber, own)) as outcomes:
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
                        # What was missed comes as fast as it is taken, and what is new when it comes.
                        if own.keeping is None or not own.progress.is_live.is_set():
                            await driven.listener.drained()
                        else:  # who reads has a turn to take it
                            await asyncio.sleep(0)
        except Exception as error:
            last = failure(error)
        finally:
            own.context.close()
            await subscriber.end()
        if not driven.is_over:
            driven.is_over = True
            driven.listener.finish(last)


def _missed(
    begun: tuple[Executor[Any], AsyncIterable[Any]] | ExecutionResult, context: OperationContext, asked: _Asked | None
) -> ReplaySource | None:
    """Return the source of the missed events of a subscription that is shared afterwards."""
    if isinstance(begun, tuple) and isinstance(begun[1], SharedSource) and asked is not None:
        return ReplaySource(begun[1], begun[0], context)
    return None


def _check_known(begun: object, context: OperationContext) -> None:
    """Raise `BadUserInput` for a resume id that this subscription never issued."""
    if isinstance(begun, tuple) and context.progress is not None:
        context.progress.check_known()


def _wants_places(request: Request) -> bool:
    asked = request.params
    return asked.wants_positions or asked.resume_after is not None or request.transport is Transport.EVENTS


def _asked(request: Request) -> _Asked | None:
    """Return the key under which equal subscriptions are shared; None for one that is explained, and never shared."""
    if request.params.explain:
        return None
    try:
        return request.operation, orjson.dumps(request.params.variables or None, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers that JSON libraries do not agree on
        return None
